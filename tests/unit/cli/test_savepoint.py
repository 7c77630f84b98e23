"""`respool savepoint` and `respool promote` as a user types them. No Spark, no broker."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.checkpoints import unpack
from support.small_disk import small_disk

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A golden checkpoint, as that of a pipeline in a home."""
    home = tmp_path / ".respool" / "checkpoints"
    home.mkdir(parents=True)
    return unpack(tmp_path, "changelog-purged").rename(home / "mine")


@pytest.fixture
def run(respool: str, tmp_path: Path) -> Command:
    def call(*words: str, answer: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run([respool, *words], cwd=tmp_path, input=answer, capture_output=True, text=True, timeout=60)

    return call


def everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def ok(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fails(done: "subprocess.CompletedProcess[str]", *expected: str) -> None:
    assert done.returncode == 1, done.stdout + done.stderr
    text = " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in text
    for words in expected:
        assert words in text


def test_a_savepoint_from_its_making_to_its_end(run: Command, checkpoint: Path) -> None:
    assert "No savepoint in" in ok(run("savepoint", "list"))
    made = json.loads(ok(run("savepoint", "create", "mine", "one", "--reason", "before the upgrade", "--json")))
    assert made["checkpoint"] == str(checkpoint)
    listed = ok(run("savepoint", "list")).splitlines()
    assert listed[1].split()[0] == "one"
    assert "before the upgrade" in listed[1]
    shown = ok(run("savepoint", "show", "one"))
    for text in (f"Batch        {made['batch']}", made["query_id"], "Watermark", "Source 0", "before the upgrade"):
        assert text in shown
    assert "as they were saved. A query can start from it." in ok(run("savepoint", "verify", "one"))
    timeline = ok(run("checkpoint", "show", "mine"))
    assert f"one at batch {made['batch']}" in timeline
    assert f"◆ one, {made['batch']}" in timeline
    copied = json.loads(ok(run("savepoint", "copy", "one", "elsewhere", "--as", "kept", "--json")))
    assert "as they were saved" in ok(run("savepoint", "verify", copied["location"]))
    assert run("savepoint", "delete", "one", answer="n\n").returncode == 1
    assert "Savepoint one is deleted." in ok(run("savepoint", "delete", "one", "--yes"))
    assert "No savepoint in" in ok(run("savepoint", "list"))
    assert "one at batch" not in ok(run("checkpoint", "show", "mine"))


def test_a_restore_is_planned_confirmed_applied_and_undone(run: Command, checkpoint: Path) -> None:
    before = everything(checkpoint)
    ok(run("savepoint", "create", "mine", "one", "--batch", "11"))
    refused = run("savepoint", "restore", "one", "mine", "--stopped", "--dry-run")
    assert refused.returncode == 1  # the files that it read were on another machine
    assert "files, 2 input files, log 11 → log 13" in refused.stdout
    assert "Input files are gone: 2 of 2: " in refused.stdout
    restore = ("savepoint", "restore", "one", "mine", "--stopped", "--allow-data-loss")
    planned = ok(run(*restore, "--dry-run"))
    assert "Next batch   12, in place of 14" in planned
    (checkpoint / "commits" / "13").touch()
    fails(run("savepoint", "restore", "one", "mine"), "was written to", "--stopped", "Nothing was changed")
    assert run(*restore, answer="n\n").returncode == 1
    assert everything(checkpoint) == before
    assert "undo mine" in ok(run(*restore, answer="y\n"))
    assert "12 is next" in ok(run("checkpoint", "show", "mine"))
    assert "restore" in ok(run("checkpoint", "history", "mine"))
    ok(run("checkpoint", "undo", "mine", "--yes"))
    now = {path: data for path, data in everything(checkpoint).items() if not path.startswith("_respool/")}
    assert now == before


def test_a_fork_says_how_to_run_it_and_whose_it_is(run: Command, checkpoint: Path, tmp_path: Path) -> None:
    ok(run("savepoint", "create", "mine", "one"))
    ok(run("savepoint", "fork", "one", "second", "--dry-run"))
    assert not (tmp_path / "second").exists()
    assert "let it write to a place of its own" in ok(run("savepoint", "fork", "one", "second"))
    assert f"of {checkpoint}, from the savepoint one at batch 13" in ok(run("checkpoint", "show", "second"))
    promoted = ok(run("promote", "second", "mine", "--yes", "--stopped", "--keep-as", "old"))
    assert "Batch 14 is the next to run" in promoted
    assert json.loads(ok(run("savepoint", "list", "--json")))[-1]["name"] == "old"
    fails(run("promote", "mine", "second", "--yes", "--stopped"), "is not a fork", "Nothing was changed")
    # The savepoint belongs to another query, and is not on the timeline of the present query.
    shown = ok(run("checkpoint", "show", "mine"))
    assert "old at batch 13 of the query" in shown
    assert "◆ old" not in shown


def test_wrong_input_is_reported_and_changes_nothing(run: Command, checkpoint: Path, tmp_path: Path) -> None:
    ok(run("savepoint", "create", "mine", "monday"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    before = everything(tmp_path)
    fails(run("savepoint", "create", "mine", "a/b"), "Invalid savepoint name 'a/b'", "Nothing was changed")
    fails(run("savepoint", "create", "mine", ""), "Invalid savepoint name")
    fails(run("savepoint", "create", "mine", "monday"), "The savepoint monday already exists")
    fails(run("savepoint", "create", "nine", "new"), "There is no checkpoint nine", "Did you mean 'mine'?")
    fails(run("savepoint", "create", "mine", "new", "--batch", "3"), "Batch 3 cannot be saved", "Available batches")
    fails(run("savepoint", "create", "mine", "new", "--batch", "99"), "is not committed; the newest is 13")
    fails(run("savepoint", "show", "munday"), "There is no savepoint munday", "Did you mean 'monday'?")
    fails(run("savepoint", "restore", "no", "mine", "--yes"), "There is no savepoint no in", "monday")
    fails(run("savepoint", "verify", "elsewhere/x"), "There is no savepoint at", "manifest.json")
    fails(run("savepoint", "fork", "monday", "taken"), "taken is not empty", "name a new one", "Nothing was changed")
    fails(run("savepoint", "fork", "monday", str(checkpoint)), "is not empty")
    fails(run("savepoint", "delete", "tuesday", "--yes"), "There is no savepoint tuesday")
    fails(run("promote", "taken", "mine", "--yes"), "has no committed batch")
    fails(run("promote", "nowhere", "mine", "--yes"), "There is no checkpoint nowhere")
    assert run("promote", "mine", "mine", "--yes").returncode == 2
    assert run("savepoint", "restore", "monday", "mine", "--json").returncode == 2
    assert everything(tmp_path) == before


def test_a_run_from_a_savepoint_needs_a_folder_and_an_output_of_its_own(run: Command, tmp_path: Path) -> None:
    for words, message in (
        (["--console", "--sink-suffix", "-v2"], "leave --sink-suffix out"),
        (["--from-savepoint", "one", "--sink-suffix", "-v2"], "name it with --checkpoint"),
        (["--allow-data-loss"], "it goes with --from-savepoint"),
        (["--from-savepoint", "one", "--checkpoint", "fork"], "an output of its own with --sink-suffix"),
    ):
        wrong = run("run", "sessions", *words)
        assert wrong.returncode == 2
        assert message in " ".join(wrong.stderr.split())
    assert everything(tmp_path) == {}


def test_a_damaged_savepoint_is_reported_by_verify_and_not_restored(run: Command, checkpoint: Path) -> None:
    made = json.loads(ok(run("savepoint", "create", "mine", "one", "--json")))
    before = everything(checkpoint)
    file = next(Path(made["data"]).rglob("*.changelog"))
    file.write_bytes(file.read_bytes() + b"x")
    checked = run("savepoint", "verify", "one")
    assert checked.returncode == 3
    assert "bytes, expected" in checked.stdout
    fails(run("savepoint", "restore", "one", "mine", "--yes", "--stopped"), "is damaged", "Nothing was changed")
    assert {path: data for path, data in everything(checkpoint).items() if path != "_respool/lock"} == before


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 KiB, which is less than a savepoint needs."""
    with small_disk(tmp_path / "disk", "32k") as folder:
        yield folder


def test_a_full_disk_leaves_no_savepoint_no_fork_and_a_checkpoint_as_it_was(
    run: Command, checkpoint: Path, disk: Path
) -> None:
    ok(run("savepoint", "create", "mine", "one"))
    before = everything(checkpoint)
    full = ("No space left on device", "Free some space")
    fails(run("savepoint", "create", "mine", "two", "--savepoints", str(disk / "store")), *full)
    assert set(everything(disk)) == set()
    fails(run("savepoint", "copy", "one", str(disk / "store")), *full)
    assert set(everything(disk)) == set()
    fails(run("savepoint", "fork", "one", str(disk / "fork")), *full)
    assert set(everything(disk)) == set()
    fails(run("savepoint", "restore", "one", str(disk / "restored"), "--yes", "--stopped"), *full)
    assert set(everything(disk)) <= {"restored/_respool/lock"}
    assert everything(checkpoint) == before


def test_no_jvm_and_no_kafka_client_is_loaded_to_make_a_savepoint(checkpoint: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from respool.cli.app import app\n"
        "try: app(['savepoint', 'create', 'mine', 'one'])\n"
        "except SystemExit as end: assert not end.code\n"
        "print([name for name in ('pyspark', 'fsspec', 'deltalake', 'confluent_kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
