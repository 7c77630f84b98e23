"""Files copied from one place to another, and checked."""

import hashlib
from pathlib import Path

import pytest

from respool.errors import CheckpointError
from respool.savepoint.copying import check, copy, copy_verified
from respool.savepoint.manifest import SavedFile
from respool.storage.local import LocalWriter

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
