"""`respool checkpoint` as a user types it."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from respool.checkpoint.journal import apply
from respool.checkpoint.planning.request import LastBatches, RewindContext, RewindRequest, ToOffsets
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.pipeline import registry
from respool.running import claim
from respool.storage.local import LocalWriter
from support.checkpoints import unpack

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A golden checkpoint, as that of a pipeline in a home."""
    home = tmp_path / ".respool" / "checkpoints"
    home.mkdir(parents=True)
    return unpack(tmp_path, "kafka").rename(home / "mine")


@pytest.fixture
def run(respool: str, tmp_path: Path) -> Command:
    def call(*words: str, answer: str = "") -> "subprocess.CompletedProcess[str]":
        command = [respool, "checkpoint", *words]
        return subprocess.run(command, cwd=tmp_path, input=answer, capture_output=True, text=True, timeout=60)

    return call


def names(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if "_respool" not in file.parts}


def test_a_checkpoint_is_shown(run: Command, checkpoint: Path) -> None:
    shown = run("show", "mine").stdout
    newest = max(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
    for text in (
        "Query ",
        "━",
        f"▶ {newest}",
        f"{newest + 1} is next",
        "Not earlier: it is the first batch",
        "operator",
    ):
        assert text in shown
    assert len([line for line in shown.splitlines() if line.endswith("yes")]) == newest + 1
    assert run("show", str(checkpoint)).stdout.splitlines()[1:] == shown.splitlines()[1:]


def test_json_has_all_of_it(run: Command, checkpoint: Path) -> None:
    shown = json.loads(run("show", "mine", "--json").stdout)
    assert shown["query_id"] == json.loads((checkpoint / "metadata").read_text())["id"]
    assert shown["kept"] == len(shown["batches"]) == shown["newest"] + 1
    assert shown["earliest"] == {"batch": 0, "why": "it is the first batch"}
    assert shown["settings"]["shuffle partitions"] == "2"
    read = [source["records"] for batch in shown["batches"] for source in batch["sources"]]
    assert sum(read) > 0
    assert all(batch["committed"] for batch in shown["batches"])
    assert shown["operators"][0]["partitions"] == 2
    few = json.loads(run("show", "mine", "--json", "--batches", "2").stdout)
    assert few["batches"] == shown["batches"][-2:]


def test_a_rewind_asks_and_can_be_undone(run: Command, checkpoint: Path) -> None:
    before = names(checkpoint)
    plan = run("rewind", "mine", "--to-batch", "4", "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert names(checkpoint) == before
    assert "offsets/4  " in run("rewind", "mine", "--to-batch", "4", "--dry-run", "--files").stdout
    said_no = run("rewind", "mine", "--to-batch", "4", answer="n\n")
    assert said_no.returncode == 1
    assert names(checkpoint) == before
    said_yes = run("rewind", "mine", "--to-batch", "4", "--reason", "a bad deploy", answer="y\n")
    assert said_yes.returncode == 0, said_yes.stderr
    assert plan.stdout in said_yes.stdout
    assert "Batch 4 is the next to run. Undo it with: respool checkpoint undo mine" in said_yes.stdout
    assert not (checkpoint / "offsets" / "4").exists()
    [past] = json.loads(run("history", "mine", "--json").stdout)
    assert (past["to_batch"], past["reason"], past["undone"]) == (4, "a bad deploy", None)
    assert past["files"] == len(before - names(checkpoint))
    assert set(past["moved"]) == before - names(checkpoint)
    assert "a bad deploy" in run("history", "mine").stdout

    undone = run("undo", "mine", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert names(checkpoint) == before
    again = run("undo", "mine", "--yes")
    assert again.returncode == 1
    assert "has no change to undo" in again.stderr


def test_a_rewind_for_programs(run: Command, checkpoint: Path) -> None:
    plan = json.loads(run("rewind", "mine", "--last", "2", "--json", "--dry-run").stdout)
    assert plan["done"] is False
    done = json.loads(run("rewind", "mine", "--last", "2", "--json", "--yes").stdout)
    assert done["done"] is True
    assert done["run_again"] == plan["run_again"] == [done["batch"], done["batch"] + 1]
    assert {step["source"] for step in done["steps"]} == {step["source"] for step in plan["steps"]}
    asked = run("rewind", "mine", "--last", "2", "--json")
    assert asked.returncode == 2
    assert "add --yes or --dry-run" in asked.stderr


@pytest.fixture
def cut_off(checkpoint: Path) -> Path:
    """A checkpoint whose rewind was interrupted half-way."""
    files = LocalWriter(checkpoint)
    request = RewindRequest(LastBatches(2), words="--last 2")
    journal = plan_rewind(
        CheckpointSnapshot(files), request, RewindContext(now=datetime.now(timezone.utc), ours=True)
    ).journal
    (checkpoint / "_respool").mkdir()
    blocked = checkpoint / journal.moves[5].target
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    with pytest.raises(CheckpointError, match="both exist"):
        apply.apply(journal, files)
    blocked.unlink()
    return checkpoint


def test_a_rewind_that_was_interrupted_is_finished_by_the_same_command(run: Command, cut_off: Path) -> None:
    assert "A rewind of the checkpoint mine was interrupted" in run("show", "mine").stdout
    other = run("rewind", "mine", "--last", "3", "--yes")
    assert other.returncode == 1
    assert "Finish it with: respool checkpoint rewind mine --last 2, or undo it with" in other.stderr
    with pytest.raises(
        CheckpointError, match=r"A rewind of the checkpoint .* was interrupted; .* Finish it with: .* --last 2, or"
    ):
        claim.check(str(cut_off), registry.find_pipeline("visit-windows"))
    done = run("rewind", "mine", "--last", "2", "--yes")
    assert done.returncode == 0, done.stderr
    assert "was interrupted; it is finished now" in done.stderr
    assert not (cut_off / "_respool" / "pending.json").exists()
    newest = max(int(file.name) for file in (cut_off / "offsets").glob("[0-9]*"))
    assert f"{newest + 1} is next" in run("show", "mine").stdout


@pytest.mark.parametrize("version", [1, 2])
def test_a_rewind_to_offsets_that_was_interrupted_is_finished_however_its_json_is_spelled(
    version: int, run: Command, cut_off: Path
) -> None:
    pending = cut_off / "_respool" / "pending.json"
    journal = json.loads(pending.read_text())
    journal["request"] = """--to-offsets '{"visits":{"0":120,"1":95}}'"""
    journal["asked"] = RewindRequest(ToOffsets({("visits", 0): 120, ("visits", 1): 95})).identity().__dict__
    if version == 1:
        journal = {name: value for name, value in journal.items() if name != "asked"} | {"version": 1}
    pending.write_text(json.dumps(journal))
    words = ("--yes", "--accept-foreign-journal")
    other = run("rewind", "mine", "--to-offsets", '{"visits":{"0":121,"1":95}}', *words)
    assert other.returncode == 1
    assert "A rewind of the checkpoint mine was interrupted" in other.stderr
    done = run("rewind", "mine", "--to-offsets", '{ "visits": {"1": 95, "0": 120} }', *words)
    assert done.returncode == 0, done.stderr
    assert "was interrupted; it is finished now" in done.stderr
    assert not pending.exists()


def test_an_interrupted_rewind_is_undone(run: Command, cut_off: Path, tmp_path: Path) -> None:
    done = run("undo", "mine", "--yes")
    assert done.returncode == 0, done.stderr
    assert names(cut_off) == names(unpack(tmp_path, "kafka"))


def test_old_rewinds_are_purged(run: Command, checkpoint: Path) -> None:
    run("rewind", "mine", "--last", "2", "--yes")
    assert "No change is that old." in run("purge", "mine", "--yes").stdout
    assert list((checkpoint / "_respool" / "aside").iterdir())
    assert run("purge", "mine", "--older-than", "0s", "--yes").returncode == 0
    assert not list((checkpoint / "_respool" / "aside").iterdir())
    assert "was purged" in run("undo", "mine", "--yes").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rewind", "mine"), "name one of --to-batch, --to-time, --to-offsets and --last"),
        (("rewind", "mine", "--to-batch", "1", "--last", "1"), "name one of"),
        (("rewind", "mine", "--to-offsets", "{}"), "expected JSON such as"),
        (("rewind", "mine", "--to-offsets", "visits"), "expected JSON such as"),
        (("rewind", "mine", "--to-offsets", '{"visits":{"0":Infinity}}'), "expected JSON such as"),
        (("rewind", "mine", "--to-offsets", '{"visits":{"0":1.5}}'), "expected JSON such as"),
        (("rewind", "mine", "--to-offsets", '{"visits":{"0":"1_0"}}'), "expected JSON such as"),
        (("rewind", "mine", "--to-offsets", "[" * 50_000), "expected JSON such as"),
        (("rewind", "mine", "--to-time", "yesterday"), "'yesterday' is not a time"),
        (("rewind", "mine", "--to-time", "2024-01-01", "--timezone", "Mars"), "Mars"),
        (("rewind", "mine", "--to-batch", "2", "--sink", "paper:x"), "paper"),
        (("rewind", "mine", "--to-batch", "999"), "There is no batch 999"),
        (("show", "mine", "--batches", "few"), "expected a number above 0, or all"),
        (("show", "mine", "--batches", "9" * 5_000), "expected a number above 0, or all"),
        (("show", "mime"), "Did you mean 'mine'?"),
        (("show", "/no/such/folder"), "There is no checkpoint /no/such/folder"),
        (("show", "."), "expected the file metadata and the folders offsets and commits"),
        (("show", "nosuch://bucket/x"), "Name a folder, or a URL"),
        (("undo", "mine", "--yes"), "has no change to undo"),
        (("purge", "mine", "--older-than", "long"), "long"),
        (("verify", "."), "checkpoint"),
    ],
)
def test_wrong_input_is_reported_and_changes_nothing(
    words: tuple[str, ...], message: str, run: Command, checkpoint: Path
) -> None:
    before = names(checkpoint)
    done = run(*words)
    assert done.returncode != 0
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert names(checkpoint) == before


def test_nothing_here_starts_a_jvm_or_loads_spark(tmp_path: Path, checkpoint: Path) -> None:
    script = (
        "import sys; sys.argv = ['respool', 'checkpoint', *sys.argv[1:]]\n"
        "from respool.cli.app import app\n"
        "try: app()\n"
        "finally: assert not {'pyspark', 'fsspec', 'deltalake', 'pyarrow', 'confluent_kafka'} & set(sys.modules)\n"
    )
    for words in (("show",), ("verify",), ("rewind", "--last", "1", "--dry-run"), ("history",)):
        command = [sys.executable, "-c", script, words[0], str(checkpoint), *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert "AssertionError" not in done.stderr
        assert done.returncode == 0, done.stderr


def test_a_time_is_read_in_the_zone_of_respool_toml_unless_another_is_given(
    run: Command, checkpoint: Path, tmp_path: Path
) -> None:
    batches = json.loads(run("show", "mine", "--json").stdout)["batches"]
    planned = datetime.fromisoformat(batches[5]["planned"].replace("Z", "+00:00"))
    in_paris = planned.astimezone(ZoneInfo("Europe/Paris")).replace(tzinfo=None).isoformat()
    in_utc = planned.replace(tzinfo=None).isoformat()

    def batch(*words: str) -> int:
        done = run("rewind", "mine", "--dry-run", "--json", *words)
        assert done.returncode == 0, done.stderr
        number: int = json.loads(done.stdout)["batch"]
        return number

    assert batch("--to-time", in_utc) == 5
    (tmp_path / "respool.toml").write_text('timezone = "Europe/Paris"\n')
    assert batch("--to-time", in_paris) == 5
    assert batch("--to-time", in_utc, "--timezone", "UTC") == 5
    assert batch("--to-time", f"{in_utc}Z") == 5
    refused = run("rewind", "mine", "--dry-run", "--to-time", "2025-10-26T02:30:00")
    assert refused.returncode == 1
    assert "occurs twice in Europe/Paris" in refused.stderr
    wrong = run("rewind", "mine", "--dry-run", "--to-time", in_utc, "--timezone", "Mars/Olympus")
    assert wrong.returncode == 1
    assert "Mars/Olympus" in wrong.stderr
