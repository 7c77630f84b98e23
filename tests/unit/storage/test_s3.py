"""Checkpoints and their sinks on S3, as the real command meets them: on an S3 server of this machine."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from typer.testing import CliRunner

from respool.checkpoint.journal import history
from respool.checkpoint.ownership import fork_of
from respool.cli.app import app
from respool.errors import CheckpointError
from respool.operations.checkpoint import Checkpoint
from respool.storage import lease
from respool.storage.remote import RemoteReader, RemoteWriter
from support.checkpoints import unpack

BUCKET = "test-bucket"
CHECKPOINT = f"s3://{BUCKET}/checkpoint"
_PLAIN = {"allow_http": "true"}
_CHANGING = ("create", "replace", "move", "delete", "copy_inside")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as Spark leaves it on S3, where Hadoop keeps no checksums: 14 batches, with state."""
    folder = unpack(tmp_path_factory.mktemp("golden"), "rocksdb")
    for file in folder.rglob(".*.crc"):
        file.unlink()
    return folder


@pytest.fixture
def checkpoint(s3: Any, golden: Path) -> dict[str, str]:
    """The golden checkpoint on S3; what Spark sees of it."""
    _upload(s3, golden)
    return seen(s3)


def mark_folders(s3: Any, folder: Path, prefix: str = "checkpoint") -> None:
    """Create the empty objects by which s3a marks folders."""
    folders = [f"{path.relative_to(folder)}/" for path in folder.rglob("*") if path.is_dir()]
    for name in ("", *folders):
        s3.call_s3("put_object", Bucket=BUCKET, Key=f"{prefix}/{name}", Body=b"")


def markers(s3: Any, folder: str = "checkpoint") -> set[str]:
    """Return the marked folders, without respool's own."""
    names = {path.removeprefix(f"{BUCKET}/{folder}/") for path in s3.find(f"{BUCKET}/{folder}") if path.endswith("/")}
    return {name for name in names if not name.startswith("_respool/")}


def _upload(s3: Any, folder: Path, but: Iterable[str] = ()) -> None:
    mark_folders(s3, folder)
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    s3.pipe({f"{BUCKET}/checkpoint/{name}": path.read_bytes() for name, path in paths.items() if name not in but})


def seen(s3: Any, folder: str = "checkpoint") -> dict[str, str]:
    """Return all files that Spark sees, with the checksums of their bytes."""
    infos = s3.find(f"{BUCKET}/{folder}", detail=True)
    files = {path.removeprefix(f"{BUCKET}/{folder}/"): str(info["ETag"]) for path, info in infos.items()}
    names = [path for path in files if not path.startswith("_respool/") and path and not path.endswith("/")]
    return {path: files[path] for path in names}


@pytest.fixture
def run(respool: str, s3: Any, tmp_path: Path) -> Run:
    """Runs `respool checkpoint` with the server's address in the environment, and nothing else."""

    def run(*words: str, environ: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        environ = {name: value for name, value in {**os.environ, **(environ or {})}.items() if value}
        line = [respool, "checkpoint", *words]
        return subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)

    return run


