"""Which batch a rewind targets, and what prevents it; on small checkpoints."""

from datetime import datetime, timezone
from pathlib import Path

import pytest

from respool.checkpoint import reachability
from respool.checkpoint.planning import request
from respool.checkpoint.planning.request import LastBatches, ToBatch, ToOffsets, ToTime
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.format.model import InclusiveRange
from respool.identity import Identity
from support import small_checkpoint
from support.small_checkpoint import commit, offsets, rocksdb_zip, written


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def without(root: Path, *paths: str) -> CheckpointSnapshot:
    for path in paths:
        (root / path).unlink()
    return written(root, {})


# Batch N of `small_checkpoint.kafka` is planned at second N + 1 and reads to offset 10 × (N + 1).


@pytest.mark.parametrize(
    ("goal", "batch"),
    [
        (ToBatch(0), 0),
        (ToBatch(3), 3),
        (ToBatch(5), 5),
        (LastBatches(1), 4),
        (LastBatches(5), 0),
        (ToTime(at(0)), 0),
        (ToTime(at(3)), 2),
        (ToTime(at(3.001)), 3),
        (ToTime(at(5)), 4),
        (ToOffsets({("visits", 0): 0}), 0),
        (ToOffsets({("visits", 0): 9}), 0),
        (ToOffsets({("visits", 0): 10}), 1),
        (ToOffsets({("visits", 0): 49}), 4),
    ],
)
def test_what_a_target_means(tmp_path: Path, goal: request.RewindTarget, batch: int) -> None:
    assert request.resolve(small_checkpoint.kafka(tmp_path), goal) == batch


@pytest.mark.parametrize(
    ("goal", "why"),
    [
        (ToBatch(-1), "There is no batch -1: the newest is 4."),
        (ToBatch(6), "There is no batch 6: the newest is 4."),
        (LastBatches(0), "--last 0: expected 1 to 5"),
        (LastBatches(6), "--last 6: expected 1 to 5"),
        (ToTime(at(5.001)), "No batch was planned at or after 1970-01-01T00:00:05Z"),
        (ToOffsets({("visits", 0): 50}), "batch 4 ends at visits-0: 50"),
        (ToOffsets({("clicks", 1): 5}), "does not read clicks-1; it reads visits-0"),
    ],
)
def test_a_target_that_is_not_there(tmp_path: Path, goal: request.RewindTarget, why: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        request.resolve(small_checkpoint.kafka(tmp_path), goal)
    assert why in str(caught.value)


def test_the_newest_time_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"The newest .*1970-01-01T00:00:05Z"):
        request.resolve(small_checkpoint.kafka(tmp_path), ToTime(at(100)))


def test_a_checkpoint_without_a_batch_has_no_target(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"metadata": "{}"})
    with pytest.raises(CheckpointError, match="has planned no batch yet"):
        request.resolve(checkpoint, ToBatch(0))
    assert reachability.reachable(checkpoint) == []
    assert reachability.earliest(checkpoint).batch is None


@pytest.mark.parametrize(
    ("lost", "batches", "same_range"),
    [
        ([], [(0, 4)], [(0, 4)]),
        (["offsets/0"], [(3, 4)], [(2, 4)]),
        (["commits/2"], [(0, 2), (4, 4)], [(0, 4)]),
        (["offsets/2"], [(0, 2)], [(0, 1), (4, 4)]),
        (["state/0/0/3.delta"], [(0, 2)], [(0, 2)]),
    ],
)
def test_batches_that_can_be_rewound_to(
    tmp_path: Path, lost: list[str], batches: list[tuple[int, int]], same_range: list[tuple[int, int]]
) -> None:
    small_checkpoint.kafka(tmp_path)
    checkpoint = without(tmp_path, *lost)
    for expected, same in ((batches, False), (same_range, True)):
        assert reachability.reachable(checkpoint, same) == [InclusiveRange(*span) for span in expected]
        reached = [batch for first, last in expected for batch in range(first, last + 1)]
        if "offsets/0" not in lost:
            assert [
                batch for batch in range(5) if reachability.why_unreachable(checkpoint, batch, same) is None
            ] == reached


