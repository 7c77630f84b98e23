"""A checkpoint as it was when it was listed."""

import re
from pathlib import Path

import pytest

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from support import small_checkpoint
from support.small_checkpoint import offsets, written


@pytest.mark.parametrize(
    ("planned", "committed", "expected"), [(0, 0, 0), (1, 0, 0), (1, 1, 1), (5, 4, 4), (5, 5, 5), (5, 3, 4)]
)
def test_the_batch_that_runs_next(tmp_path: Path, planned: int, committed: int, expected: int) -> None:
    assert small_checkpoint.kafka(tmp_path, planned, committed).next_batch == expected


def test_commits_without_offsets(tmp_path: Path) -> None:
    assert written(tmp_path, {"commits/3": "", "offsets/2": ""}).next_batch == 3


def test_whether_a_log_has_a_batch(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"offsets/2": "", "offsets/4": "", "commits/2": ""})
    assert [batch for batch in range(6) if checkpoint.has("offsets", batch)] == [2, 4]
    assert [batch for batch in range(6) if checkpoint.has("commits", batch)] == [2]


def test_the_id_of_the_query(tmp_path: Path) -> None:
    assert written(tmp_path, {"metadata": '{"id":"a"}'}).query_id == "a"
    (tmp_path / "metadata").unlink()
    with pytest.raises(CheckpointError, match="has lost its file metadata"):
        _ = written(tmp_path, {}).query_id


def test_the_newest_offsets_that_can_be_read(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, 3, more={"offsets/2": "damaged"})
    assert checkpoint.newest_planned().end("0") == {"visits": {"0": 20}}
    with pytest.raises(CheckpointError, match="has no file in offsets that can be read"):
        written(tmp_path / "other", {"offsets/0": "damaged"}).newest_planned()


def test_a_log_file_is_read_once_and_its_fault_is_reported_each_time(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, 2, more={"commits/1": "damaged"})
    assert checkpoint.planned(0).timestamp_ms == 1000
    for _ in range(2):
        with pytest.raises(CheckpointError, match="commits/1 is damaged"):
            checkpoint.committed(1)
    for path in ("offsets/0", "commits/0"):
        (tmp_path / path).unlink()
    assert checkpoint.planned(0).timestamp_ms == 1000
    with pytest.raises(CheckpointError, match=re.escape("commits/0 is missing.")):
        checkpoint.committed(0)


def test_files_that_were_read_ahead_are_not_read_again(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, 2)
    checkpoint.read_ahead(["offsets/0", "offsets/9"])
    (tmp_path / "offsets/0").unlink()
    checkpoint.read_ahead(["offsets/0", "offsets/1"])
    assert checkpoint.planned(0).timestamp_ms == 1000
    with pytest.raises(CheckpointError, match=re.escape("offsets/9 is missing.")):
        checkpoint.planned(9)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, 1)

    def fail(_: str) -> bytes:
        raise PermissionError("no")

    monkeypatch.setattr(checkpoint.files, "read", fail)
    with pytest.raises(CheckpointError, match="offsets/0 cannot be read: no"):
        checkpoint.planned(0)


def stores(*names: str) -> str:
    infos = ",".join(f'{{"storeName":"{name}"}}' for name in names)
    return f'v1\n{{"stateStoreInfo":[{infos}]}}'


def test_the_stores_of_an_operator_are_in_the_order_of_its_metadata(tmp_path: Path) -> None:
    files = {
        "state/0/_metadata/metadata": stores("b", "a"),
        "state/1/_metadata/v2/2": stores("old"),
        "state/1/_metadata/v2/5": stores("older"),
        "state/1/_metadata/v2/10": stores("new"),
        "state/2/_metadata/metadata": "damaged",
        "state/2/0/y/1.delta": "",
        "state/2/0/x/1.delta": "",
        "state/3/0/z/1.delta": "",
        "state/4/_metadata/metadata": stores("first"),
        "state/4/_metadata/v2/0": stores("second"),
    }
    checkpoint = written(tmp_path, files)
    names = [checkpoint.store_names(operator) for operator in range(5)]
    assert names == [("b", "a"), ("new",), ("x", "y"), ("z",), ("first",)]


def test_the_number_of_partitions(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"offsets/0": offsets(3, shuffle_partitions="7"), "offsets/1": offsets(3)})
    assert checkpoint.partitions(0) == 7
    assert checkpoint.partitions(1) is None


def partitions(root: Path, *own: int) -> CheckpointSnapshot:
    return written(root, {f"state/0/{partition}/1.delta": "" for partition in own} | {"metadata": "{}"})


def test_the_partitions_of_an_operator(tmp_path: Path) -> None:
    assert partitions(tmp_path / "a", 0, 1, 4).partitions_of(0, None) == 5
    assert partitions(tmp_path / "b").partitions_of(0, None) == 0
    assert partitions(tmp_path / "c", 0).partitions_of(0, 3) == 3
    assert partitions(tmp_path / "d", 0).partitions_of(1, None) == 0


@pytest.mark.parametrize(
    ("own", "key", "wanted", "expected"),
    [((0,), "void", 3, 1), ((0,), "void", 1, 1), ((0, 1), "void", 3, 3), ((0,), "long", 3, 3), ((0,), "void", 2, 1)],
)
def test_an_operator_without_a_key_has_one_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: tuple[int, ...], key: str, wanted: int, expected: int
) -> None:
    class Family:
        def __init__(self) -> None:
            self.key = {"fields": [{"type": "void"}, {"type": key}]}

    checkpoint = partitions(tmp_path, *own)
    written(tmp_path, {"state/0/0/_metadata/schema": "schema"})
    monkeypatch.setattr("respool.checkpoint.snapshot.state_files.families", lambda _: [Family()])
    for _ in range(2):
        assert checkpoint.partitions_of(0, wanted) == expected


def test_a_schema_that_cannot_be_read_says_nothing_of_the_key(tmp_path: Path) -> None:
    checkpoint = partitions(tmp_path, 0)
    written(tmp_path, {"state/0/0/_metadata/schema": "damaged"})
    assert checkpoint.partitions_of(0, 3) == 3
