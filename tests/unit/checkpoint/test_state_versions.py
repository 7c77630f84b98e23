"""Which versions of the state can be loaded, and from which files."""

import io
import zipfile
from pathlib import Path

import pytest

from respool.checkpoint import state_versions
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.format import state_files
from respool.format.layout import state_file
from respool.format.model import InclusiveRange, StateStore
from support.small_checkpoint import commit, rocksdb_zip, written


def store(*names: str, name: str = "default", partition: int = 0) -> StateStore:
    files = [file for file in map(state_file, names) if file is not None]
    assert len(files) == len(names)
    folder = f"state/0/{partition}" + ("" if name == "default" else f"/{name}")
    return StateStore(0, partition, name, folder, tuple(sorted(files)))


@pytest.fixture
def checkpoint(tmp_path: Path) -> CheckpointSnapshot:
    return written(tmp_path, {"metadata": '{"id":"a"}'})


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], [(0, 0)]),
        (["1.delta"], [(0, 1)]),
        (["1.delta", "2.delta", "3.delta"], [(0, 3)]),
        (["2.delta"], [(0, 0)]),
        (["5.snapshot"], [(0, 0), (5, 5)]),
        (["5.snapshot", "6.delta", "7.delta"], [(0, 0), (5, 7)]),
        (["5.snapshot", "5.delta", "4.delta"], [(0, 0), (5, 5)]),
        (["5.snapshot", "4.delta", "5.delta", "6.delta"], [(0, 0), (5, 6)]),
        (["5.snapshot", "7.delta"], [(0, 0), (5, 5)]),
        (["1.delta", "2.delta", "3.snapshot", "4.delta"], [(0, 4)]),
        (["1.delta", "3.snapshot"], [(0, 1), (3, 3)]),
        (["1.delta", "2.delta", "2.snapshot"], [(0, 2)]),
        (["1.delta", "2.delta", "3.delta", "2.snapshot"], [(0, 3)]),
        (["1.zip", "2.changelog", "9.changelog", "10.changelog", "9.zip"], [(0, 2), (9, 10)]),
    ],
)
def test_versions_that_can_be_loaded_by_names(
    checkpoint: CheckpointSnapshot, names: list[str], expected: list[tuple[int, int]]
) -> None:
    assert state_versions.loadable(checkpoint, store(*names)) == [
        InclusiveRange(first, last) for first, last in expected
    ]


@pytest.mark.parametrize(
    ("version", "snapshot", "increments"),
    [
        (0, None, []),
        (1, None, ["1.delta"]),
        (2, None, ["1.delta", "2.delta"]),
        (3, "3.snapshot", []),
        (4, "3.snapshot", ["4.delta"]),
        (5, "5.snapshot", []),
    ],
)
def test_a_version_is_loaded_from_the_newest_snapshot(
    checkpoint: CheckpointSnapshot, version: int, snapshot: str | None, increments: list[str]
) -> None:
    whole = store("1.delta", "2.delta", "3.delta", "3.snapshot", "4.delta", "5.delta", "5.snapshot")
    result = state_versions.load_of(checkpoint, whole, version)
    assert (result.snapshot.name if result.snapshot else None) == snapshot
    assert [file.name for file in result.increments] == increments


@pytest.mark.parametrize(
    ("names", "version", "lacks"),
    [
        (["1.delta"], 2, "version 2: it has no snapshot"),
        (["2.delta"], 2, "version 1: it has no snapshot"),
        ([], 3, "versions 1 to 3: it has no snapshot"),
        (["3.snapshot", "5.delta"], 5, "version 4: its newest snapshot is of version 3"),
        (["3.snapshot"], 4, "version 4: its newest snapshot is of version 3"),
        (["3.snapshot", "5.delta", "7.snapshot"], 6, "versions 4 to 6: its newest snapshot is of version 3"),
        (["3.snapshot", "4.delta"], 7, "versions 5 to 7: its newest snapshot is of version 3"),
        (["1.delta", "5.delta"], 5, "versions 2 to 4: it has no snapshot"),
    ],
)
def test_what_is_missing_is_named(checkpoint: CheckpointSnapshot, names: list[str], version: int, lacks: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        state_versions.load_of(checkpoint, store(*names), version)
    assert str(caught.value) == f"The state of operator 0, partition 0 lacks {lacks}."


# State format 2: files belong to a batch by the id that its commit names


def test_only_files_with_the_id_of_the_commit_belong_to_a_version(tmp_path: Path) -> None:
    ids = {0: [["a0"], ["b0"]], 1: [["a1"], ["b1"]], 2: [["a2"], ["b2"]]}
    logs = {f"commits/{batch}": commit(ids={"0": partitions}) for batch, partitions in ids.items()}
    checkpoint = written(tmp_path, logs)
    files = ["1_a0.changelog", "1_x.changelog", "2_a1.changelog", "2_b1.changelog", "3_a2.zip", "4_a3.zip"]
    first = store(*files)
    assert [file.name for file in state_versions.committed_files(checkpoint, first)] == [
        "1_a0.changelog",
        "2_a1.changelog",
        "3_a2.zip",
        "4_a3.zip",  # no commit names the right file, and only one exists
    ]
    other = store("1_b0.changelog", "2_a1.changelog", partition=1)
    assert [file.name for file in state_versions.committed_files(checkpoint, other)] == ["1_b0.changelog"]


def test_without_a_commit_several_files_of_a_version_belong_to_none(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"metadata": "{}"})
    several = store("1_a.changelog", "2_a.changelog", "2_b.changelog")
    assert [file.name for file in state_versions.committed_files(checkpoint, several)] == ["1_a.changelog"]
    same = store("1_a.changelog", "1_a.zip")
    assert len(state_versions.committed_files(checkpoint, same)) == 2


