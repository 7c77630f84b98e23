"""Restore a Delta table to the version before a batch, and undo that.

After a RESTORE by Spark the table still records the batches that it had, so that they would be skipped. Here one commit
restores the older version's files and records the batch before as the newest. The query keeps its id.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from respool.delta.log import MARK, Commit, DeltaLog, delta_message, open_table
from respool.errors import CheckpointError
from respool.identity import Identity, parse_identity
from respool.untrusted import Malformed

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class RestoreTable:
    """Restore a Delta table to the version before a batch, so that it accepts that batch again, in one commit.

    Attributes:
        table: The table's folder or URL.
        from_version: The version that the table must be at.
        to_version: The version whose rows it gets; None for no rows, `from_version` to keep its rows.
        app_id: The id under which the table records batches: the query's id, or a `txnAppId`.
        from_batch: The newest batch that the table has recorded; None without a batch.
        to_batch: The batch to record as the newest; -1 for no batch.
    """

    table: str
    from_version: int
    to_version: int | None
    app_id: str
    from_batch: int | None
    to_batch: int


def run_restore(step: RestoreTable) -> None:
    """Restore a table; a restore that an interrupted run has done already is skipped.

    Raises:
        CheckpointError: The table has changed since the plan was made, or cannot be written.
    """
    run(step)


def require_undoable(step: RestoreTable) -> None:
    """Raise CheckpointError when a restore cannot be undone; to be called before anything else is undone."""
    undoing(step)


def undo_restore(step: RestoreTable) -> None:
    """Undo a restore; when it was undone already or never done, nothing happens.

    Raises:
        CheckpointError: Another writer has changed the table since, or it cannot be written.
    """
    undo(step)


_SENTENCE = re.compile(
    r"(?P<undo>undo of the )?rewind: from version (?P<from>\d{1,18}) to (?:no rows|version (?P<to>\d{1,18})), "
    r"batch (?P<next>\d{1,18}) is next",
    re.ASCII,
)


@dataclass(frozen=True)
class _Change:
    """A commit: the version whose rows the table gets, the batch that is recorded, and its mark; each may be None."""

    to_version: int | None
    app_id: str
    batch: int | None
    mark: Identity | None


def run(step: RestoreTable) -> None:
    """Restore a table; a restore that an interrupted run has done already is skipped."""
    table, log = open_table(step.table), DeltaLog(step.table)
    now = table.version()
    if now > step.from_version and _marked(log.commit(step.from_version + 1), _mark(step)):
        return
    if now != step.from_version:
        raise CheckpointError(
            f"The Delta table {step.table} was at version {step.from_version} when the rewind was planned, and is now "
            f"at {_at(log, now)}: another writer uses it. Stop it, and plan again. The table was not changed."
        )
    batch = step.to_batch if step.from_batch is not None else None
    _commit(table, _Change(step.to_version, step.app_id, batch, _mark(step)), step.table)


def undo(step: RestoreTable) -> None:
    """Undo a restore; when it was undone already or never done, nothing happens."""
    table = undoing(step)
    if table is not None:
        _commit(table, _Change(step.from_version, step.app_id, step.from_batch, _mark(step, undo=True)), step.table)


def undoing(step: RestoreTable) -> "DeltaTable | None":
    """Return the table of a restore that can be undone; None when there is nothing to undo.

    Raises:
        CheckpointError: Another writer has changed the table since.
    """
    table, log = open_table(step.table), DeltaLog(step.table)
    now = table.version()
    if now <= step.from_version or not _marked(log.commit(step.from_version + 1), _mark(step)):
        return None
    for version in range(step.from_version + 2, now + 1):
        commit = log.commit(version)
        if _marked(commit, _mark(step, undo=True)):
            return None
        if commit is None or not commit.harmless:
            raise CheckpointError(
                f"The Delta table {step.table} has changed since it was restored: {_at(log, version)}. Undoing "
                "the restore would undo that too. Rewind again instead. The table was not changed."
            )
    return table


def rehearse(table: "DeltaTable", step: RestoreTable) -> str | None:
    """Return why delta-rs cannot do a step, or None: it is tried on a small copy of the table, with one file."""
    protocol, facts = table.protocol(), table.metadata()
    names = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    versions = {"minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version}
    columns = facts.partition_columns
    schema = {
        "schemaString": table.schema().to_json(),
        "partitionColumns": columns,
        "format": {"provider": "parquet", "options": {}},
    }
    add = {"path": "x", "partitionValues": dict.fromkeys(columns), "size": 1, "modificationTime": 0, "dataChange": True}
    commits: list[list[dict[str, object]]] = [
        [
            {"protocol": versions | {name: value for name, value in names.items() if value is not None}},
            {"metaData": {"id": facts.id, "configuration": facts.configuration, **schema}},
        ],
        [{"add": add}],
    ]
    with TemporaryDirectory() as folder:
        log = Path(folder, "_delta_log")
        log.mkdir()
        for version, actions in enumerate(commits):
            (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
        to = {None: None, step.from_version: 1}.get(step.to_version, 0)
        try:
            _commit(open_table(folder), _Change(to, step.app_id, step.to_batch, None), step.table)
        except CheckpointError as error:
            return delta_message(error.__cause__ or error)
    return None


def _commit(table: "DeltaTable", change: _Change, name: str) -> None:
    from deltalake import CommitProperties, PostCommitHookProperties, Transaction

    noted = Transaction(change.app_id, change.batch or 0, int(time.time() * 1000))
    # This commit must fail after another writer's commit, not be merged with it.
    properties = CommitProperties(
        custom_metadata={MARK: change.mark.text() if change.mark else "rehearsal"},
        max_commit_retries=0,
        app_transactions=[noted] if change.batch is not None else None,
    )
    # Checkpoints and clean-up of the log are left to the table's own writers.
    after = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    with _naming_failures(name):
        if change.to_version is None:
            table.delete(commit_properties=properties, post_commithook_properties=after)
        elif change.to_version == table.version():
            table.create_write_transaction(
                [],
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=properties,
                post_commithook_properties=after,
            )
        else:
            table.restore(change.to_version, commit_properties=properties, post_commithook_properties=after)


@contextmanager
def _naming_failures(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # as many as delta-rs has
        raise CheckpointError(
            f"The Delta table {name} could not be restored: {delta_message(error)}. It was not changed. "
            "Remove the cause and run the same command again, or undo the rewind with `respool checkpoint undo`."
        ) from error


def _mark(step: RestoreTable, undo: bool = False) -> Identity:
    """Return the identity by which the commit of a step, or of its undo, is recognized."""
    return _mark_of(step.from_version, step.to_version, step.to_batch + 1, undo)


def _mark_of(from_version: int, to_version: int | None, next_batch: int, undo: bool) -> Identity:
    fields = {"from_version": from_version, "to_version": to_version, "next_batch": next_batch}
    return Identity("undo" if undo else "restore", fields)


def _read_mark(text: str) -> Identity | None:
    """Return the mark of a commit; None for a text that respool does not write."""
    sentence = _SENTENCE.fullmatch(text)
    if sentence is not None:  # of earlier versions of respool
        to = sentence["to"]
        return _mark_of(
            int(sentence["from"]), None if to is None else int(to), int(sentence["next"]), bool(sentence["undo"])
        )
    try:
        return parse_identity(text)
    except Malformed:
        return None


def _marked(commit: Commit | None, mark: Identity) -> bool:
    return commit is not None and commit.mark is not None and _read_mark(commit.mark) == mark


def _at(log: DeltaLog, version: int) -> str:
    return str(log.commit(version) or f"version {version}")
