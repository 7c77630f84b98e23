"""Why a rewind is refused, and what sources no longer have."""

from datetime import datetime, timezone
from os import utime
from pathlib import Path
from typing import Any

import pytest

from respool.checkpoint.journal.steps import Move
from respool.checkpoint.planning.refusals import at_sink, losses, notes, open_files, refusals, running
from respool.checkpoint.planning.request import KafkaRetention, RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.sources import Availability, Inputs, SourceLogTrim, availability
from respool.delta.restore import RestoreTable
from respool.errors import Refusal
from respool.format.positions import SourceRange, reading
from respool.sinks.address import ReplayOutcome
from respool.storage.local_lock import Process
from support import small_checkpoint

TABLE = RestoreTable("/tables/a", 7, 3, "an-id", 9, 4)
NONE = Availability((), ())


def request(**more: Any) -> RewindRequest:
    return RewindRequest(ToBatch(1), **more)


def world(seconds: float = 1000, **more: Any) -> RewindContext:
    return RewindContext(now=datetime.fromtimestamp(seconds, timezone.utc), **more)


def checkpoint(root: Path, committed: int = 3, **ages: float) -> Any:
    result = small_checkpoint.kafka(root, 3, committed)
    for file in root.rglob("*"):
        if file.is_file():
            utime(file, (ages.get(file.name, 900), ages.get(file.name, 900)))
    return result


def text(given: Any) -> str:
    return " | ".join(f"{refusal.why} {refusal.way_out}" for refusal in given)


WRITER = Process(7, "java", "offsets/3", True)
READER = Process(8, "tail", "offsets/3", False)


def test_a_query_that_runs_is_refused_whatever_is_confirmed(tmp_path: Path) -> None:
    given = running(checkpoint(tmp_path), request(stopped=True), world(runs="a host", ours=True), [])
    assert text(given) == "The query runs: a host. Stop it first."


def test_a_query_of_respool_that_does_not_run_is_not_running(tmp_path: Path) -> None:
    assert running(checkpoint(tmp_path, committed=2), request(), world(ours=True, processes=(WRITER,)), []) == []


def test_a_writing_process_outweighs_the_confirmation_and_a_reading_process_does_not(tmp_path: Path) -> None:
    now = world(processes=(WRITER, READER))
    both = text(running(checkpoint(tmp_path), request(), now, []))
    assert "process 7" in both
    assert "process 8" in both
    confirmed = text(running(checkpoint(tmp_path), request(stopped=True), now, []))
    assert "process 7" in confirmed
    assert "process 8" not in confirmed
    assert open_files(request(stopped=True), now) == [f"Though the query has ended, {READER.text()}."]
    assert open_files(request(), now) == []
    assert open_files(request(stopped=True), world(ours=True, processes=(READER,))) == []


def test_a_batch_without_a_commit_may_run_whatever_its_age(tmp_path: Path) -> None:
    given = running(checkpoint(tmp_path, committed=2), request(), world(), [])
    assert len(given) == 1
    assert "Batch 2 is planned but not committed" in given[0].why
    assert running(checkpoint(tmp_path / "b", committed=2), request(stopped=True), world(), []) == []
    (first,) = running(checkpoint(tmp_path / "c", committed=0), request(), world(), [])
    assert "Batch 2 is planned but not committed" in first.why


@pytest.mark.parametrize(("now", "refused"), [(959.5, True), (960, False), (961, False), (890, True)])
def test_a_checkpoint_counts_as_quiet_after_60_seconds(tmp_path: Path, now: float, refused: bool) -> None:
    given = running(checkpoint(tmp_path), request(), world(now), [])
    assert bool(given) is refused
    if refused:
        seconds = max(now - 900, 0)
        assert f"written to {seconds:.0f} seconds ago" in given[0].why