def test_batches_for_a_message(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path)
    assert reachability.reachable_text(checkpoint) == "0 to 4"
    assert reachability.reachable_text(checkpoint, shift=-1) == "0 to 3"
    assert reachability.reachable_text(without(tmp_path, "commits/2")) == "0 to 2, 4"
    assert reachability.reachable_text(written(tmp_path / "new", {"metadata": "{}"})) == ""


def test_batches_with_a_damaged_log_are_not_in_a_message(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, more={"commits/2": "damaged"})
    assert reachability.reachable_text(checkpoint) == "0 to 2, 4"


def test_a_message_on_much_state_does_not_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, more={"state/0/0/2.zip": "damaged", "state/0/0/1.delta": ""})
    monkeypatch.setattr(reachability, "_MOST_LOADS", 5)
    assert reachability.reachable_text(checkpoint) == "0 to 4"
    monkeypatch.setattr(reachability, "_MOST_LOADS", 4)
    assert reachability.reachable_text(checkpoint) == "0 to 4 (as far as can be seen without reading all state files)"


@pytest.mark.parametrize(
    ("lost", "batch", "why"),
    [
        ([], 0, "it is the first batch"),
        (["offsets/0"], 3, "batch 2 cannot: offsets/0 is not kept"),
        (["state/0/0/1.delta"], 0, "it is the first batch"),
    ],
)
def test_the_earliest_batch_and_why_no_earlier_one(tmp_path: Path, lost: list[str], batch: int, why: str) -> None:
    small_checkpoint.kafka(tmp_path)
    checkpoint = without(tmp_path, *lost)
    if lost == ["offsets/0"]:
        assert reachability.earliest(checkpoint, same_range=True).batch == 2
    assert reachability.earliest(checkpoint) == reachability.EarliestBatch(batch, why)


def test_no_batch_can_be_rewound_to(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, 3)
    checkpoint = without(tmp_path, "offsets/0", "offsets/1", "state/0/0/3.delta")
    for same_range in (False, True):
        result = reachability.earliest(checkpoint, same_range)
        assert (result.batch, result.why) == (None, "offsets/1 is not kept")


def test_the_next_batch_is_the_earliest_when_only_its_logs_are_kept(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, 4)
    result = reachability.earliest(without(tmp_path, "offsets/0", "offsets/1"))
    assert result.batch == 4
    assert result.why == "batch 3 cannot: offsets/1 is not kept"
    assert reachability.earliest(written(tmp_path, {}), same_range=True).batch == 3


def test_plain_batches_are_those_that_are_planned_again(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path)
    assert reachability.reachable(without(tmp_path, "commits/2")) == [InclusiveRange(0, 2), InclusiveRange(4, 4)]


def test_batches_whose_state_is_damaged_are_not_in_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_checkpoint.kafka(tmp_path, more={"state/0/0/3.zip": "damaged"})
    checkpoint = without(tmp_path, "state/0/0/1.delta")
    assert reachability.reachable_text(checkpoint) == "0"
    monkeypatch.setattr(reachability, "_MOST_LOADS", 1)
    assert reachability.reachable_text(checkpoint).startswith("0, 3 to 4 (as far")


def test_offsets_of_several_sources_and_of_partitions_that_are_new(tmp_path: Path) -> None:
    ends = [({"visits": {"0": 5}}, {"clicks": {"0": 5}}), ({"visits": {"0": 6, "1": 1}}, {"clicks": {"0": 5}})]
    files = {f"offsets/{batch}": offsets(*both) for batch, both in enumerate(ends)}
    checkpoint = written(tmp_path, files)
    assert request.resolve(checkpoint, ToOffsets({("visits", 1): 0})) == 1
    assert request.resolve(checkpoint, ToOffsets({("visits", 0): 3})) == 0
    assert request.resolve(checkpoint, ToOffsets({("clicks", 0): 3})) == 0


# Logs that a start needs


