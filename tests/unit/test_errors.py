"""What callers can read from an error instead of its message."""

import ast
import copy
import os
import pickle
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

import pytest

from respool import errors
from respool.checkpoint import reachability, state_versions
from respool.checkpoint.journal import apply, history
from respool.checkpoint.journal.steps import Journal
from respool.checkpoint.planning.request import LastBatches, RewindContext, RewindRequest
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.cli.options import require_answer
from respool.format import logs
from respool.savepoint import manifest
from respool.storage import lease
from respool.storage.folder import read_error, reason, translate_errors
from respool.storage.local import LocalReader, LocalWriter
from respool.storage.open import open_reader
from support.checkpoints import unpack

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def journal_of(folder: Path) -> Journal:
    return plan_rewind(
        CheckpointSnapshot(LocalReader(folder)),
        RewindRequest(LastBatches(2), words="--last 2"),
        RewindContext(now=NOW, ours=True),
    ).journal


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A checkpoint with a rewind that was stopped in the middle."""
    folder = unpack(tmp_path, "hdfs")
    journal, files = journal_of(folder), LocalWriter(folder)

    def stop(done: int) -> None:
        if done > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply.apply(journal, files, stop)
    return folder


def unasked(*_: object) -> NoReturn:
    pytest.fail("the sink was asked for its position")


EXAMPLES = [
    errors.UsageError("name a batch", "--batch"),
    errors.CheckpointNotFoundError("orders", "it is a file", "Name a folder."),
    errors.CheckpointInUseError("orders", "process 7"),
    errors.ChangeRefusedError([errors.Refusal("The query runs.", "Stop it first.")]),
    errors.BatchUnavailableError("offsets/3 is not kept"),
    errors.DamagedFileError("offsets/3", "it is empty", "Restore a copy."),
    errors.UnknownFormatVersionError("offsets/3", "v9", ("v1", "v2"), "Use a newer respool."),
    errors.UnreadableFileError("offsets/3", "is missing"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_can_be_sent_to_another_process(error: errors.RespoolError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert vars(other) == vars(error)
        assert str(other) == str(error)


def test_messages_are_made_from_the_fields() -> None:
    assert [str(error) for error in EXAMPLES] == [
        "--batch: name a batch",
        "There is no checkpoint orders: it is a file. Name a folder.",
        "orders is in use by process 7. Stop that first. Nothing was changed.",
        "The change is refused. The query runs. Stop it first. Nothing was changed.",
        "offsets/3 is not kept.",
        "offsets/3 is damaged: it is empty. Restore a copy.",
        "offsets/3 has format version v9; this respool supports v1, v2. Use a newer respool.",
        "offsets/3 is missing.",
    ]


def test_a_summary_continues_another_sentence() -> None:
    assert errors.DamagedFileError("a", "it is empty", "Restore a copy.").summary == "a is damaged: it is empty"
    assert errors.CheckpointNotFoundError("a", remedy="Name a folder.").summary == "There is no checkpoint a"
    assert errors.CheckpointInUseError("a", None).summary == "a is in use by a process that has just ended"
    assert errors.CheckpointError("Anything.").summary == "Anything."
    assert reason(errors.UnreadableFileError("a", "is a pipe; expected a regular file")) == (
        "is a pipe; expected a regular file"
    )


def test_only_usage_is_no_fault_of_the_data() -> None:
    assert not issubclass(errors.UsageError, errors.CheckpointError)
    with pytest.raises(errors.UsageError) as caught:
        require_answer(json=True, yes=False, dry_run=False)
    assert caught.value.option is None
    assert "--yes or --dry-run" in caught.value.message


def test_a_missing_checkpoint_has_its_location(tmp_path: Path) -> None:
    with pytest.raises(errors.CheckpointNotFoundError) as caught:
        open_reader(str(tmp_path / "none"))
    assert caught.value.path == str(tmp_path / "none")
    assert caught.value.problem == "the folder does not exist"


def test_an_interrupted_change_is_in_the_error(interrupted: Path) -> None:
    from respool.savepoint.create import SavepointRequest, create
    from respool.savepoint.store import SavepointStore

    pending = history.pending(LocalReader(interrupted))
    assert pending is not None
    with pytest.raises(errors.UnfinishedChangeError) as caught:
        create(
            SavepointRequest(str(interrupted), "one"), SavepointStore(str(interrupted.parent / "savepoints")), unasked
        )
    assert caught.value.pending == pending
    assert caught.value.path == str(interrupted)
    assert "Finish it with: respool checkpoint rewind" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).pending == pending


def test_the_holder_of_a_locked_checkpoint_is_in_the_error(tmp_path: Path) -> None:
    from respool.operations.context import hold

    folder = unpack(tmp_path, "hdfs")
    first = lease.hold(str(folder))
    assert first is not None
    with first, pytest.raises(errors.CheckpointInUseError) as caught:
        hold(str(folder), "orders")
    assert caught.value.path == "orders"
    assert caught.value.holder == f"process {os.getpid()}"


def test_a_damaged_log_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.DamagedFileError) as caught:
        logs.parse_offset_log("offsets/3", "")
    assert (caught.value.path, caught.value.problem) == ("offsets/3", "it is empty")
    assert "respool checkpoint verify" in caught.value.remedy
    folder = unpack(tmp_path, "hdfs")
    newest = CheckpointSnapshot(LocalReader(folder)).offsets[-1]
    (folder / f"offsets/{newest - 1}").write_bytes(b"")
    assert reachability.log_obstacle(CheckpointSnapshot(LocalReader(folder)), newest, same_range=False) == (
        f"offsets/{newest - 1} is damaged: it is empty"
    )


def test_a_newer_format_names_its_version() -> None:
    with pytest.raises(errors.UnknownFormatVersionError) as log:
        logs.parse_offset_log("offsets/3", "v9\n{}\n{}")
    assert (log.value.path, log.value.version, log.value.supported) == ("offsets/3", "v9", ("v1", "v2"))
    with pytest.raises(errors.UnknownFormatVersionError) as saved:
        manifest.parse("here", b'{"version": 99}')
    assert saved.value.version == "99"


def test_state_that_is_not_kept_is_a_batch_that_is_not_available(tmp_path: Path) -> None:
    folder = unpack(tmp_path, "hdfs")
    for file in folder.glob("state/0/1/*.*"):
        file.unlink()
    checkpoint = CheckpointSnapshot(LocalReader(folder))
    store = next(kept for kept in checkpoint.stores if kept.partition == 0)
    with pytest.raises(errors.BatchUnavailableError) as caught:
        state_versions.load_of(checkpoint, store, 10_000)
    assert caught.value.reason.startswith(f"The state of {store.place} lacks versions")


def test_no_message_of_respool_is_taken_apart() -> None:
    own = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    broken = []
    for file in sorted(Path(errors.__file__).parent.rglob("*.py")):
        for handler in ast.walk(ast.parse(file.read_text())):
            if not isinstance(handler, ast.ExceptHandler) or handler.type is None:
                continue
            caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
            if caught & own and any(takes_apart(node, handler.name) for node in ast.walk(handler)):
                broken.append(f"{file.name}:{handler.lineno}")
    assert broken == []


def takes_apart(node: ast.AST, name: str | None) -> bool:
    """Return whether an expression compares the message of a caught error, or calls a method of it."""

    def is_message(part: ast.AST) -> bool:
        match part:
            case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=given)]):
                return given == name
        return False

    match node:
        case ast.Attribute(value=value):
            return is_message(value)
        case ast.Compare(left=left, comparators=others):
            return any(map(is_message, (left, *others)))
    return False


def test_a_file_that_cannot_be_read_has_the_reason_once() -> None:
    with pytest.raises(errors.UnreadableFileError) as caught, translate_errors("offsets/3"):
        raise PermissionError(13, "Permission denied")
    error = read_error("/orders/offsets/3", caught.value)
    assert error.path == "/orders/offsets/3"
    assert error.problem == caught.value.problem == "cannot be accessed: permission denied"
    assert read_error("a", OSError("no")).summary == "a cannot be read: no"
