"""A store of savepoints: what is there, what counts, and what may be deleted."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from respool.comparing.model import Cutoff, cutoff_after
from respool.errors import CheckpointError, DamagedFileError
from respool.savepoint.manifest import SavedFile, SavepointManifest, text_of
from respool.savepoint.store import SavepointStore, check_name, find, is_name, new_folder, read
from respool.sinks.registry import SinkPosition
from support.small_checkpoint import written

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
DATA = "20260102T030405Z-0123456789ab"
OLD = "20250102T030405Z-0123456789ab"


def manifest(name: str, data: str = DATA, created: datetime = NOW, path: str = "metadata") -> SavepointManifest:
    return SavepointManifest(
        name=name,
        created=created,
        reason=None,
        data=data,
        checkpoint="/c",
        query_id="q",
        batch=7,
        planned_ms=0,
        watermark_ms=0,
        sources=(),
        conf={},
        operators=0,
        files=(SavedFile(path, 2, "0" * 64),),
        sink=SinkPosition("console"),
        run=None,
        spark=None,
        respool="1",
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def kept(root: Path, name: str, created: datetime = NOW) -> None:
    """A savepoint in a store."""
    written(root / name, {"manifest.json": text_of(manifest(name, created=created)), f"{DATA}/metadata": "{}"})


def inside(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_savepoints_are_listed_the_oldest_first_and_damaged_ones_apart(root: Path) -> None:
    kept(root, "a", NOW + timedelta(1))
    kept(root, "c")
    kept(root, "b")
    written(root, {"aa-cut-off/x": "x", "damaged/manifest.json": "{", "a-file": "x", ".hidden/manifest.json": "{"})
    store = SavepointStore(str(root))
    savepoints, damaged = store.read_all()
    assert [savepoint.manifest.name for savepoint in savepoints] == store.names() == ["b", "c", "a"]
    assert store.all() == savepoints
    assert [savepoint.location for savepoint in savepoints] == [f"{root}/{name}" for name in "bca"]
    # A file that has the place of a savepoint is damage, too; what has no name of a savepoint is something else.
    assert [text.partition("/manifest.json")[0] for text in damaged if "is damaged" in text] == [f"{root}/damaged"]
    assert not any(".hidden" in text or "cut-off" in text for text in damaged)


def test_a_manifest_that_cannot_be_read_is_reported(root: Path) -> None:
    (root / "odd" / "manifest.json").mkdir(parents=True)
    kept(root, "z")
    savepoints, damaged = SavepointStore(str(root)).read_all()
    assert [savepoint.manifest.name for savepoint in savepoints] == ["z"]
    assert len(damaged) == 1
    assert damaged[0] == f"{root}/odd/manifest.json is a folder; expected a regular file."


def test_a_savepoint_is_got_by_name_or_place(root: Path) -> None:
    kept(root, "one")
    store = SavepointStore(str(root))
    for got in (store.get("one"), find("one", store), find(str(root / "one"), store), read(str(root / "one"))):
        assert (got.location, got.manifest) == (f"{root}/one", manifest("one"))
        assert got.data == f"{root}/one/{DATA}" == got.files().root
        assert got.checkpoint().is_copy
        assert got.checkpoint().folders[""] == ["metadata"]
    assert (store.has("one"), store.has("two")) == (True, False)


def test_a_savepoint_that_is_not_there(root: Path) -> None:
    store = SavepointStore(str(root))
    with pytest.raises(CheckpointError, match=r"There is no savepoint one in .*store\. The store is empty\.$"):
        store.get("one")
    kept(root, "ones")
    kept(root, "far")
    with pytest.raises(CheckpointError, match=r"Existing savepoints: far, ones\..*ones"):
        find("one", store)
    with pytest.raises(CheckpointError, match=r"There is no savepoint at .*/one: it has no manifest\.json"):
        find(str(root / "one"), store)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data": "../other"}, "other"),
        ({"files": [{"path": "../x", "size": 1, "sha256": "0" * 64}]}, "x"),
        ({"files": [{"path": "_respool/run.json", "size": 1, "sha256": "0" * 64}]}, "cannot be a file of a savepoint"),
    ],
)
def test_a_manifest_that_names_other_files_is_not_used(root: Path, change: dict[str, object], reason: str) -> None:
    facts = json.loads(text_of(manifest("one")))
    written(root, {"one/manifest.json": json.dumps(facts | change)})
    with pytest.raises(DamagedFileError, match=reason):
        SavepointStore(str(root)).get("one")


def test_files_of_a_checkpoint_may_have_names_like_respools_own_deeper_down(root: Path) -> None:
    facts = replace(manifest("one"), files=(SavedFile("state/_respool/1", 1, "0" * 64),))
    written(root, {"one/manifest.json": text_of(facts)})
    assert SavepointStore(str(root)).get("one").manifest == facts


def test_a_savepoint_that_is_finished_counts_and_replaces_what_was_cut_off(root: Path) -> None:
    written(root / "one", {f"{DATA}/metadata": "{}", f"{OLD}/metadata": "old"})
    store = SavepointStore(str(root))
    made = store.add(manifest("one"))
    assert (made.location, made.manifest) == (f"{root}/one", manifest("one"))
    assert inside(root) == ["one", f"one/{DATA}", f"one/{DATA}/metadata", "one/manifest.json"]
    with pytest.raises(CheckpointError, match="The savepoint one already exists"):
        store.add(manifest("one", OLD))
    assert store.get("one").manifest.data == DATA


def test_a_name_has_to_be_free(root: Path) -> None:
    store = SavepointStore(str(root))
    store.require_free("one")
    written(root, {f"one/{OLD}/metadata": "cut off"})
    store.require_free("one")
    kept(root, "one")
    with pytest.raises(CheckpointError, match="The savepoint one already exists"):
        store.require_free("one")
    with pytest.raises(CheckpointError, match="Invalid savepoint name 'no/name'"):
        store.require_free("no/name")


@pytest.mark.parametrize(
    ("path", "held"), [("two/photos/a", "photos"), ("two/letter", "letter"), (f"two/{DATA}x/a", f"{DATA}x")]
)
def test_what_is_not_a_savepoint_is_neither_deleted_nor_replaced(root: Path, path: str, held: str) -> None:
    kept(root, "two")
    written(root, {path: "mine", "two/zzz": "mine"})
    before = inside(root)
    with pytest.raises(CheckpointError, match=rf"two is not a savepoint: it contains '{held}'"):
        SavepointStore(str(root)).delete("two")
    (root / "two" / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=rf"two is not a savepoint: it contains '{held}'"):
        SavepointStore(str(root)).require_free("two")
    assert [*inside(root), "two/manifest.json"] == sorted(before, key=lambda path: path == "two/manifest.json")


def test_a_savepoint_is_deleted_with_what_was_cut_off(root: Path) -> None:
    kept(root, "one")
    kept(root, "two")
    written(root, {f"one/{OLD}/a/b": "old", f"one/.manifest.json.{'0' * 32}.tmp": "cut off"})
    store = SavepointStore(str(root))
    left = store.writer().temporary("one")
    store.delete("one")
    assert left
    assert store.names() == ["two"]
    assert not (root / "one").exists()


def test_what_was_not_finished_is_discarded_and_what_counts_is_kept(root: Path) -> None:
    kept(root, "one")
    store = SavepointStore(str(root))
    store.discard("one", DATA)
    assert (root / "one" / DATA / "metadata").exists()
    written(root, {f"one/{OLD}/metadata": "old", f"two/{OLD}/metadata": "old"})
    assert (store.leftovers("one"), store.leftovers("two"), store.leftovers("three")) == (False, True, False)
    store.discard("one", OLD)
    store.discard("two", OLD)
    assert inside(root) == ["one", f"one/{DATA}", f"one/{DATA}/metadata", "one/manifest.json"]


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "1", "x" * 100])
def test_names_of_savepoints(name: str) -> None:
    assert is_name(name)
    check_name(name)


@pytest.mark.parametrize("name", ["", ".a", "-a", "a/b", "a b", "x" * 101])
def test_what_is_no_name_of_a_savepoint(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(CheckpointError, match="Invalid savepoint name"):
        check_name(name)


def test_folders_of_savepoints_differ_and_are_recognized(root: Path) -> None:
    first, second = new_folder(), new_folder()
    assert first != second
    written(root, {f"one/{first}/metadata": "{}", f"one/{second}/metadata": "{}"})
    SavepointStore(str(root)).delete("one")
    assert not (root / "one").exists()


def test_rows_count_as_written_after_a_savepoint_by_what_its_sink_says() -> None:
    known = SinkPosition("kafka:a", offsets={"0": 5, "1": 6}, version=3)
    assert cutoff_after(replace(manifest("one"), sink=known)) == Cutoff(7, NOW, {0: 5, 1: 6}, 3, "kafka:a")
    assert cutoff_after(manifest("one")) == Cutoff(7, NOW, None, None, "console")