@pytest.mark.parametrize(
    ("batch", "same_range", "needed"),
    [
        (0, False, []),
        (0, True, ["offsets/0"]),
        (1, False, ["offsets/0", "commits/0"]),
        (1, True, ["offsets/0", "offsets/1"]),
        (3, False, ["offsets/1", "offsets/2", "commits/2"]),
        (3, True, ["offsets/2", "offsets/3"]),
    ],
)
def test_a_start_needs_two_offsets_and_the_commit(
    tmp_path: Path, batch: int, same_range: bool, needed: list[str]
) -> None:
    for number, log in enumerate(f"{folder}/{batch}" for folder in ("offsets", "commits") for batch in range(4)):
        root = tmp_path / str(number)
        small_checkpoint.kafka(root)
        why = reachability.log_obstacle(without(root, log), batch, same_range)
        assert why == (f"{log} is not kept" if log in needed else None)


def test_a_batch_as_it_was_needs_the_commit_where_state_has_ids(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"offsets/{batch}": offsets({"logOffset": batch}) for batch in range(3)}
    files |= {"commits/0": commit(ids={"0": [["a"]]}), "state/0/0/1_a.changelog": "", "metadata": "{}"}
    assert reachability.log_obstacle(written(tmp_path, files), 2, same_range=True) == "commits/1 is not kept"
    assert reachability.log_obstacle(written(tmp_path, files), 0, same_range=True) is None
    assert reachability.log_obstacle(written(tmp_path, {"commits/1": commit()}), 2, same_range=True) is None


def test_a_damaged_log_is_an_obstacle(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, more={"offsets/2": "damaged"})
    why = reachability.log_obstacle(checkpoint, 3, same_range=False)
    assert why is not None
    assert why.startswith("offsets/2 is damaged")
    assert not why.endswith(".")


@pytest.mark.parametrize(("version", "partitions", "can"), [("v1", None, True), ("v2", None, False), ("v2", "1", True)])
def test_offsets_of_version_2_need_the_number_of_partitions_to_run_as_they_were(
    tmp_path: Path, version: str, partitions: str | None, can: bool
) -> None:
    known = offsets(version=version, shuffle_partitions=partitions) if partitions else offsets(version=version)
    text = known + "\n" + ("a:-" if version == "v2" else "-")
    checkpoint = written(tmp_path, {"offsets/0": text, "metadata": "{}"})
    why = reachability.log_obstacle(checkpoint, 0, same_range=True)
    assert (why is None) is can
    assert reachability.log_obstacle(checkpoint, 0, same_range=False) is None


# State