def test_files_that_would_move_count_too(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    utime(tmp_path / "state/0/0/1.delta", (990, 990))
    assert running(place, request(), world(), []) == []
    assert running(place, request(), world(), [Move("state/0/0/1.delta", "x", 1)])
    for older in ("offsets/1", "commits/1"):
        utime(tmp_path / older, (990, 990))
    assert running(place, request(), world(), []) == []
    utime(tmp_path / "commits/2", (990, 990))
    assert running(place, request(), world(), [])
    utime(tmp_path / "commits/2", (900, 900))
    utime(tmp_path / "offsets/2", (990, 990))
    assert running(place, request(), world(), [])


def test_a_first_batch_without_a_commit_may_run(tmp_path: Path) -> None:
    (refusal,) = running(small_checkpoint.kafka(tmp_path, 1, 0), request(), world(10**10), [])
    assert "Batch 0 is planned but not committed" in refusal.why


def test_a_checkpoint_without_files_is_quiet(tmp_path: Path) -> None:
    assert running(small_checkpoint.kafka(tmp_path, 0), request(), world(), []) == []


@pytest.mark.parametrize(
    ("replay", "wanted", "refused"),
    [
        (None, {}, False),
        (ReplayOutcome("s", "t"), {}, False),
        (ReplayOutcome("s", "t", "why", "remedy"), {}, True),
        (ReplayOutcome("s", "t", "why", "remedy", TABLE), {}, True),
        (ReplayOutcome("s", "t", "why", "remedy", TABLE), {"restore_sink": True}, False),
        (ReplayOutcome("s", "t", "why", "remedy"), {"restore_sink": True}, True),
    ],
)
def test_a_sink_that_would_not_take_the_batches(
    replay: ReplayOutcome | None, wanted: dict[str, bool], refused: bool
) -> None:
    given = at_sink(request(**wanted), world(replay=replay))
    assert given == ([Refusal("why", "remedy")] if refused else [])


def test_a_blocked_sink_without_a_remedy_has_a_way_out() -> None:
    assert at_sink(request(), world(replay=ReplayOutcome("s", "t", "why"))) == [
        Refusal("why", "Write to another location.")
    ]


def test_all_reasons_are_given(tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    lost = Availability((Refusal("lost", "way"),), ())
    blocked = ReplayOutcome("s", "t", "blocked", "remedy")
    now = world(runs="here", replay=blocked)
    assert [refusal.why for refusal in refusals(place, request(), now, lost, [])] == [
        "The query runs: here.",
        "lost",
        "blocked",
    ]
    assert losses(request(allow_data_loss=True), lost) == ()
    assert list(losses(request(), lost)) == [Refusal("lost", "way")]


def test_a_lost_id_is_refused_unless_a_new_id_is_requested(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, 1)
    (tmp_path / "metadata").unlink()
    place = small_checkpoint.written(tmp_path, {})
    assert "metadata" in text(refusals(place, request(), world(ours=True), NONE, []))
    assert refusals(place, request(new_query_id=True), world(ours=True), NONE, []) == []


def test_notes_say_what_moves_and_what_is_planned_again() -> None:
    available = Availability((), ("a note",))
    assert notes(request(), world(), available, {}, {"0": SourceLogTrim(("a",), False)}) == ["a note"]
    result = notes(request(same_range=True), world(), available, {"b": "B", "a": "A"}, {"0": SourceLogTrim((), True)})
    assert result[0].startswith("A. ")
    assert result[1].startswith("B. ")
    assert "compacted" in result[2]
    assert result[3:] == ["Later batches are planned again.", "a note"]


# What sources have


def kafka(start: int, end: int) -> SourceRange:
    return reading("0", {"visits": {"0": start}}, {"visits": {"0": end}})


@pytest.mark.parametrize(
    ("first", "following", "why"),
    [
        (10, 20, None),
        (0, 30, None),
        (11, 20, "Kafka no longer has 1 of the records of visits-0"),
        (12, 20, "Kafka no longer has 2 of the records of visits-0"),
        (0, 19, "visits-0 ends at offset 19"),
    ],
)
def test_records_that_kafka_has(first: int, following: int, why: str | None) -> None:
    kept = KafkaRetention({("visits", 0): first}, {("visits", 0): following})
    result = availability([kafka(10, 20)], {}, kept)
    assert result.notes == ()
    if why is None:
        assert result.refusals == ()
    else:
        assert result.refusals[0].why.startswith(why)


def test_each_partition_of_each_source_is_checked() -> None:
    start, end = ({"a-b": {"0": offset}, "c": {"0": offset}} for offset in (1, 2))
    kept = KafkaRetention(dict.fromkeys([("a-b", 0), ("c", 0)], 2), dict.fromkeys([("a-b", 0), ("c", 0)], 2))
    result = availability([reading("0", start, end), reading("1", start, end)], {}, kept)
    assert [refusal.why.split(":")[0].split()[-1] for refusal in result.refusals] == ["a-b-0", "c-0", "a-b-0", "c-0"]


def test_a_partition_that_kafka_does_not_have() -> None:
    (refusal,) = availability([kafka(10, 20)], {}, KafkaRetention({}, {})).refusals
    assert "Kafka has no partition visits-0" in refusal.why


def test_a_kafka_that_was_not_asked_is_noted() -> None:
    result = availability([kafka(10, 20)], {}, None)
    assert result.refusals == ()
    assert "Whether Kafka still has these records was not checked" in result.notes[0]
    assert availability([], {}, None).notes == ()


def files(start: int, end: int) -> SourceRange:
    return reading("0", {"logOffset": start}, {"logOffset": end})


def test_input_files_that_are_gone_are_counted(tmp_path: Path) -> None:
    there, gone, other = (str(tmp_path / name) for name in "abc")
    Path(there).write_text("")
    single = availability([files(1, 3)], {"0": Inputs((there,))}, None)
    assert (single.refusals, single.notes) == ((), ("1 input file is read again.",))
    (refusal,) = availability([files(1, 3)], {"0": Inputs((there, gone))}, None).refusals
    assert f"Input files are gone: 1 of 2: {gone}. " in refusal.why
    (refusal,) = availability([files(1, 3)], {"0": Inputs((there, gone, other))}, None).refusals
    assert f"2 of 3: {gone} …" in refusal.why
    assert availability([files(1, 3)], {"0": Inputs((there, there))}, None).notes == ("2 input files are read again.",)
    assert availability([files(3, 3)], {"0": Inputs()}, None) == NONE


def test_input_files_that_are_unknown_or_cannot_be_checked_are_noted() -> None:
    (note,) = availability([files(1, 3)], {}, None).notes
    assert "The files that it has read since are not recorded" in note
    unchecked = availability([files(1, 3)], {"0": Inputs(("hdfs://a/b",))}, None)
    assert unchecked.refusals == ()
    assert "1 of the input files could not be checked, such as hdfs://a/b" in unchecked.notes[1]
    assert "does not name all files" in availability([files(1, 3)], {"0": Inputs((), True)}, None).notes[0]
    assert availability([files(3, 3)], {"0": Inputs((), True)}, None).notes == ()


def test_a_source_that_cannot_be_replayed_is_refused() -> None:
    (refusal,) = availability([reading("0", 3, 5)], {}, None).refusals
    assert "cannot be replayed" in refusal.why
    still = availability([reading("0", 5, 5)], {}, None)
    assert still.refusals == ()
    assert "whether it can continue at 5" in still.notes[0]


@pytest.mark.parametrize(
    ("start", "end", "kind", "note"),
    [
        (3, 5, "rate", "rate source"),
        ({"offset": 3, "timestamp": 0}, {"offset": 5, "timestamp": 0}, None, "rate-micro-batch source"),
        ({"reservoirVersion": 3}, {"reservoirVersion": 5}, None, "Delta table"),
        ("a", "b", None, "unknown kind"),
    ],
)
def test_notes_about_other_sources(start: Any, end: Any, kind: Any, note: str) -> None:
    result = availability([reading("0", start, end, kind)], {}, None)
    assert result.refusals == ()
    assert note in result.notes[0]
    assert availability([reading("0", end, end, kind)], {}, None) == NONE
