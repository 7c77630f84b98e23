"""Verify checks the folder itself: whether it is a checkpoint, readable, and without a half-done change."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from respool.checkpoint.journal import apply, history
from respool.storage.local import LocalWriter
from support.checkpoints import crc_of, tables_of, written
from support.verifying import STORE, Damage, assert_named_and_mended, cut_off, findings, look


def _as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


FOLDERS = [
    Damage(
        "offsets as a file", "hdfs", lambda c: _as_file(c / "offsets"), "offsets is a file; expected a folder", "copy"
    ),
    Damage("a partition as a file", "hdfs", lambda c: _as_file(c / "state/0/1"), "state/0/1 is a file", "copy"),
    Damage("a folder as a batch", "hdfs", lambda c: (c / "offsets/14").mkdir(), "offsets/14 is a folder", to=14),
    Damage(
        "a leftover",
        "hdfs",
        lambda c: (c / STORE / ".15.delta.f00.tmp").write_text("x"),
        f"{STORE}/.15.delta.f00.tmp",
        "may be deleted",
        status="note",
    ),
    Damage(
        "an SST that no zip needs",
        "rocksdb",
        lambda c: shutil.copy(tables_of(c / STORE / "14.zip")[0], c / STORE / "SSTs/000001-x.sst"),
        f"{STORE}/SSTs/000001-x.sst",
        "may be deleted",
        status="note",
    ),
    Damage(
        "a checksum without its delta",
        "hdfs",
        lambda c: shutil.copy(crc_of(c / STORE / "14.delta"), crc_of(c / STORE / "15.delta")),
        f"{STORE}/.15.delta.crc",
        "may be deleted",
        status="note",
    ),
    Damage("a rewind cut off", "hdfs", cut_off, history.PENDING, "respool checkpoint undo"),
    Damage(
        "a damaged journal",
        "hdfs",
        lambda c: written(c / history.PENDING, "{"),
        f"{history.PENDING} is damaged",
        "Ask for help",
    ),
]


@pytest.mark.parametrize("damage", FOLDERS, ids=lambda damage: damage.name)
def test_damage_to_the_folder_is_named_and_its_remedy_mends_it(damage: Damage, copy: Callable[..., Path]) -> None:
    assert_named_and_mended(damage, copy)


def test_a_rewind_that_was_interrupted_is_clean_once_it_is_finished(copy: Callable[..., Path]) -> None:
    checkpoint = copy("hdfs")
    cut_off(checkpoint)
    (finding,) = findings(look(checkpoint), "broken")
    assert f"respool checkpoint rewind {checkpoint} --to-batch 9" in finding.remedy
    files = LocalWriter(checkpoint)
    pending = history.pending(files)
    assert pending is not None
    apply.finish(pending, files)
    assert all(check.status == "ok" for check in look(checkpoint))


@pytest.mark.parametrize(
    ("inside", "what", "remedy"),
    [
        ([], "it is empty", "begins with batch 0"),
        (["notes.txt", "data/part-0.parquet"], "it holds data, notes.txt", "Check the path"),
        (["table/_delta_log/0.json", "_delta_log/0.json"], "a table written by a query", "checkpointLocation"),
        (["visits/offsets/0", "visits/metadata"], "but contains checkpoints: visits", "/visits"),
    ],
    ids=["empty", "foreign", "a table", "the folder above"],
)
def test_a_folder_that_is_not_a_checkpoint_is_reported_as_what_it_is(
    tmp_path: Path, inside: list[str], what: str, remedy: str
) -> None:
    for path in inside:
        written(tmp_path / path, "x")
    (finding,) = findings(look(tmp_path), "broken")
    assert str(tmp_path) in finding.what
    assert what in finding.what
    assert remedy in finding.remedy


def test_a_checkpoint_without_a_batch_is_sound(tmp_path: Path) -> None:
    written(tmp_path / "metadata", '{"id":"8491b5b1-af43-4266-97d6-99e64b7a775c"}')
    assert all(check.status == "ok" for check in look(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
@pytest.mark.parametrize(
    "path", ["state/0/0/14.delta", "offsets/13", "offsets/3", "sources/0/13", "metadata", "state/0/1", "commits", "."]
)
def test_what_may_not_be_read_is_named(originals: Callable[..., Path], path: str) -> None:
    with TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        checkpoint = Path(open_to_all) / "checkpoint"
        shutil.copytree(originals("hdfs"), checkpoint)
        look(checkpoint)  # imports what it needs, which nobody else may read
        (checkpoint / path).chmod(0)
        os.seteuid(65534)
        try:
            checks = look(checkpoint)
        finally:
            os.seteuid(0)
    (finding,) = findings(checks, "broken")
    assert f"{checkpoint if path == '.' else path} cannot be read: " in finding.what
    assert "ermission denied" in finding.what
    assert "Grant this account read access" in finding.remedy