def test_a_damaged_snapshot_is_left_out_where_older_files_serve(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(
        tmp_path, more={"state/0/0/3.zip": "damaged", "state/0/0/2.zip": rocksdb_zip({})}
    )
    loads, bad = reachability.state_loads(checkpoint, 4)
    (load,) = loads
    assert load.snapshot is not None
    assert load.snapshot.name == "2.zip"
    assert [file.name for file in load.increments] == ["3.delta", "4.delta"]
    assert list(bad) == ["state/0/0/3.zip"]
    assert reachability.state_loads(checkpoint, 0) == ([], {})


def test_several_damaged_snapshots_are_left_out(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, more={f"state/0/0/{version}.zip": "damaged" for version in (2, 3, 4)})
    loads, bad = reachability.state_loads(checkpoint, 4)
    assert loads[0].snapshot is None
    assert sorted(bad) == [f"state/0/0/{version}.zip" for version in (2, 3, 4)]


def test_a_damaged_snapshot_without_older_files_is_an_obstacle(tmp_path: Path) -> None:
    small_checkpoint.kafka(tmp_path, more={"state/0/0/3.zip": "damaged"})
    checkpoint = without(tmp_path, "state/0/0/1.delta")
    why = reachability.why_unreachable(checkpoint, 4, same_range=False)
    assert why is not None
    assert why.startswith("state/0/0/3.zip is damaged")
    assert why.endswith("lacks version 1: it has no snapshot")


def test_every_partition_must_have_its_state(tmp_path: Path) -> None:
    more: dict[str, str | bytes] = {
        f"offsets/{batch}": offsets({"logOffset": batch}, shuffle_partitions="3") for batch in range(3)
    }
    checkpoint = small_checkpoint.kafka(tmp_path, 3, more=more | {"state/0/1/1.delta": "", "state/0/1/2.delta": ""})
    places = [
        (store.partition, store.folder, len(store.files)) for store in reachability.expected_stores(checkpoint, 2)
    ]
    assert places == [(0, "state/0/0", 3), (1, "state/0/1", 2), (2, "state/0/2", 0)]
    why = reachability.why_unreachable(checkpoint, 2, same_range=False)
    assert why is not None
    assert "partition 2 lacks versions 1 to 2" in why


def test_every_store_of_an_operator_must_have_its_state(tmp_path: Path) -> None:
    metadata = 'v1\n{"stateStoreInfo":[{"storeName":"left"},{"storeName":"right"}]}'
    more = {"state/1/_metadata/metadata": metadata, "state/1/0/left/1.delta": ""}
    checkpoint = small_checkpoint.kafka(tmp_path, 1, more=more)
    folders = [store.folder for store in reachability.expected_stores(checkpoint, 1)]
    assert folders == ["state/0/0", "state/1/0/left", "state/1/0/right"]
    assert reachability.operators_named(checkpoint) == {0, 1}


def test_an_operator_without_any_store_is_expected_too(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, 1, more={"state/2/_metadata/x": "", "state/_x/y": ""})
    assert [store.folder for store in reachability.expected_stores(checkpoint, 1)] == ["state/0/0", "state/2/0"]


def test_stores_that_can_load_different_versions_share_few(tmp_path: Path) -> None:
    more = {"state/0/1/1.delta": "", "state/0/1/3.snapshot": "", "state/0/1/4.delta": ""}
    checkpoint = small_checkpoint.kafka(tmp_path, more=more)
    assert reachability.reachable(checkpoint) == [InclusiveRange(0, 1), InclusiveRange(3, 4)]


# Sources


def test_where_a_kafka_source_began(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"sources/0/0": '\0v1\n{"visits":{"0":3}}', "sources/1/0": "v1\n1700000000000"})
    assert reachability.initial_position(checkpoint, "0") == {"visits": {"0": 3}}
    assert reachability.initial_position(checkpoint, "1") is None
    assert reachability.initial_position(checkpoint, "2") is None


def test_a_rate_source_keeps_its_start_time(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"sources/0/0": "v1\n1700000000000", "sources/1/0": "v1\nx", "sources/2/1": "v1\n1"})
    assert [reachability.source_kind(checkpoint, source, 5) for source in "0123"] == [
        "rate",
        "number",
        "number",
        "number",
    ]
    assert reachability.source_kind(checkpoint, "0", {"logOffset": 5}) == "files"
    (tmp_path / "sources/0/0").unlink()
    (tmp_path / "sources/0/0").symlink_to("../2/1")  # not followed
    assert reachability.source_kind(written(tmp_path, {}), "0", 5) == "number"


# Identities


@pytest.mark.parametrize(
    ("target", "field"),
    [
        (ToBatch(3), {"batch": 3}),
        (LastBatches(3), {"last": 3}),
        (ToTime(at(3)), {"time": at(3)}),
        (ToOffsets({("a", 1): 0, ("a", 0): 5, ("b", 0): 7}), {"offsets": {"a": {"1": 0, "0": 5}, "b": {"0": 7}}}),
    ],
)
def test_a_target_is_recognized_by_its_kind_and_value(target: request.RewindTarget, field: dict[str, object]) -> None:
    identity = request.rewind_identity(target, False, False, False)
    assert identity.fields["target"] == Identity("target", field).fields
    for other in (ToBatch(4), LastBatches(4), ToTime(at(4)), ToOffsets({("a", 1): 1})):
        assert not identity.is_same(request.rewind_identity(other, False, False, False))


def test_offset_0_is_a_target() -> None:
    target, words = request.target_of(None, None, {"visits": {0: 0, 1: 1}}, None)
    assert target == ToOffsets({("visits", 0): 0, ("visits", 1): 1})
    assert words == """--to-offsets '{"visits":{"0":0,"1":1}}'"""


def test_a_batch_planned_after_all_calendars_is_named_by_its_number(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"metadata": '{"id":"x"}', "offsets/0": offsets(10, planned=2**60)})
    assert request._time(checkpoint, 0) == f"{2**60} ms since 1970"
