"""Files installed in a checkpoint name other files by that checkpoint's address."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from respool.checkpoint.journal import apply, history
from respool.checkpoint.journal.steps import Journal, LogEnds, Move, Prune, Restore
from respool.delta.restore import RestoreTable
from respool.errors import CheckpointError
from respool.savepoint import install
from respool.savepoint.install import moved_to
from respool.savepoint.manifest import SavedFile
from respool.storage.local import LocalWriter
from support import small_checkpoint
from support.small_checkpoint import written

SCHEMA = "state/0/_stateSchema/default/0_1b4e28ba-2fa1-11d2-883f-0016d3cca427"


def metadata(*addresses: str) -> str:
    """The metadata of an operator, as Spark writes it."""
    store = {"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": list(addresses)}
    facts = {"operatorInfo": {"operatorId": 0}, "stateStoreInfo": [store], "operatorPropertiesJson": '{"a":"b/c"}'}
    return "v2\n" + json.dumps(facts, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("before", ["file:/old", 'file:/a "quoted" \\ folder', "file:/café/état", "s3a://bucket/old"])
@pytest.mark.parametrize("folder", ["new", 'a "quoted" \\ folder', "café"])
def test_the_addresses_of_schemas_are_those_of_the_target(before: str, folder: str, tmp_path: Path) -> None:
    target = tmp_path / folder
    moved = moved_to(str(target), metadata(f"{before}/{SCHEMA}"))
    assert moved == metadata(f"file:{target}/{SCHEMA}")


@pytest.mark.parametrize(
    ("before", "after"),
    [("s3a://old", "s3a://bucket/new"), ("s3://old", "s3://bucket/new"), ("file:/old", "s3a://bucket/new")],
)
def test_the_address_of_a_store_keeps_its_kind(before: str, after: str) -> None:
    assert moved_to("s3://bucket/new/", metadata(f"{before}/{SCHEMA}")) == metadata(f"{after}/{SCHEMA}")


def test_a_key_of_a_store_may_look_like_an_address() -> None:
    # Hadoop merges the slashes of a path, and so does the canonical form.
    for key in ("a:/b", "a://b"):
        assert moved_to(f"s3://bucket/{key}", metadata(f"s3a://old/{SCHEMA}")) == metadata(
            f"s3a://bucket/a:/b/{SCHEMA}"
        )


def test_what_names_no_schema_stays(tmp_path: Path) -> None:
    for text in (
        metadata(),
        metadata("file:/old/state/0/other"),
        'v2\n{"a": "\t/state/0/_stateSchema/x"}',
        "v2\nno JSON",
    ):
        assert moved_to(str(tmp_path), text) == text


# What is installed

RUN = "state/0/_metadata/v2/0"
LOG = "_schema_log_a/0"


def known(source: LocalWriter, paths: list[str]) -> list[SavedFile]:
    data = {path: source.read(path) for path in paths}
    return [SavedFile(path, len(text), sha256(text).hexdigest()) for path, text in data.items()]


def source(root: Path) -> tuple[LocalWriter, list[str]]:
    """A checkpoint that names files by its own address, and the paths of its files."""
    entry = json.dumps({"sourceMetadataPath": "file:/old/sources/0"})
    files = {
        "metadata": '{"id":"a"}',
        ".metadata.crc": "x",
        "offsets/0": "v1",
        "offsets/.0.crc": "x",
        RUN: metadata(f"file:/old/{SCHEMA}"),
        "state/0/_metadata/v2/.0.crc": "x",
        LOG: f"v1\n{entry}",
        "_schema_log_a/.0.crc": "x",
        "_schema_log_a/1": "v1\n{}",
        "_schema_log_a/.1.crc": "x",
    }
    written(root, files)
    return LocalWriter(root), list(files)


@pytest.mark.parametrize("query_id", [None, "new"])
@pytest.mark.parametrize("is_known", [True, False])
def test_files_that_are_adapted_come_without_their_old_checksums(
    tmp_path: Path, is_known: bool, query_id: str | None
) -> None:
    files, paths = source(tmp_path / "old")
    target = tmp_path / "new"
    brought = install.install_set(files, known(files, paths) if is_known else None, paths, str(target), query_id)
    adapted = [RUN, LOG, *(["metadata"] if query_id else [])]
    assert sorted(brought.written) == sorted(adapted)
    assert brought.written[RUN].decode() == metadata(f"file:{target}/{SCHEMA}")
    assert json.loads(brought.written[LOG].decode()[3:]) == {"sourceMetadataPath": f"file:{target}/sources/0"}
    stale = {f"{folder}{slash}.{name}.crc" for folder, slash, name in (path.rpartition("/") for path in adapted)}
    assert list(brought.paths) == [path for path in paths if path not in stale]
    assert brought.sizes == {
        path: len(brought.written[path]) if path in adapted else (tmp_path / "old" / path).stat().st_size
        for path in brought.paths
    }
    assert brought.size == sum(brought.sizes.values())
    if query_id:
        assert json.loads(brought.written["metadata"]) == {"id": "new"}
    to = LocalWriter(target)
    install.stage(brought, "ID", to)
    assert sorted(to.below("")) == sorted(f"_respool/staged/ID/{path}" for path in brought.paths)
    for path in brought.paths:
        assert to.read(f"_respool/staged/ID/{path}") == brought.written.get(path, files.read(path))


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    files, paths = source(tmp_path)
    (tmp_path / RUN).unlink()
    with pytest.raises(CheckpointError, match=f"{RUN} is missing. Use another savepoint"):
        install.install_set(files, [], paths, "/new", None)


def test_nothing_stays_of_what_was_copied_when_a_file_is_damaged(tmp_path: Path) -> None:
    files, paths = source(tmp_path / "old")
    brought = install.install_set(files, known(files, paths), paths, str(tmp_path / "new"), None)
    written(tmp_path / "old", {"offsets/0": "v2"})
    to = LocalWriter(tmp_path / "new")
    with pytest.raises(CheckpointError, match="other bytes than were saved"):
        install.stage(brought, "ID", to)
    assert to.below("") == []


def test_files_move_out_in_the_order_that_does_least_harm(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(
        tmp_path / "c", 2, more=dict.fromkeys(["sources/0/1", "sources/0/2", "own/9", "0/offsets"], "x")
    )
    assert install.safe_move_order(there) == [
        *("state/0/0/1.delta", "state/0/0/2.delta"),
        *("commits/1", "commits/0"),
        *("offsets/1", "offsets/0"),
        *("own/9", "sources/0/2", "sources/0/1", "0/offsets", "metadata"),
    ]


def test_existing_files_move_out_before_new_files_move_in(tmp_path: Path) -> None:
    there = small_checkpoint.kafka(tmp_path / "c", 1, more={"own/a": "x", "_schema_log_a/0": "x"})
    files, paths = source(tmp_path / "old")
    brought = install.install_set(files, None, paths, str(tmp_path / "c"), None)
    table = Restore(RestoreTable("/tables/a", 7, 3, "an-id", 9, 4))
    steps = install.steps(there, brought, "ID", [table])
    moved = [move for move in steps if isinstance(move, Move)]
    aside = ["state/0/0/1.delta", "commits/0", "offsets/0", "_schema_log_a/0", "metadata"]
    assert [(move.source, move.target) for move in moved[:5]] == [(name, f"_respool/aside/ID/{name}") for name in aside]
    assert [move.size for move in moved[:5]] == [(tmp_path / "c" / path).stat().st_size for path in aside]
    assert steps[5:8] == [table, Prune("state"), Prune("sources")]
    assert moved[5:] == [Move(f"_respool/staged/ID/{path}", path, brought.sizes[path]) for path in brought.paths]
    assert install.steps(None, brought, "ID") == steps[6:]


# Carrying it out


def journal(brought: install.InstallSet, operation: Any, newest: LogEnds) -> Journal:
    steps = tuple(install.steps(None, brought, "ID"))
    now = datetime(2026, 1, 2, tzinfo=timezone.utc)
    return Journal("ID", operation, None, "", None, now, 1, False, newest, LogEnds(0, 0), steps)


def small(root: Path) -> install.InstallSet:
    there = small_checkpoint.kafka(root, 1)
    paths = ["offsets/0", "commits/0", "metadata"]
    return install.install_set(there.files, None, paths, "/elsewhere", None)


def content(root: Path) -> Mapping[str, bytes]:
    files = LocalWriter(root)
    return {path: files.read(path) for path in files.below("") if not path.startswith("_respool/")}


def test_a_restore_first_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought, to = small(tmp_path / "old"), LocalWriter(tmp_path / "new")
    written(tmp_path / "new", {"_respool/staged/OLD/offsets/0": "of a restore that was cut off"})
    there: list[list[str]] = []
    stage = install.stage

    def staged(*words: Any) -> None:
        there.append(to.below("_respool/staged"))
        stage(*words)

    monkeypatch.setattr(install, "stage", staged)
    install.carry_out(journal(brought, "restore", LogEnds(-1, -1)), brought, to)
    assert there == [[]]
    assert content(tmp_path / "new").keys() == {"offsets/0", "commits/0", "metadata"}
    assert to.below("_respool/staged") == []


def test_copies_of_a_change_that_is_pending_are_left_alone(tmp_path: Path) -> None:
    brought, to = small(tmp_path / "old"), LocalWriter(tmp_path / "new")
    pending = replace(journal(brought, "restore", LogEnds(-1, -1)), id="OTHER", steps=())
    written(tmp_path / "new", {history.PENDING: history.text_of(pending), "_respool/staged/OTHER/a": "x"})
    written(tmp_path / "new", {"_respool/staged/OLD/a": "x"})
    with pytest.raises(CheckpointError, match="Another change to this checkpoint is in progress"):
        install.carry_out(journal(brought, "restore", LogEnds(-1, -1)), brought, to)
    assert {"_respool/staged/OTHER/a", "_respool/staged/OLD/a"} <= set(to.below("_respool/staged"))


def test_a_fork_is_fenced_before_its_first_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought, to = small(tmp_path / "old"), LocalWriter(tmp_path / "new")
    fence: list[bytes] = []
    stage = install.stage

    def staged(*words: Any) -> None:
        fence.append(to.read("offsets/1"))
        stage(*words)

    monkeypatch.setattr(install, "stage", staged)
    install.carry_out_fork(journal(brought, "fork", LogEnds(-1, -1)), brought, to)
    (at_first,) = fence
    assert at_first.startswith(apply.FENCE)
    assert content(tmp_path / "new").keys() == set(brought.paths)


@pytest.mark.parametrize("moved", range(4))
def test_a_fork_that_was_interrupted_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int) -> None:
    brought, old, to = small(tmp_path / "old"), LocalWriter(tmp_path / "old"), LocalWriter(tmp_path / "new")
    begun = apply.begin(journal(brought, "fork", LogEnds(-1, -1)), to)
    if moved:
        install.stage(brought, "ID", to)
        for move in begun.moves[: moved - 1]:
            to.move(move.source, move.target)
    synced: list[bool] = []
    sync = LocalWriter.sync

    def watched(self: LocalWriter, everything: bool = False) -> None:
        synced.append(everything)
        sync(self, everything)

    monkeypatch.setattr(LocalWriter, "sync", watched)
    install.carry_out_fork(begun, brought, to)
    assert content(tmp_path / "new") == {path: old.read(path) for path in brought.paths}
    assert synced[0]  # the process that began it may not have come to it
    assert history.pending(to) is None


def test_a_fork_that_cannot_be_copied_leaves_nothing(tmp_path: Path) -> None:
    files, paths = source(tmp_path / "old")
    brought = install.install_set(files, known(files, paths), paths, str(tmp_path / "new"), "new")
    written(tmp_path / "old", {"offsets/0": "v2"})
    to = LocalWriter(tmp_path / "new")
    with pytest.raises(CheckpointError, match="other bytes than were saved"):
        install.carry_out_fork(journal(brought, "fork", LogEnds(-1, -1)), brought, to)
    assert to.below("") == []
