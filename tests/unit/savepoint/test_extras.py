"""Files in a checkpoint that Spark does not define: schema logs of Delta sources are saved, the rest is listed."""

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from respool.checkpoint.journal import apply
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.undo import plan_undo
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.cli.render import savepoint as render_savepoint
from respool.errors import CheckpointError
from respool.savepoint import extras
from respool.savepoint.extras import NotIncluded
from respool.savepoint.manifest import parse, text_of
from respool.savepoint.restore import plan_restore
from respool.savepoint.store import SavepointStore
from respool.storage.local import LocalReader, LocalWriter
from support.checkpoints import unpack
from support.savepoints import fork, fork_plan, restore, save

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
LOG = "_schema_log_5d0e6b1c-0000-0000-0000-000000000000"


def entry(checkpoint: Path, version: int) -> str:
    """An entry of a schema log, as Delta 4.4 writes it."""
    facts = {
        "tableId": LOG.removeprefix("_schema_log_"),
        "deltaCommitVersion": version,
        "dataSchemaJson": '{"type":"struct","fields":[]}',
        "sourceMetadataPath": f"file:{checkpoint}/sources/0",
    }
    return f"v1\n{json.dumps(facts)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = unpack(tmp_path, "hdfs")
    for place in (LOG, f"tracking/deep/{LOG}_second"):
        (folder / place).mkdir(parents=True)
        for version in (0, 1):
            (folder / place / str(version)).write_text(entry(folder, version))
            (folder / place / f".{version}.crc").write_bytes(b"crc")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text("abc")
    (folder / "notes" / "b.txt").write_text("de")
    (folder / "README").write_text("mine")
    return folder


@pytest.fixture
def store(tmp_path: Path) -> SavepointStore:
    return SavepointStore(str(tmp_path / "store"))


def test_schema_logs_are_in_a_savepoint_and_the_rest_is_listed(checkpoint: Path, store: SavepointStore) -> None:
    savepoint = save(checkpoint, store)
    paths = {file.path for file in savepoint.manifest.files}
    logs = {f"{place}/{name}" for place in (LOG, f"tracking/deep/{LOG}_second") for name in ("0", "1", ".0.crc")}
    assert logs <= paths
    assert savepoint.manifest.not_included == (NotIncluded("README", 1, 4), NotIncluded("notes", 2, 5))
    assert store.get("one").manifest == savepoint.manifest
    shown = "\n".join(render_savepoint.savepoint_lines(savepoint))
    assert "Left out     README (1 file, 4 B), notes (2 files, 5 B)" in shown
    assert render_savepoint.savepoint_json(savepoint)["not_included"][1] == {"path": "notes", "files": 2, "size": 5}


def test_a_checkpoint_with_nothing_else_leaves_nothing_out(tmp_path: Path, store: SavepointStore) -> None:
    savepoint = save(unpack(tmp_path, "kafka"), store)
    assert savepoint.manifest.not_included == ()
    assert not [line for line in render_savepoint.savepoint_lines(savepoint) if line.startswith("Left out")]


def test_a_manifest_of_before_can_be_read(checkpoint: Path, store: SavepointStore) -> None:
    facts = json.loads(text_of(save(checkpoint, store).manifest))
    del facts["not_included"]
    assert parse("manifest.json", json.dumps(facts).encode()).not_included == ()


def test_a_restore_installs_schema_logs_and_keeps_other_files(checkpoint: Path, store: SavepointStore) -> None:
    savepoint = save(checkpoint, store, batch=9)
    (checkpoint / LOG / "2").write_text(entry(checkpoint, 2))
    before = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}
    (checkpoint / "notes" / "c.txt").write_text("later")
    request = RewindRequest(ToBatch(10), allow_data_loss=True)
    there = CheckpointSnapshot(LocalReader(checkpoint))
    plan = plan_restore(savepoint, there, str(checkpoint), request, RewindContext(now=NOW, ours=True))
    assert "Not Spark's, and left in place: README, notes." in plan.notes
    restore(savepoint, checkpoint)
    assert sorted(file.name for file in (checkpoint / LOG).glob("[0-9]*")) == ["0", "1"]
    assert (checkpoint / LOG / "1").read_text() == entry(checkpoint, 1)
    assert (checkpoint / "notes" / "c.txt").read_text() == "later"
    assert (checkpoint / "README").exists()
    apply.apply(plan_undo(CheckpointSnapshot(LocalReader(checkpoint)), NOW), LocalWriter(checkpoint))
    assert {file: file.read_bytes() for file in before} == before


def test_the_schema_log_of_a_fork_names_the_forks_own_source(
    checkpoint: Path, store: SavepointStore, tmp_path: Path
) -> None:
    savepoint = save(checkpoint, store)
    where = tmp_path / "a fork"
    assert any("not in the savepoint: README, notes" in note for note in fork_plan(savepoint, where).notes)
    fork(savepoint, where)
    for place in (LOG, f"tracking/deep/{LOG}_second"):
        assert (where / place / "1").read_text() == entry(where, 1)
        assert not (where / place / ".1.crc").exists()  # it would not fit any more
    assert not (where / "notes").exists()


def test_schema_logs_that_are_too_large_are_left_out(
    checkpoint: Path, store: SavepointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "_MOST_BYTES", 100)
    savepoint = save(checkpoint, store)
    assert [extra.path for extra in savepoint.manifest.not_included] == ["README", LOG, "notes", "tracking"]


def test_links_are_not_followed(checkpoint: Path, store: SavepointStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0").write_text("secret")
    (checkpoint / "_schema_log_linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"_schema_log_linked.*symbolic link"):
        save(checkpoint, store)
    assert store.names() == []