def test_files_without_ids_belong_to_their_versions(checkpoint: CheckpointSnapshot) -> None:
    assert len(state_versions.committed_files(checkpoint, store("1.delta", "1.snapshot"))) == 2


def test_ids_are_those_of_the_store_among_several(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "commits/0": commit(ids={"0": [["a", "b"]]}),
        "state/0/_metadata/metadata": 'v1\n{"stateStoreInfo":[{"storeName":"right"},{"storeName":"left"}]}',
    }
    checkpoint = written(tmp_path, files)
    names = ["1_a.changelog", "1_b.changelog"]
    assert [file.uid for file in state_versions.committed_files(checkpoint, store(*names, name="right"))] == ["a"]
    assert [file.uid for file in state_versions.committed_files(checkpoint, store(*names, name="left"))] == ["b"]


def test_a_damaged_commit_or_one_without_the_partition_names_no_id(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"commits/0": "damaged", "commits/1": commit(ids={"0": [["a"]]})})
    files = store("1_x.changelog", "2_y.changelog", partition=1)
    assert len(state_versions.committed_files(checkpoint, files)) == 2


# RocksDB's zips


def test_the_files_that_a_zip_needs() -> None:
    data = rocksdb_zip({"1-a.sst": 3, "2-b.sst": 4}, ("1.log",))
    assert state_files.sst_files("z", data) == {"1-a.sst": 3, "2-b.sst": 4}
    assert state_files.files_named("z", data) == ["SSTs/1-a.sst", "SSTs/2-b.sst", "logs/1.log"]


def zipped(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_zip_without_log_files_needs_only_tables() -> None:
    assert state_files.files_named("z", zipped({"metadata": b'v1\n{"sstFiles":[]}'})) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zip",
        zipped({}),
        zipped({"metadata": b"v1"}),
        zipped({"metadata": b"v1\n{}"}),
        zipped({"metadata": b'v1\n{"sstFiles":[{"dfsSstFileName":"../a","sizeBytes":1}]}'}),
        zipped({"metadata": b'v1\n{"sstFiles":[{"dfsSstFileName":"a","sizeBytes":-1}]}'}),
        zipped({"metadata": b'v1\n{"sstFiles":[],"logFiles":[{"dfsLogFileName":"a/b"}]}'}),
        rocksdb_zip({}).replace(b"numKeys", b"numKeyz"),
        zipped({"metadata": b'v1\n{"sstFiles":[]}', "zeros": bytes(20 * 2**20)}, zipfile.ZIP_DEFLATED),
    ],
)
def test_a_damaged_zip_is_named(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^z is damaged: "):
        state_files.sst_files("z", data)


def test_a_zip_of_large_files_that_pack_well_is_sound() -> None:
    data = zipped({"metadata": b'v1\n{"sstFiles":[]}', "zeros": bytes(15 * 2**20)}, zipfile.ZIP_DEFLATED)
    assert state_files.sst_files("z", data) == {}


def unsound(root: Path, files: dict[str, str | bytes]) -> dict[str, str]:
    checkpoint = written(root, files)
    load = state_versions.load_of(checkpoint, store("2.zip"), 2)
    return state_versions.damaged_snapshots(checkpoint, [load, state_versions.StateLoad(store(), None, ())])


def test_a_zip_with_its_tables_is_sound(tmp_path: Path) -> None:
    data = rocksdb_zip({"1-a.sst": 3})
    assert unsound(tmp_path, {"state/0/0/2.zip": data, "state/0/0/SSTs/1-a.sst": "abc"}) == {}


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({}, "needs SSTs/1-a.sst, and 1 more, which is missing"),
        ({"2-b.sst": "abcd"}, "needs SSTs/1-a.sst, which is missing"),
        ({"1-a.sst": "abc", "2-b.sst": "abc"}, "needs SSTs/2-b.sst, which has another size"),
        ({"1-a.sst": "abcd", "2-b.sst": "abcd"}, "needs SSTs/1-a.sst, which has another size"),
    ],
)
def test_tables_that_a_zip_lacks_are_named(tmp_path: Path, tables: dict[str, str], why: str) -> None:
    files: dict[str, str | bytes] = {"state/0/0/2.zip": rocksdb_zip({"1-a.sst": 3, "2-b.sst": 4})}
    files |= {f"state/0/0/SSTs/{name}": text for name, text in tables.items()}
    assert unsound(tmp_path, files) == {"state/0/0/2.zip": f"state/0/0/2.zip {why}"}


def test_zips_that_are_damaged_or_cannot_be_read_are_unsound_and_others_are_checked(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"state/0/0/2.zip": "x", "state/0/2/2.zip": rocksdb_zip({"1-a.sst": 3})})
    loads = [state_versions.load_of(checkpoint, store("2.zip", partition=number), 2) for number in range(3)]
    result = state_versions.damaged_snapshots(checkpoint, loads)
    assert list(result) == ["state/0/0/2.zip", "state/0/1/2.zip", "state/0/2/2.zip"]
    assert result["state/0/0/2.zip"].startswith("state/0/0/2.zip is damaged: ")
    assert result["state/0/1/2.zip"].startswith("state/0/1/2.zip cannot be read: ")
    assert "needs SSTs/1-a.sst" in result["state/0/2/2.zip"]


def test_snapshots_of_the_other_store_are_not_opened(tmp_path: Path) -> None:
    checkpoint = written(tmp_path, {"state/0/0/2.snapshot": "x"})
    assert (
        state_versions.damaged_snapshots(checkpoint, [state_versions.load_of(checkpoint, store("2.snapshot"), 2)]) == {}
    )