def ok(done: "subprocess.CompletedProcess[str]") -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def error(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    return " ".join((done.stdout + done.stderr).split())


def here(*words: str) -> None:
    """Run `respool checkpoint` in this process, which is quicker, and can be made to fail."""
    CliRunner().invoke(app, ["checkpoint", *words], catch_exceptions=False)


# Golden checkpoints come without the files that their queries read.
FLAGS = ("--stopped", "--allow-data-loss", "--yes")
REWIND = ("rewind", CHECKPOINT, "--last", "2", *FLAGS)


def test_show_verify_rewind_and_undo(run: Run, s3: Any, checkpoint: dict[str, str], golden: Path) -> None:
    shown, local = ok(run("show", CHECKPOINT, "--json")), ok(run("show", str(golden), "--json"))
    assert {**shown, "root": ""} == {**local, "root": ""}
    verified = ok(run("verify", CHECKPOINT, "--json"))
    assert verified["checks"] == ok(run("verify", str(golden), "--json"))["checks"]

    assert "may run" in error(run("rewind", CHECKPOINT, "--last", "2", "--yes"))
    assert seen(s3) == checkpoint
    ok(run(*REWIND, "--json", "--reason", "a trial"))
    now = seen(s3)
    gone = set(checkpoint) - set(now)
    assert {path: checkpoint[path] for path in now} == now
    assert {"offsets/12", "offsets/13", "commits/12", "commits/13"} <= gone
    assert all(path.rsplit("/", 1)[1].split(".")[0] in ("12", "13", "14") for path in gone)
    assert ok(run("verify", CHECKPOINT, "--json"))["ok"]
    [past] = ok(run("history", CHECKPOINT, "--json"))
    assert past["reason"] == "a trial"

    ok(run("undo", CHECKPOINT, "--yes", "--json"))
    assert seen(s3) == checkpoint
    again = ok(run("show", CHECKPOINT, "--json"))
    assert [entry["operation"] for entry in again["rewinds"]] == ["rewind", "undo"]
    assert {**again, "rewinds": []} == shown
    assert "no change to undo" in error(run("undo", CHECKPOINT, "--yes"))


def test_verify_finds_what_is_missing(s3: Any, run: Run, checkpoint: dict[str, str]) -> None:
    s3.rm(f"{BUCKET}/checkpoint/commits/13")
    s3.rm(f"{BUCKET}/checkpoint/state/0/1/13.zip")
    broken = run("verify", CHECKPOINT, "--json")
    assert broken.returncode == 3
    assert "state/0/1/13.zip" in broken.stdout or "version 13" in broken.stdout


def test_a_dry_run_changes_nothing(run: Run, s3: Any, checkpoint: dict[str, str]) -> None:
    ok(run("rewind", CHECKPOINT, "--to-batch", "0", "--stopped", "--allow-data-loss", "--dry-run", "--json"))
    listed = [path for path in s3.find(f"{BUCKET}/checkpoint") if not path.endswith("/")]
    assert listed == sorted(f"{BUCKET}/checkpoint/{path}" for path in checkpoint)


class Cut(Exception):
    """The process ends here."""


def test_a_rewind_that_is_cut_off_anywhere_is_finished_by_the_same_command(
    s3: Any, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stateless = shutil.copytree(golden, tmp_path / "stateless", ignore=shutil.ignore_patterns("state"))
    _upload(s3, stateless)
    checkpoint = seen(s3)
    command = ("rewind", CHECKPOINT, "--to-batch", "13", *FLAGS)
    here(*command)
    rewound = seen(s3)
    assert rewound.keys() < checkpoint.keys()
    cut_off = 0
    while True:
        s3.rm(f"{BUCKET}/checkpoint/_respool", recursive=True)
        _upload(s3, stateless, but=rewound)
        with monkeypatch.context() as broken:
            _break(broken, cut_off)
            try:
                here(*command)
                break  # there are no more changes
            except Cut:
                cut_off += 1
        now = seen(s3)
        assert now in (checkpoint, rewound) or "offsets/14" in now  # which keeps Spark from starting
        if history.pending(RemoteReader(CHECKPOINT)) is not None or now == checkpoint:
            here(*command)
        assert seen(s3) == rewound
        assert len(history.past(RemoteReader(CHECKPOINT))) == 1
    assert cut_off > len(checkpoint) - len(rewound)


def _break(broken: pytest.MonkeyPatch, at: int) -> None:
    """Make the change of that number fail; leases do not count."""
    changes: list[str] = []

    def failing(name: str) -> Callable[..., Any]:
        change = getattr(RemoteWriter, name)

        def run(self: RemoteWriter, *given: Any) -> Any:
            if not str(given[0]).endswith("lease.json"):
                changes.append(name)
                if len(changes) - 1 == at:
                    raise Cut
            return change(self, *given)

        return run

    for name in _CHANGING:
        broken.setattr(RemoteWriter, name, failing(name))


def test_a_move_that_was_interrupted_between_copy_and_delete(s3: Any, checkpoint: dict[str, str]) -> None:
    files = RemoteWriter(CHECKPOINT)
    s3.cp_file(f"{BUCKET}/checkpoint/offsets/13", f"{BUCKET}/checkpoint/_respool/13")
    files.move("offsets/13", "_respool/13")
    files.move("offsets/13", "_respool/13")
    assert "offsets/13" not in seen(s3)
    assert s3.info(f"{BUCKET}/checkpoint/_respool/13")["ETag"] == checkpoint["offsets/13"]
    with pytest.raises(CheckpointError, match="vanished"):
        files.move("offsets/99", "_respool/99")


# --- markers of folders, as s3a leaves them ---------------------------------------------------------------------------


def test_markers_are_no_files(s3: Any, checkpoint: dict[str, str]) -> None:
    assert {"", "commits/", "offsets/", "state/", "state/0/", "state/0/1/"} <= markers(s3)
    for noise in ("commits_$folder$", "_temporary/0/task/part-0", ".spark-staging-1/part-0", "state/0/1/.2.zip.tmp"):
        s3.call_s3("put_object", Bucket=BUCKET, Key=f"checkpoint/{noise}", Body=b"")
    files = RemoteReader(CHECKPOINT)
    listing = files.walk().folders
    assert sorted(listing["commits"]) == sorted(str(batch) for batch in range(14))
    assert "" not in {name for names in listing.values() for name in names}
    assert "commits_$folder$" not in listing[""]
    assert set(files.folders("")) >= {"commits", "offsets", "state"}
    assert "" not in files.folders("")
    assert files.folders("state") == ["0"]
    assert len(files.names("commits")) == 14
    assert files.facts(["commits", "commits/", "metadata"]).keys() == {"metadata"}
    assert all(path and not path.endswith("/") for path in files.below(""))


def test_a_folder_with_nothing_but_markers_is_an_empty_folder(s3: Any, run: Run, golden: Path) -> None:
    mark_folders(s3, golden, "empty")
    assert "it is empty; expected the file metadata" in error(run("show", f"s3://{BUCKET}/empty"))
    assert "the folder is missing or empty" in error(run("show", f"s3://{BUCKET}/nothing"))


def test_pruning_deletes_the_markers_of_folders_without_files(s3: Any, checkpoint: dict[str, str]) -> None:
    for name in ("state/0/7/", "state/9/", "state/9/0/"):
        s3.call_s3("put_object", Bucket=BUCKET, Key=f"checkpoint/{name}", Body=b"")
    RemoteWriter(CHECKPOINT).prune("state")
    left = markers(s3)
    assert {"state/", "state/0/", "state/0/1/", "commits/"} <= left
    assert not {"state/0/7/", "state/9/", "state/9/0/"} & left
    assert seen(s3) == checkpoint
    s3.rm([f"{BUCKET}/checkpoint/{path}" for path in checkpoint if path.startswith("state/")])
    RemoteWriter(CHECKPOINT).prune("state")
    assert not any(name.startswith("state") for name in markers(s3))


def test_markers_are_neither_saved_nor_restored_nor_in_the_way(s3: Any, checkpoint: dict[str, str]) -> None:
    on_s3 = ("--savepoints", STORE)
    called("savepoint", "create", CHECKPOINT, "one", *on_s3)
    assert not [path for path in s3.find(f"{BUCKET}/savepoints") if path.endswith("/")]
    forked = f"s3a://{BUCKET}/fork"
    mark_folders(s3, Path("/nonexistent"), "fork")  # an s3a client has made the folder
    called("savepoint", "fork", "one", forked, "--allow-data-loss", *on_s3)
    assert called("checkpoint", "verify", forked)["ok"]
    called("savepoint", "restore", "one", CHECKPOINT, "--yes", "--stopped", "--allow-data-loss", *on_s3)
    called("checkpoint", "undo", CHECKPOINT, "--yes")
    assert seen(s3) == checkpoint
    called("checkpoint", "purge", CHECKPOINT, "--yes")
    assert not s3.find(f"{BUCKET}/checkpoint/_respool/aside")
    assert seen(s3) == checkpoint


# --- one address, one configuration -----------------------------------------------------------------------------------


def test_a_checkpoint_has_one_identity_by_either_name_of_the_store(s3: Any, checkpoint: dict[str, str]) -> None:
    by_spark = CHECKPOINT.replace("s3://", "s3a://")
    assert Checkpoint(by_spark) == Checkpoint(CHECKPOINT + "/")
    held = lease.hold(by_spark)
    assert held is not None
    with held, pytest.raises(CheckpointError, match="The query runs: process"):
        here("rewind", CHECKPOINT, "--last", "1", *FLAGS)
    made = called("savepoint", "create", by_spark, "one", "--savepoints", STORE)
    assert made["checkpoint"] == CHECKPOINT
    assert [saved["name"] for saved in called("checkpoint", "show", CHECKPOINT, "--savepoints", STORE)["savepoints"]]
    called("savepoint", "fork", "one", f"s3a://{BUCKET}/fork", "--allow-data-loss", "--savepoints", STORE)
    fork = fork_of(RemoteReader(f"s3://{BUCKET}/fork"))
    assert fork is not None
    assert (fork.checkpoint, fork.location) == (CHECKPOINT, f"{STORE}/one")


def test_the_table_alone_reaches_the_store(
    run: Run, s3: Any, s3_endpoint: str, checkpoint: dict[str, str], tmp_path: Path
) -> None:
    write_deltalake(f"s3://{BUCKET}/table", pa.table({"n": [1]}), storage_options=_PLAIN)
    (tmp_path / "key").write_text("test\n")
    (tmp_path / "respool.toml").write_text(
        f'[s3]\nendpoint = "{s3_endpoint}"\nregion = "eu-west-3"\naccess_key = "env:MINE"\nsecret_key = "file:key"\n'
    )
    none = {name: "" for name in os.environ if name.startswith("AWS_") and "FILE" not in name}
    environ = {**none, "MINE": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    assert ok(run("show", CHECKPOINT, "--json", environ=environ))["next_batch"] == 14
    words = ("rewind", CHECKPOINT, "--last", "1", "--dry-run", "--stopped", "--json")
    planned = run(*words, "--sink", f"delta:s3a://{BUCKET}/table", environ=environ)
    assert "Delta table" in planned.stdout, planned.stderr
    (tmp_path / "respool.toml").unlink()
    assert "there are no credentials for S3" in error(run("show", CHECKPOINT, environ=environ))


def test_everything_in_one_storage(s3: Any, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESPOOL_STORAGE", f"s3a://{BUCKET}/all")
    for name in ("orders", "visits"):
        mark_folders(s3, golden, f"all/checkpoints/{name}")
        files = {str(path.relative_to(golden)): path for path in golden.rglob("*") if path.is_file()}
        s3.pipe({f"{BUCKET}/all/checkpoints/{name}/{at}": path.read_bytes() for at, path in files.items()})
    assert called("checkpoint", "show", "orders")["root"] == f"s3://{BUCKET}/all/checkpoints/orders"
    with pytest.raises(CheckpointError, match=r"Pipelines that have run in s3://.*: orders, visits.*mean 'orders'"):
        here("show", "oders")
    made = called("savepoint", "create", "visits", "one", "--batch", "11")
    assert made["location"] == f"s3://{BUCKET}/all/savepoints/one"
    assert made["checkpoint"] == f"s3://{BUCKET}/all/checkpoints/visits"
    here("rewind", "orders", "--last", "1", *FLAGS)
    assert called("checkpoint", "show", "orders")["next_batch"] == 13
    assert called("checkpoint", "show", "visits")["next_batch"] == 14
    elsewhere = called("checkpoint", "show", str(golden), "--storage", str(tmp_path / "other"))
    assert elsewhere["next_batch"] == 14
    assert list(tmp_path.iterdir()) == []


# --- sinks on S3 ------------------------------------------------------------------------------------------------------


def test_a_delta_table_on_s3(run: Run, s3: Any, golden: Path, checkpoint: dict[str, str]) -> None:
    query = json.loads((golden / "metadata").read_text())["id"]
    table = f"s3://{BUCKET}/table"
    for batch in (11, 12, 13):
        noted = CommitProperties(app_transactions=[Transaction(query, batch)])
        rows = pa.table({"batch": [batch]})
        write_deltalake(table, rows, mode="append", commit_properties=noted, storage_options=_PLAIN)
    assert "would skip batches 12 to 13" in error(run(*REWIND, "--sink", f"delta:s3a://{BUCKET}/table"))
    ok(run(*REWIND, "--sink", f"delta:{table}", "--restore-sink", "--json"))
    restored = DeltaTable(table, storage_options=_PLAIN)
    assert (restored.count(), restored.transaction_version(query)) == (1, 11)
    ok(run("undo", CHECKPOINT, "--yes", "--json"))
    back = DeltaTable(table, storage_options=_PLAIN)
    assert (back.count(), back.transaction_version(query)) == (3, 13)
    assert seen(s3) == checkpoint


def test_a_file_sink_on_s3(s3: Any, checkpoint: dict[str, str]) -> None:
    """Spark knows the bucket as s3a://, the user as s3://."""
    entries = [json.dumps({"path": f"s3a://{BUCKET}/out/part-{batch}.json", "action": "add"}) for batch in range(14)]
    logs = {str(batch): [entry] for batch, entry in enumerate(entries) if batch != 9} | {"9.compact": entries[:10]}
    files = {f"_spark_metadata/{name}": "\n".join(["v1", *lines]) for name, lines in logs.items()}
    files |= {f"part-{batch}.json": "{}" for batch in range(14)}
    s3.pipe({f"{BUCKET}/out/{name}": text.encode() for name, text in files.items()})
    before = seen(s3, "out")
    here(*REWIND, "--sink", f"files:s3://{BUCKET}/out", "--restore-sink")
    gone = {"_spark_metadata/12", "_spark_metadata/13", "part-12.json", "part-13.json"}
    assert seen(s3, "out").keys() == before.keys() - gone
    here("undo", CHECKPOINT, "--yes")
    assert seen(s3, "out") == before


# --- what a user gets wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://no-such-bucket/checkpoint", "no-such-bucket"),
        (f"s3://{BUCKET}/nothing", "the folder is missing or empty"),
        ("gs://bucket/checkpoint", "gcsfs"),
        ("abfs://container/checkpoint", "adlfs"),
        ("nosuch://bucket/checkpoint", "nosuch"),
    ],
)
def test_an_inaccessible_url_is_an_error(s3: Any, url: str, message: str) -> None:
    for words in (("show", url), ("rewind", url, "--last", "1", "--yes"), ("undo", url, "--yes")):
        with pytest.raises(CheckpointError, match=message):
            here(*words)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://no-such-bucket/table", "bucket does not exist"),
        (f"s3://{BUCKET}/checkpoint", "is not a Delta table"),
        ("gs://bucket/table", "gcsfs"),
    ],
)
def test_an_inaccessible_table_is_an_error(s3: Any, checkpoint: dict[str, str], url: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        here(*REWIND, "--sink", f"delta:{url}")
    assert seen(s3) == checkpoint


def test_no_credentials(run: Run, golden: Path) -> None:
    none = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    assert "credentials" in error(run("show", CHECKPOINT, environ=none))
    words = ("rewind", str(golden), "--last", "1", "--dry-run", "--sink", f"delta:s3://{BUCKET}/table")
    assert "credentials" in error(run(*words, environ=none))


# Savepoints on S3

STORE = f"s3://{BUCKET}/savepoints"


def called(*words: str) -> Any:
    """Run a command of `respool` in this process, and return its JSON."""
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_savepoints_from_to_and_on_s3(s3: Any, checkpoint: dict[str, str], golden: Path, tmp_path: Path) -> None:
    on_s3, local = ("--savepoints", STORE), ("--savepoints", str(tmp_path / "store"))
    made = called("savepoint", "create", CHECKPOINT, "one", "--batch", "11", *on_s3)
    assert (made["batch"], made["checkpoint"]) == (11, CHECKPOINT)
    assert called("savepoint", "verify", "one", *on_s3)["ok"]
    assert [savepoint["name"] for savepoint in called("savepoint", "list", *on_s3)] == ["one"]

    # Restored, then undone.
    called("savepoint", "restore", "one", CHECKPOINT, "--yes", "--stopped", "--allow-data-loss", *on_s3)
    assert called("checkpoint", "show", CHECKPOINT, *on_s3)["next_batch"] == 12
    assert called("checkpoint", "verify", CHECKPOINT)["ok"]
    called("checkpoint", "undo", CHECKPOINT, "--yes")
    assert seen(s3) == checkpoint

    # From S3 to this disk and on, with the same bytes.
    copied = called("savepoint", "copy", "one", str(tmp_path / "store"), *on_s3)
    assert called("savepoint", "verify", "one", *local)["ok"]
    assert copied["bytes"] == made["bytes"]
    back = called("savepoint", "copy", "one", STORE, "--as", "two", *local)
    assert back["location"] == f"{STORE}/two"

    # A second query from it, on S3 and on this disk.
    forked = f"s3://{BUCKET}/fork"
    called("savepoint", "fork", "two", forked, "--allow-data-loss", *on_s3)
    shown = called("checkpoint", "show", forked, *on_s3)
    assert shown["next_batch"] == 12
    assert shown["query_id"] != made["query_id"]
    assert called("checkpoint", "verify", forked)["ok"]
    called("savepoint", "fork", "two", str(tmp_path / "fork"), "--allow-data-loss", *on_s3)
    assert called("checkpoint", "verify", str(tmp_path / "fork"))["ok"]
    called("promote", forked, CHECKPOINT, "--yes", "--stopped", "--keep-as", "old", *on_s3)
    assert called("checkpoint", "show", CHECKPOINT, *on_s3)["query_id"] == shown["query_id"]
    assert called("savepoint", "show", "old", *on_s3)["batch"] == 13

    CliRunner().invoke(app, ["savepoint", "delete", "one", "--yes", *on_s3], catch_exceptions=False)
    assert not s3.exists(f"{BUCKET}/savepoints/one")
    with pytest.raises(CheckpointError, match=r"There is no savepoint one in s3://.*Existing savepoints: two, old"):
        called("savepoint", "show", "one", *on_s3)


def test_a_savepoint_and_a_fork_that_are_cut_off_on_s3_are_not_there(
    s3: Any, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stateless = shutil.copytree(golden, tmp_path / "stateless", ignore=shutil.ignore_patterns("state"))
    _upload(s3, stateless)
    checkpoint, forked = seen(s3), f"s3://{BUCKET}/fork"
    create = ("savepoint", "create", CHECKPOINT, "one", "--savepoints", STORE)
    fork = ("savepoint", "fork", "one", forked, "--savepoints", STORE)
    for words, folder in ((create, "savepoints"), (fork, "fork")):
        cut_off = 0
        while True:
            if s3.exists(f"{BUCKET}/{folder}"):
                s3.rm(f"{BUCKET}/{folder}", recursive=True)
            with monkeypatch.context() as broken:
                _break(broken, cut_off)
                try:
                    called(*words)
                    break  # there are no more changes
                except Cut:
                    cut_off += 3
            assert seen(s3) == checkpoint
            if folder == "savepoints":
                assert not s3.exists(f"{BUCKET}/savepoints/one/manifest.json")
            else:  # nothing, what Spark does not start on, or all of it
                left = set(seen(s3, "fork"))
                saved = {file["path"] for file in called("savepoint", "show", "one", "--savepoints", STORE)["files"]}
                assert not left or "offsets/14" in left or left == saved
        assert cut_off > 6
