"""What `savepoint verify` reports."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from respool.savepoint.manifest import SavedFile
from respool.savepoint.store import SavepointStore, StoredSavepoint
from respool.savepoint.verify import verify
from support import checkpoints
from support.savepoints import save


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
