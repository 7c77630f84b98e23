"""What the plans of a restore, a fork and a promotion say and do; on small checkpoints."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from respool.checkpoint.journal import history
from respool.checkpoint.journal.steps import Journal, LogEnds, Move, Prune, Replace
from respool.checkpoint.ownership import FORK, RUN, ForkRecord, RunRecord
from respool.checkpoint.planning.request import KafkaRetention, RewindContext, RewindRequest, ToBatch
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.format.model import SourceOffsets
from respool.format.positions import PartitionRange
from respool.savepoint.extras import NotIncluded
from respool.savepoint.manifest import SavedFile, SavepointManifest
from respool.savepoint.planning import PlannedInstall
from respool.savepoint.promote import plan_promote
from respool.savepoint.restore import plan_fork, plan_restore, require_new
from respool.savepoint.store import StoredSavepoint
from respool.sinks.registry import SinkPosition
from respool.storage.local_lock import Process
from support import small_checkpoint
from support.small_checkpoint import commit, offsets, written

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
WORLD = RewindContext(now=NOW, ours=True)
QUERY = "8491b5b1-af43-4266-97d6-99e64b7a775c"
OTHER = "00000000-0000-4000-8000-000000000001"
NOT_ASKED = "Whether Kafka still has these records was not checked. Name a broker with --bootstrap-servers."
AHEAD = (
    "The savepoint is ahead of the checkpoint: the records between them are skipped. The state in the savepoint "
    "includes them."
)
UNKNOWN = (
    "Source 0 reads files. The files that it has read since are not recorded, so it was not checked whether they still "
    "exist: Spark skips missing files without an error."
)
CODE: dict[str, Any] = {"code": {"f": "1"}, "settings": {"watermark": "1 minute"}}
PIPELINE = RunRecord("visits", "visits", "topic a", "writes again", output="kafka:a", fingerprint=CODE)


def kept(first: int = 0, following: int = 70) -> KafkaRetention:
    """What Kafka has of the topic."""
    return KafkaRetention({("visits", 0): first}, {("visits", 0): following})


def noted(facts: Any) -> str:
    return json.dumps(facts.to_json() if isinstance(facts, ForkRecord) else asdict(facts))


def savepoint(
    root: Path, batch: int = 1, files: Mapping[str, str | bytes] | None = None, end: Any = None, **more: Any
) -> StoredSavepoint:
    """A savepoint of a query after a batch; by default of `small_checkpoint.kafka`."""
    data = root / "savepoint" / "20260102T030405Z-0123456789ab"
    there = written(data, files) if files else small_checkpoint.kafka(data, batch + 1)
    paths = [f"{folder}/{name}" if folder else name for folder, names in there.folders.items() for name in names]
    facts: dict[str, Any] = {
        "name": "one",
        "created": NOW,
        "reason": None,
        "data": data.name,
        "checkpoint": str(root / "c"),
        "query_id": QUERY,
        "batch": batch,
        "planned_ms": 0,
        "watermark_ms": 1234,
        "sources": (SourceOffsets("0", end or {"visits": {"0": 10 * (batch + 1)}}),),
        "conf": {},
        "operators": 1,
        "files": tuple(SavedFile(path, (data / path).stat().st_size, "0" * 64) for path in paths),
        "sink": SinkPosition("console"),
        "run": None,
        "spark": None,
        "respool": "1",
    }
    return StoredSavepoint(str(data.parent), SavepointManifest(**(facts | more)))


def restored(
    source: StoredSavepoint,
    there: CheckpointSnapshot | None,
    where: Path,
    world: RewindContext = WORLD,
    other_query: bool | None = None,
    **more: Any,
) -> PlannedInstall:
    request = RewindRequest(ToBatch(source.manifest.next_batch), words="one", **more)
    words = {} if other_query is None else {"other_query": other_query}
    return plan_restore(source, there, str(where), request, world, **words)


def forked(source: StoredSavepoint, where: Path, world: RewindContext = WORLD, **more: Any) -> PlannedInstall:
    return plan_fork(source, str(where), RewindRequest(ToBatch(source.manifest.next_batch), words="one", **more), world)


def replaced(plan: PlannedInstall) -> dict[str, tuple[str | None, str | None]]:
    """The files that are written by steps: what was in them, and what will be."""
    return {step.path: (step.old, step.new) for step in plan.journal.steps if isinstance(step, Replace)}


def records(plan: PlannedInstall) -> list[tuple[int, int]]:
    return [(part.start, part.end) for reading in plan.readings for part in reading.parts]


# Restores


def test_a_restore_says_what_moves_and_what_is_read_again(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(tmp_path / "c")
    saved = savepoint(tmp_path, reason="x", checkpoint=str(tmp_path / "gone"))
    plan = restored(saved, there, tmp_path / "c", reason="why")
    assert (plan.batch, plan.newest, plan.watermark_ms) == (2, 4, 1234)
    assert records(plan) == [(20, 50)]
    assert (plan.readings[0].records, plan.readings[0].skipped) == (30, ())
    assert (plan.refusals, plan.notes) == ((), (NOT_ASKED,))
    aside = [move for move in plan.journal.moves if move.target.startswith("_respool/aside/")]
    assert len(aside) == plan.aside == 16  # all that is there
    assert plan.aside_size == sum((tmp_path / "c" / move.source).stat().st_size for move in aside)
    assert plan.install_set.size == saved.manifest.size
    journal = plan.journal
    assert (journal.operation, journal.of, journal.request, journal.reason) == ("restore", None, "one", "why")
    assert (journal.batch, journal.same_range, journal.started) == (2, False, NOW)
    assert (journal.newest, journal.left, journal.query_ids) == (LogEnds(4, 4), LogEnds(1, 1), (QUERY,))
    name = journal.id
    assert [step.source for step in journal.steps if isinstance(step, Move)][-7:] == [
        f"_respool/staged/{name}/{file.path}" for file in saved.manifest.files
    ]
    assert journal.steps[16:18] == (Prune("state"), Prune("sources"))
    assert replaced(plan) == {}


def test_what_kafka_has_beyond_the_checkpoint_is_not_read_again(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(tmp_path / "c")
    world = replace(WORLD, kept=kept())
    plan = restored(savepoint(tmp_path), there, tmp_path / "c", world)
    assert (records(plan), plan.notes) == ([(20, 50)], ())


def test_a_lost_checkpoint_reads_all_that_kafka_has(tmp_path: Path) -> None:
    saved = savepoint(tmp_path)
    plan = restored(saved, None, tmp_path / "c", replace(WORLD, kept=kept()))
    assert records(plan) == [(20, 70)]
    assert (plan.newest, plan.aside, plan.notes, plan.refusals) == (-1, 0, (), ())
    assert plan.journal.newest == LogEnds(-1, -1)
    plan = restored(saved, None, tmp_path / "c")
    assert (plan.readings[0].start, plan.readings[0].end, plan.readings[0].skipped) == ("visits[0:20]",) * 2 + ((),)
    assert plan.notes == (NOT_ASKED,)


def test_nothing_runs_on_a_checkpoint_that_is_lost(tmp_path: Path) -> None:
    saved = savepoint(tmp_path)
    for runs in (None, "process 7"):
        assert restored(saved, None, tmp_path / "c", RewindContext(now=NOW, runs=runs)).refusals == ()


def test_records_that_are_lost_and_a_query_that_runs_stop_a_restore_together(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(tmp_path / "c", more={"metadata": f'{{"id":"{OTHER}"}}'})
    world = RewindContext(now=NOW, runs="process 7", kept=kept(first=25))
    plan = restored(savepoint(tmp_path), there, tmp_path / "c", world)
    assert [refusal.why for refusal in plan.refusals] == [
        "The query runs: process 7.",
        "Kafka no longer has 5 of the records of visits-0: batches would read from offset 20, its first is 25.",
        f"The savepoint belongs to the query {QUERY}, the checkpoint to {OTHER}.",
    ]


def test_a_restore_is_refused_while_what_moves_was_just_written(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(tmp_path / "c")
    world = RewindContext(now=datetime.now(timezone.utc), kept=kept())
    plan = restored(savepoint(tmp_path), there, tmp_path / "c", world)
    assert ["The checkpoint was written to" in refusal.why for refusal in plan.refusals] == [True]


def test_a_savepoint_of_another_query_has_to_be_meant(tmp_path: Path) -> None:
    ids = (OTHER, "00000000-0000-4000-8000-000000000002", "00000000-0000-4000-8000-000000000003")
    past = Journal("ID", "rewind", None, "", None, NOW, 1, False, LogEnds(4, 4), LogEnds(4, 4), (), query_ids=ids[:2])
    more: dict[str, str | bytes] = {"metadata": f'{{"id":"{ids[2]}"}}', history.path_of(past): history.text_of(past)}
    there = small_checkpoint.kafka(tmp_path / "c", more=more)
    saved = savepoint(tmp_path)
    plan = restored(saved, there, tmp_path / "c")
    assert [refusal.why for refusal in plan.refusals] == [
        f"The savepoint belongs to the query {QUERY}, the checkpoint to {ids[2]}."
    ]
    assert plan.journal.query_ids == (*ids, QUERY)
    assert restored(saved, there, tmp_path / "c", other_query=True).refusals == ()
    # An id that the query had before is its own.
    own = savepoint(tmp_path, query_id=ids[1])
    plan = restored(own, there, tmp_path / "c")
    assert plan.refusals == ()
    assert plan.journal.query_ids == (ids[0], ids[2], ids[1])


def test_a_checkpoint_that_has_run_no_batch_or_lost_its_id_may_be_of_any_query(tmp_path: Path) -> None:
    empty = written(tmp_path / "a", {"metadata": f'{{"id":"{OTHER}"}}'})
    saved = savepoint(tmp_path)
    plan = restored(saved, empty, tmp_path / "a", replace(WORLD, kept=kept()))
    assert (plan.refusals, plan.newest, plan.journal.newest) == ((), -1, LogEnds(-1, -1))
    assert records(plan) == [(20, 70)]
    lost = small_checkpoint.kafka(tmp_path / "b")
    (tmp_path / "b/metadata").unlink()
    assert restored(saved, CheckpointSnapshot(lost.files), tmp_path / "b").refusals == ()


def test_a_checkpoint_whose_first_batch_is_not_committed_can_be_restored(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(tmp_path / "c", 1, 0)
    assert restored(savepoint(tmp_path), there, tmp_path / "c").journal.newest == LogEnds(0, -1)


def test_a_savepoint_that_is_ahead_skips_what_lies_between(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(tmp_path / "c", more={"notes/a/b.txt": "x"})
    world = RewindContext(now=NOW, processes=(Process(7, "less", "offsets/4", False),))
    plan = restored(savepoint(tmp_path, 6), there, tmp_path / "c", world, stopped=True)
    assert plan.readings[0].skipped == (PartitionRange("visits-0", 50, 70),)
    assert plan.notes == (
        AHEAD,
        "Not Spark's, and left in place: notes.",
        "Though the query has ended, process 7 (less) has offsets/4 open.",
        NOT_ASKED,
    )
    assert restored(savepoint(tmp_path, 6), None, tmp_path / "d").notes == (NOT_ASKED,)


def test_a_savepoint_is_ahead_of_a_checkpoint_that_has_read_nothing_of_its_source(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(tmp_path / "c", 1, more={"offsets/0": offsets(None, shuffle_partitions="1")})
    plan = restored(savepoint(tmp_path), there, tmp_path / "c")
    assert plan.readings[0].skipped == (PartitionRange("visits-0", 0, 20),)
    assert plan.notes == (AHEAD, NOT_ASKED)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["b", "a"], "a, b"),
        (["é", "a\nb"], r"a\nb, é"),
        ([*"edcba"], "a, b, c, d, e"),
        ([*"fedcba"], "a, b, c, d, e and 1 more"),
        ([*"gfedcba"], "a, b, c, d, e and 2 more"),
    ],
)
def test_what_is_not_sparks_is_named(tmp_path: Path, names: list[str], shown: str) -> None:
    left_out = tuple(NotIncluded(name, 1, 1) for name in names)
    plan = forked(savepoint(tmp_path, not_included=left_out), tmp_path / "new")
    assert plan.notes == (f"In the original checkpoint, but not in the savepoint: {shown}.", NOT_ASKED)


@pytest.mark.parametrize("there", ["its own", "none", "no checkpoint"])
def test_a_restored_checkpoint_records_its_pipeline(tmp_path: Path, there: str) -> None:
    saved = savepoint(tmp_path, run=PIPELINE)
    now = None
    if there != "no checkpoint":
        more = {RUN: noted(replace(PIPELINE, topic="own"))} if there == "its own" else {}
        now = small_checkpoint.kafka(tmp_path / "c", more=more)
    plan = restored(saved, now, tmp_path / "c")
    assert len(plan.journal.moves) >= 7
    if there == "its own":
        assert replaced(plan) == {}
        return
    ((path, (old, new)),) = replaced(plan).items()
    assert (path, old) == (RUN, None)
    assert json.loads(new or "") == json.loads(noted(PIPELINE))


# Sources of files


def files_read(root: Path, batches: int, query: str = QUERY) -> dict[str, str | bytes]:
    """The files of a query that reads one file in each batch, from a folder next to it."""
    files: dict[str, str | bytes] = {"metadata": f'{{"id":"{query}"}}'}
    for batch in range(batches):
        written(root, {f"in/{batch}": "x"})
        files[f"offsets/{batch}"] = offsets({"logOffset": batch})
        files[f"commits/{batch}"] = commit()
        files[f"sources/0/{batch}"] = "v1\n" + json.dumps({"path": f"file://{root}/in/{batch}", "batchId": batch})
    return files


def test_files_that_the_original_has_read_since_are_listed(tmp_path: Path) -> None:
    saved = savepoint(tmp_path, 1, files_read(tmp_path, 2), {"logOffset": 1})
    written(tmp_path / "c", files_read(tmp_path, 5))
    for plan in (forked(saved, tmp_path / "new"), restored(saved, None, tmp_path / "new")):
        assert (plan.readings[0].kind, plan.readings[0].files) == ("files", 3)
        assert (plan.refusals, plan.notes) == ((), ("3 input files are read again.",))
    (tmp_path / "in/3").unlink()
    for plan in (forked(saved, tmp_path / "new"), restored(saved, None, tmp_path / "new")):
        assert [refusal.why for refusal in plan.refusals] == [
            f"Input files are gone: 1 of 3: file://{tmp_path}/in/3. Spark would skip them without an error."
        ]
    assert forked(saved, tmp_path / "new", allow_data_loss=True).refusals == ()
    assert forked(saved, tmp_path / "new", allow_data_loss=True).notes == ("3 input files are read again.",)


@pytest.mark.parametrize("original", ["gone", "of another query", "without a batch", "damaged"])
def test_files_that_were_read_since_are_unknown_without_the_original(tmp_path: Path, original: str) -> None:
    saved = savepoint(tmp_path, 1, files_read(tmp_path, 2), {"logOffset": 1})
    if original == "of another query":
        written(tmp_path / "c", files_read(tmp_path, 5, OTHER))
    elif original == "without a batch":
        written(tmp_path / "c", {"metadata": f'{{"id":"{QUERY}"}}'})
    elif original == "damaged":
        written(tmp_path / "c", {**files_read(tmp_path, 5), "metadata": "no JSON"})
    assert forked(saved, tmp_path / "new").notes == (UNKNOWN,)
    assert restored(saved, None, tmp_path / "new").notes == (UNKNOWN,)


def test_a_checkpoint_without_a_batch_does_not_say_which_files_were_read(tmp_path: Path) -> None:
    saved = savepoint(tmp_path, 1, files_read(tmp_path, 2), {"logOffset": 1})
    written(tmp_path / "c", files_read(tmp_path, 5))
    empty = written(tmp_path / "d", {"metadata": f'{{"id":"{QUERY}"}}'})
    assert restored(saved, empty, tmp_path / "d").notes == (UNKNOWN,)


# Forks


def test_a_fork_reads_all_that_kafka_has_under_an_id_of_its_own(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path / "c")
    saved = savepoint(tmp_path)
    plan = forked(saved, tmp_path / "new", replace(WORLD, kept=kept()), reason="why")
    assert records(plan) == [(20, 70)]
    assert (plan.batch, plan.newest, plan.watermark_ms, plan.aside) == (2, -1, 1234, 0)
    assert (plan.refusals, plan.notes) == ((), ())
    journal = plan.journal
    assert (journal.operation, journal.newest, journal.left) == ("fork", LogEnds(-1, -1), LogEnds(1, 1))
    assert (journal.batch, journal.same_range, journal.reason) == (2, False, "why")
    (query,) = journal.query_ids
    assert query != QUERY
    assert json.loads(plan.install_set.written["metadata"])["id"] == query
    assert {move.target for move in journal.moves} == {file.path for file in saved.manifest.files}
    ((path, (old, new)),) = replaced(plan).items()
    assert (path, old) == (FORK, None)
    assert json.loads(new or "") == {
        "savepoint": "one",
        "location": saved.location,
        "batch": 1,
        "checkpoint": str(tmp_path / "c"),
        "query_id": QUERY,
        "sink": "",
        "sink_identity": None,
        "created": "2026-01-02T03:04:05+00:00",
    }


def test_a_fork_records_the_pipeline_and_the_output_of_the_original(tmp_path: Path) -> None:
    plan = forked(savepoint(tmp_path, run=PIPELINE), tmp_path / "new")
    assert plan.journal.moves
    texts = {path: json.loads(new or "") for path, (_, new) in replaced(plan).items()}
    assert texts[RUN] == json.loads(noted(PIPELINE))
    assert texts[FORK]["sink"] == "topic a"
    assert all(new and new.endswith("\n") for _, new in replaced(plan).values())


def test_a_fork_is_refused_where_something_is(tmp_path: Path) -> None:
    where = str(tmp_path / "new")
    require_new(where, [])
    for names, shown in (([*"dcba"], "a, b, c, d"), ([*"edcba"], "a, b, c, d …")):
        with pytest.raises(CheckpointError, match=rf"is not empty: it contains {shown}\. A fork needs"):
            require_new(where, names)


# Promotions


def fork_at(
    root: Path, batches: int = 3, committed: int | None = None, query: str = QUERY, more: Any = None
) -> CheckpointSnapshot:
    """A fork of the pipeline whose checkpoint is `c`, with an id of its own."""
    mark = ForkRecord("one", "/store/one", 1, str(root / "c"), query, "topic a", NOW)
    files = {"metadata": f'{{"id":"{OTHER}"}}', FORK: noted(mark)}
    return small_checkpoint.kafka(root / "fork", batches, committed, files | (more or {}))


def promoted(
    fork: CheckpointSnapshot, there: CheckpointSnapshot | None, where: Path, world: RewindContext = WORLD, **more: Any
) -> PlannedInstall:
    words = {name: more.pop(name) for name in ("fork_runs", "fork_processes") if name in more}
    request = RewindRequest(ToBatch(fork.next_batch), words="fork", **more)
    return plan_promote(fork, there, str(where), request, world, **{"fork_runs": None, **words})


@pytest.fixture
def pipeline(tmp_path: Path) -> CheckpointSnapshot:
    return small_checkpoint.kafka(tmp_path / "c")


def test_a_promotion_continues_where_the_fork_is(tmp_path: Path, pipeline: CheckpointSnapshot) -> None:
    fork = fork_at(tmp_path, 4, 3, more={RUN: noted(PIPELINE)})
    plan = promoted(fork, pipeline, tmp_path / "c", replace(WORLD, kept=kept()))
    # Batch 3 is not committed: it runs again, with all that is there.
    assert (plan.batch, plan.newest, plan.watermark_ms) == (3, 4, 2000)
    assert records(plan) == [(30, 70)]
    assert plan.refusals == ()
    assert plan.notes == ("The pipeline has read 10 records more than the fork: they are read again.",)
    journal = plan.journal
    assert (journal.operation, journal.newest, journal.left) == ("promote", LogEnds(4, 4), LogEnds(3, 2))
    assert journal.query_ids == (QUERY, OTHER)
    assert plan.aside == 16
    assert {move.target for move in journal.moves if move.source.startswith("_respool/staged/")} == {
        path for path in fork.files.below("") if not path.startswith("_respool/")
    }
    assert replaced(plan).keys() == {RUN}


def test_the_watermark_of_a_promotion_is_that_of_the_newest_batch(tmp_path: Path, pipeline: CheckpointSnapshot) -> None:
    plan = promoted(fork_at(tmp_path, 4, more={RUN: noted(PIPELINE)}), pipeline, tmp_path / "c")
    assert (plan.watermark_ms, plan.batch, plan.journal.left) == (3000, 4, LogEnds(3, 3))


def test_a_fork_that_has_run_nothing_is_not_promoted(tmp_path: Path, pipeline: CheckpointSnapshot) -> None:
    with pytest.raises(CheckpointError, match="has no committed batch, so there is nothing to promote"):
        promoted(fork_at(tmp_path, 1, 0), pipeline, tmp_path / "c")


def test_hidden_files_of_a_fork_stay_behind_except_checksums(tmp_path: Path, pipeline: CheckpointSnapshot) -> None:
    hidden = [".x", "state/0/0/.y", "offsets/.3.4711.tmp", "offsets/..3.4711.tmp.crc"]
    sums = ["offsets/.2.crc", "state/0/0/.3.delta.crc"]
    fork = fork_at(tmp_path, more=dict.fromkeys([*hidden, *sums], "x"))
    brought = promoted(fork, pipeline, tmp_path / "c").install_set.paths
    assert set(sums) < set(brought)
    assert not set(hidden) & set(brought)
    assert {"metadata", "offsets/2", "commits/2", "state/0/0/3.delta"} <= set(brought)


def test_only_a_fork_of_this_checkpoint_is_promoted(tmp_path: Path, pipeline: CheckpointSnapshot) -> None:
    where, facts = tmp_path / "c", {RUN: noted(PIPELINE)}
    assert promoted(fork_at(tmp_path, more=facts), pipeline, where).refusals == ()
    assert promoted(fork_at(tmp_path, more=facts), None, tmp_path / "lost").refusals == ()
    another = fork_at(tmp_path, query=OTHER, more=facts)
    (refusal,) = promoted(another, pipeline, where).refusals
    assert refusal.why == f"{another.root} is not a fork of the query that owns {where}; it was forked from {OTHER}."
    assert promoted(another, None, tmp_path / "lost").refusals == ()
    (tmp_path / "fork" / FORK).unlink()
    for there, place in ((pipeline, where), (None, tmp_path / "lost")):
        (refusal,) = promoted(CheckpointSnapshot(another.files), there, place).refusals
        assert refusal.why == f"{another.root} is not a fork created by respool."


def test_a_fork_that_runs_or_may_run_is_not_promoted(tmp_path: Path, pipeline: CheckpointSnapshot) -> None:
    where = tmp_path / "c"
    fork = fork_at(tmp_path, 4, 3)
    (refusal,) = promoted(fork, pipeline, where, fork_runs="process 7").refusals
    assert refusal.why == "The fork: The query runs: process 7."
    (refusal,) = promoted(fork, pipeline, where).refusals  # respool does not run it: its files are what is known
    assert refusal.why.startswith("The fork: Batch 3 is planned but not committed")
    reader = Process(8, "less", "offsets/3", False)
    assert len(promoted(fork, pipeline, where, fork_processes=[reader]).refusals) == 2
    written(tmp_path / "fork", {RUN: noted(PIPELINE)})
    assert promoted(fork, pipeline, where).refusals == ()


def test_a_promotion_is_refused_while_the_pipeline_runs(tmp_path: Path, pipeline: CheckpointSnapshot) -> None:
    fork = fork_at(tmp_path, more={RUN: noted(PIPELINE)})
    (refusal,) = promoted(fork, pipeline, tmp_path / "c", replace(WORLD, runs="process 7")).refusals
    assert refusal.why == "The query runs: process 7."


@pytest.mark.parametrize(
    ("mine", "before", "expected"),
    [
        (True, True, ("v2", "topic a", "kafka:a")),
        (True, False, ("v2", "topic a-v2", "kafka:a-v2")),
        (False, True, ("", "topic a", "kafka:a")),
        (False, False, None),
    ],
)
def test_a_promoted_pipeline_writes_where_the_original_did(
    tmp_path: Path, mine: bool, before: bool, expected: tuple[str, ...] | None
) -> None:
    changed = replace(PIPELINE, timezone="v2", sink="topic a-v2", output="kafka:a-v2", on_replay="?")
    text = noted(PIPELINE)
    there = small_checkpoint.kafka(tmp_path / "c", more={RUN: text} if before else {})
    plan = promoted(fork_at(tmp_path, more={RUN: noted(changed)} if mine else {}), there, tmp_path / "c")
    assert plan.journal.moves
    if expected is None:
        assert replaced(plan) == {}
        return
    old, new = replaced(plan)[RUN]
    assert old == (text if before else None)
    facts = json.loads(new or "")
    assert (facts["timezone"], facts["sink"], facts["output"]) == expected
    assert facts["on_replay"] == ("writes again" if before else "?")


def test_a_fork_of_a_lost_checkpoint_keeps_its_own_pipeline(tmp_path: Path) -> None:
    plan = promoted(fork_at(tmp_path, more={RUN: noted(PIPELINE)}), None, tmp_path / "c")
    old, new = replaced(plan)[RUN]
    assert old is None
    sink = {"kind": "described", "fields": {"text": "topic a"}, "version": 0}  # all that its sentence says
    assert json.loads(new or "") == {**json.loads(noted(PIPELINE)), "sink_identity": sink}
    assert plan.notes == (NOT_ASKED,)
    assert plan.journal.query_ids == (OTHER,)


@pytest.mark.parametrize(
    ("batches", "note"),
    [
        (5, None),
        (7, "The fork has read 20 records more than the pipeline: only the fork has results of them."),
        (2, "The pipeline has read 30 records more than the fork: they are read again."),
    ],
)
def test_who_has_read_more_is_noted(
    tmp_path: Path, pipeline: CheckpointSnapshot, batches: int, note: str | None
) -> None:
    plan = promoted(fork_at(tmp_path, batches), pipeline, tmp_path / "c")
    assert plan.notes == ((note, NOT_ASKED) if note else (NOT_ASKED,))


def test_a_pipeline_that_has_run_nothing_is_neither_ahead_nor_behind(tmp_path: Path) -> None:
    empty = written(tmp_path / "c", {"metadata": f'{{"id":"{QUERY}"}}'})
    plan = promoted(fork_at(tmp_path), empty, tmp_path / "c")
    assert plan.notes == (NOT_ASKED,)
    assert plan.journal.newest == LogEnds(-1, -1)


CHANGED = replace(PIPELINE, fingerprint={**CODE, "settings": {"watermark": "2 minutes"}})
ELSEWHERE = replace(PIPELINE, sink="topic b")


@pytest.mark.parametrize(
    ("mine", "before", "notes"),
    [
        (PIPELINE, PIPELINE, []),
        (None, PIPELINE, []),
        (PIPELINE, None, []),
        (CHANGED, PIPELINE, ["The fork ran a changed pipeline: "]),
        (ELSEWHERE, PIPELINE, ["What the fork wrote stays in topic b; from now on the pipeline writes to topic a"]),
    ],
)
def test_what_the_fork_did_otherwise_is_noted(
    tmp_path: Path, mine: RunRecord | None, before: RunRecord | None, notes: list[str]
) -> None:
    there = small_checkpoint.kafka(tmp_path / "c", 3, more={RUN: noted(before)} if before else {})
    fork = fork_at(tmp_path, more={RUN: noted(mine)} if mine else {})
    shown = promoted(fork, there, tmp_path / "c").notes
    assert len(shown) == len(notes) + 1
    assert all(note.startswith(start) for note, start in zip(shown, [*notes, NOT_ASKED], strict=True))
    assert not mine or mine is not CHANGED or "1 minute" in shown[0]


def test_only_records_of_kafka_are_compared(tmp_path: Path) -> None:
    more = {FORK: noted(ForkRecord("one", "/store/one", 1, "", QUERY, "", NOW))}
    fork = written(tmp_path / "fork", files_read(tmp_path, 2) | more)
    there = written(tmp_path / "c", files_read(tmp_path, 5))
    assert promoted(fork, there, tmp_path / "c").notes == ()
