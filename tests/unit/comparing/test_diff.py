"""`respool diff` as far as it gets without Spark: what is found, what is refused, how far two queries have read."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from respool.checkpoint.ownership import read_run_record
from respool.checkpoint.snapshot import QueryPosition, read_position
from respool.comparing.model import ComparedOutput, Cutoff, DiffRequest
from respool.comparing.rows import then_version, unequal
from respool.errors import DiffError
from respool.operations.diff import OutputLocator, cutoff_of
from respool.pipeline.definition import Pipeline
from respool.running.claim import claim
from respool.settings import Settings
from respool.sinks.console import ConsoleSink
from respool.sinks.delta import DeltaSink
from respool.sinks.kafka import KafkaSink
from respool.sinks.protocol import Sink
from respool.storage.open import open_reader
from support.checkpoints import unpack

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOON = datetime(2025, 9, 4, 12, tzinfo=timezone.utc)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / ".respool")


@pytest.fixture
def run(respool: str, tmp_path: Path) -> Run:
    """Run `respool diff` in a folder of its own, where no Java can be found."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        environ = {**os.environ, "JAVA_HOME": str(tmp_path / "no-java")}
        command = [respool, "diff", *words]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)

    return run


def table(folder: Path, **columns: int) -> str:
    write_deltalake(str(folder), pa.table({name: [value] for name, value in columns.items()}), mode="append")
    return str(folder)


def ran(settings: Settings, name: str, sink: Sink) -> Path:
    """Leave the note of a run, as `respool run` does."""
    where = Path(settings.checkpoint_store) / name
    held = claim(str(where), Pipeline("mine", "visits", lambda events: events, sink), settings)
    assert held is not None
    held.close()
    return where


def test_a_run_notes_where_its_results_can_be_read_again(settings: Settings) -> None:
    def noted(sink: Sink) -> tuple[str, tuple[str, ...]]:
        run = read_run_record(open_reader(str(ran(settings, "one", sink))))
        assert run is not None
        return run.output, run.output_key

    assert noted(KafkaSink("out", key=("id", "window"))) == ("kafka:out", ("id", "window"))
    assert noted(DeltaSink("out", key=("id",))) == (f"delta:{settings.home}/results/out", ("id",))
    assert noted(DeltaSink("s3://bucket/out", key=("id",))) == ("delta:s3://bucket/out", ("id",))
    assert noted(ConsoleSink()) == ("", ())


