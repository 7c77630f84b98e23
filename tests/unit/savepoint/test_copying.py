"""Files copied from one place to another, and checked."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from respool.errors import CheckpointError
from respool.savepoint.copying import check, copy, copy_verified, verify
from respool.savepoint.manifest import SavedFile
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.storage.local import LocalWriter
from support import checkpoints
from support.savepoints import save

LARGE = bytes(range(256)) * 40_000  # more than one piece


@pytest.fixture
def source(tmp_path: Path) -> LocalWriter:
    (tmp_path / "source" / "sub").mkdir(parents=True)
    (tmp_path / "source" / "a").write_bytes(b"12345")
    (tmp_path / "source" / "sub" / "large").write_bytes(LARGE)
    return LocalWriter(tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> LocalWriter:
    (tmp_path / "target").mkdir()
    return LocalWriter(tmp_path / "target")


def saved(path: str, data: bytes) -> SavedFile:
    return SavedFile(path, len(data), hashlib.sha256(data).hexdigest())


FILES = (saved("a", b"12345"), saved("sub/large", LARGE))


def test_a_copy_has_the_bytes_and_says_what_they_are(source: LocalWriter, target: LocalWriter) -> None:
    calls: list[tuple[int, int]] = []
    result = copy(["a", "sub/large"], source, target, "in/", lambda done, total: calls.append((done, total)))
    assert result == FILES
    assert target.read("in/a") == b"12345"
    assert target.read("in/sub/large") == LARGE
    assert calls == [(1, 2), (2, 2)]


def test_checkpoint_files_are_copied(source: LocalWriter, target: LocalWriter) -> None:
    calls: list[tuple[int, int]] = []
    copy_verified(FILES, source, target, "in/", lambda done, total: calls.append((done, total)))
    assert target.read("in/sub/large") == LARGE
    assert calls == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"12346", "other bytes than were saved"),
        (b"123456", "6 bytes, expected 5"),
        (None, "is missing"),
    ],
)
def test_a_file_that_is_not_as_it_was_stops_the_copy_and_is_not_left(
    source: LocalWriter, target: LocalWriter, data: bytes | None, why: str
) -> None:
    place = Path(source.root) / "a"
    place.unlink()
    if data is not None:
        place.write_bytes(data)
    with pytest.raises(CheckpointError, match=why):
        copy_verified(FILES[:1], source, target, "in/", lambda done, total: None)
    assert not target.facts(["in/a"])
    (wrong,) = check(FILES, source, lambda done, total: None)
    assert why in wrong


def test_files_as_they_were_pass_the_check(source: LocalWriter) -> None:
    calls: list[tuple[int, int]] = []
    assert check(FILES, source, lambda done, total: calls.append((done, total))) == []
    assert calls == [(1, 2), (2, 2)]


def test_a_file_that_cannot_be_read_fails_the_check(source: LocalWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise CheckpointError("no permission")

    monkeypatch.setattr(source, "chunks", fail)
    assert check(FILES[:1], source, lambda done, total: None) == ["no permission"]


@pytest.fixture
def savepoint(tmp_path: Path) -> StoredSavepoint:
    return save(checkpoints.unpack(tmp_path, "changelog"), SavepointStore(str(tmp_path / "store")))


def test_nothing_is_wrong_with_a_savepoint_and_nothing_is_noted(savepoint: StoredSavepoint) -> None:
    calls: list[tuple[int, int]] = []
    result = verify(savepoint, lambda done, total: calls.append((done, total)))
    assert (result.wrong, result.notes) == ((), ())
    total = len(savepoint.manifest.files)
    assert calls == [(done, total) for done in range(1, total + 1)]


def test_a_file_that_is_not_in_the_manifest_is_noted_and_nothing_else(savepoint: StoredSavepoint) -> None:
    (Path(savepoint.files().root) / "state" / "extra").write_text("x")
    result = verify(savepoint)
    assert result.wrong == ()
    assert result.notes == ("state/extra is not part of this savepoint.",)


def test_a_changed_file_is_reported(savepoint: StoredSavepoint) -> None:
    path = Path(savepoint.files().root) / "metadata"
    path.write_bytes(path.read_bytes() + b" ")
    result = verify(savepoint)
    assert len(result.wrong) == 1
    assert "metadata is damaged: it has" in result.wrong[0]


def test_a_savepoint_without_what_a_start_needs_is_reported_though_all_listed_files_are_sound(
    savepoint: StoredSavepoint,
) -> None:
    commit = f"commits/{savepoint.manifest.batch}"
    kept = tuple(file for file in savepoint.manifest.files if file.path != commit)
    (Path(savepoint.files().root) / commit).unlink()
    result = verify(replace(savepoint, manifest=replace(savepoint.manifest, files=kept)))
    assert result.wrong == (f"{commit} is not kept.",)


def test_a_state_file_that_was_damaged_when_it_was_saved_is_reported(savepoint: StoredSavepoint) -> None:
    files = savepoint.manifest.files
    old = next(file for file in files if file.path.endswith(".changelog"))
    data = b"damaged"
    (Path(savepoint.files().root) / old.path).write_bytes(data)
    new = SavedFile(old.path, len(data), hashlib.sha256(data).hexdigest())
    manifest = replace(savepoint.manifest, files=tuple(new if file is old else file for file in files))
    result = verify(replace(savepoint, manifest=manifest))
    assert len(result.wrong) == 1
    assert old.path in result.wrong[0]