def test_outputs_are_resolved_by_what_a_user_calls_them(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = table(settings.home / "results" / "counts", id=1)
    other = table(tmp_path / "other", id=1)
    where = ran(settings, "mine", DeltaSink("counts", key=("id",)))
    find = OutputLocator(settings).find
    for name in ("mine", str(where)):
        output = find(name)
        assert (output.address, output.key, output.pipeline) == (f"delta:{results}", ("id",), "mine")
        assert output.position == QueryPosition(str(where), None, None, {})
    for name in ("counts", "delta:counts", results, f"delta:{results}"):
        assert find(name) == ComparedOutput("delta", results)
    for name in ("other", "delta:other", other):
        assert find(name) == ComparedOutput("delta", other)


def test_an_unknown_output_is_refused(run: Run, settings: Settings, tmp_path: Path) -> None:
    here = table(tmp_path / "here", id=1, n=1)
    ran(settings, "prints", ConsoleSink())
    ran(settings, "soon", DeltaSink("soon", key=("id",)))
    unpack(tmp_path, "kafka").rename(tmp_path / "foreign")
    for words, message in {
        ("nowhere",): "There is nothing to compare at 'nowhere': no pipeline of that name has run",
        ("delta:nowhere",): "There is no Delta table at nowhere, nor in",
        ("delta:",): "delta: lacks its place",
        ("kafka:out",): "No broker runs for the home",
        ("prints",): "The pipeline mine on",
        ("soon",): f"There is no Delta table at {settings.home}/results/soon",
        ("foreign",): "a query that respool did not start: it does not record where the query writes",
        (here,): f"A and B are both the table {here}",
        (table(tmp_path / "there", id=1, n=1), "--since-batch", "3"): "rows of tables have none",
        (table(tmp_path / "there", id=1, n=1), "--since-version", "3"): f"{here} has no version 3; its newest is 0",
        (table(tmp_path / "there", id=1, n=1), "--since-time", "noon"): "'noon' is not a time",
        (table(tmp_path / "there", id=1, n=1), "--key", "idd"): "has no column idd. Did you mean 'id'?",
        (table(tmp_path / "there", id=1, n=1), "--output", "here"): "here already exists",
    }.items():
        result = run(here, *words)
        assert (result.returncode, result.stdout) == (1, ""), words
        assert message in result.stderr
        assert result.stderr.startswith("error: ")
        assert len(result.stderr.splitlines()) == 1  # neither a stack trace, nor the start of Spark


def test_rows_are_compared_by_the_known_key() -> None:
    topic, keyed = ComparedOutput("kafka", "t"), ComparedOutput("delta", "/a", key=("id",))
    plain, other = ComparedOutput("delta", "/b"), ComparedOutput("delta", "/c", key=("n",))
    assert DiffRequest(topic, replace(topic, place="u", key=("id",))).key_columns() == ()
    assert DiffRequest(topic, topic, key=("n",)).key_columns() == ("n",)
    assert DiffRequest(keyed, plain).key_columns() == DiffRequest(plain, keyed).key_columns() == ("id",)
    assert DiffRequest(plain, plain).key_columns() == ()
    assert (
        DiffRequest(topic, keyed).key_columns()
        == DiffRequest(plain, replace(topic, key=("id",))).key_columns()
        == ("id",)
    )
    with pytest.raises(DiffError, match=r"/a are identified by id, those of the table /c by n. .* with --key"):
        DiffRequest(keyed, other).key_columns()
    with pytest.raises(DiffError, match=r"respool must know which columns identify a row. Name them with --key"):
        DiffRequest(topic, plain).key_columns()


def test_since_a_time_means_the_version_of_a_table_at_that_time(tmp_path: Path, settings: Settings) -> None:
    a, b = (ComparedOutput("delta", str(tmp_path / name)) for name in "ab")
    for place in (a.place, a.place, b.place):
        table(Path(place), id=1)
    first, second = (
        datetime.fromtimestamp(commit["timestamp"] / 1000, timezone.utc)
        for commit in reversed(DeltaTable(a.place).history())
    )
    assert first < second

    def versions(since: Cutoff) -> tuple[int | None, int | None]:
        request = DiffRequest(a, b, since)
        return then_version(request, a), then_version(request, b)

    assert versions(cutoff_of(a, b, None, second.isoformat(), None, "UTC")) == (0, None)
    assert versions(Cutoff(time=first)) == (None, None)
    assert versions(Cutoff(time=second + timedelta(days=1))) == (1, 0)
    assert versions(Cutoff(version=1)) == (1, None)
    assert versions(Cutoff(version=0, time=first, output=b.address)) == (None, 0)


def test_the_checkpoint_says_how_far_its_query_has_read(tmp_path: Path) -> None:
    checkpoint = unpack(tmp_path, "kafka")
    batch = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    _, facts, position = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    ends = {
        (topic, int(partition)): end
        for topic, parts in json.loads(position).items()
        for partition, end in parts.items()
    }
    reached = read_position(open_reader(str(checkpoint)))
    assert (reached.batch, reached.ends) == (batch, ends)
    assert (reached.watermark, json.loads(facts)["batchWatermarkMs"]) == (None, 0)


def test_the_difference_between_two_positions_is_reported() -> None:
    ahead = QueryPosition("a", 3, NOON, {("visits", 0): 2000, ("visits", 1): 10})
    assert unequal(ahead, replace(ahead, checkpoint="b", batch=4)) is None
    behind = replace(ahead, ends={("visits", 0): 776})
    assert unequal(ahead, behind) == "B has read 1,234 records less"
    assert unequal(behind, ahead) == "A has read 1,234 records less"
    assert unequal(ahead, replace(ahead, ends={("visits", 0): 1999, ("visits", 1): 12})) == (
        "A has read 1 record that B has not, and B 2 records that A has not"
    )
    for early in (replace(ahead, watermark=None), replace(ahead, watermark=NOON - timedelta(minutes=1))):
        assert unequal(ahead, early) == "Both have read the same, but the watermark of B is earlier"
        assert unequal(early, ahead) == "Both have read the same, but the watermark of A is earlier"
