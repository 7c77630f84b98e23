"""What a Delta table does with replayed batches.

A rewind either leaves the table to skip or replace replayed batches, or restores it to the version before them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from respool.delta.log import Commit, DeltaLog, open_table
from respool.delta.restore import RestoreTable, rehearse
from respool.errors import CheckpointError
from respool.sinks.address import DeltaAddress, ReplayOutcome
from respool.storage.open import open_reader

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class _BatchCommits:
    """What a table holds of the replayed batches.

    Attributes:
        commits: The commits that hold them, the newest first, without those that were undone.
        others: Commits of other writers since the first of them, which a restore would undo.
        whole: Whether the log reaches back far enough to list all of them.
    """

    commits: tuple[Commit, ...]
    others: tuple[Commit, ...]
    whole: bool


def replay(sink: DeltaAddress, query_ids: Sequence[str], first_batch: int, new_query_id: bool) -> ReplayOutcome:
    """Return what a table will do when the batches from `first_batch` on are replayed."""
    name, ids = f"Delta table {sink.table}", [sink.app_id] if sink.app_id else list(query_ids)
    if not ids:
        raise CheckpointError(
            f"It is unknown which batches of this query the {name} has: the query's id is lost with the file metadata. "
            "Restore it from a copy, or leave --sink out and inspect the table yourself."
        )
    table = open_table(sink.table)
    if all(table.transaction_version(app_id) is None for app_id in ids):
        return _stranger(name, sink, ids[-1])
    history = _find(DeltaLog(sink.table), table.version(), ids, first_batch)
    if new_query_id and not sink.app_id:
        return ReplayOutcome(name, _with_new_id(history, first_batch))
    newest = table.transaction_version(ids[-1])
    if newest is not None and newest >= first_batch:
        why = (
            f"The {name} has the batches up to {newest}: it would skip batches {first_batch} to {newest} "
            "silently, and a stateful query would break."
        )
    elif history.commits:
        why = (
            f"The {name} has batches from {first_batch} on, up to {history.commits[0]}: their rows would be written "
            "twice."
        )
    else:
        return ReplayOutcome(name, f"It has no batch from {first_batch} on: they are written as new.")
    step = RestoreTable(
        sink.table, table.version(), _back_to(history, table.version()), ids[-1], newest, first_batch - 1
    )
    return _remedied(name, why, history, table, step)


def _find(log: DeltaLog, version: int, ids: Sequence[str], first_batch: int) -> _BatchCommits:
    """Search back from a version for the batches from `first_batch` on."""
    commits: list[Commit] = []
    others: list[Commit] = []
    later: list[Commit] = []  # commits of others since the query's commit that was visited last
    for commit in log.lineage(version):
        batches = [commit.batches[app_id] for app_id in ids if app_id in commit.batches]
        if batches and max(batches) < first_batch:
            return _BatchCommits(tuple(commits), tuple(others), whole=True)
        if batches:
            commits.append(commit)
            others += later
            later = []
        elif not commit.harmless and commit.goes_back is None:
            later.append(commit)
        # Older batches than the first under the query's first id do not exist.
        if commit.begins or commit.batches.get(ids[0]) == first_batch:
            return _BatchCommits(tuple(commits), tuple(others), whole=True)
    return _BatchCommits(tuple(commits), tuple(others), whole=False)


def _back_to(history: _BatchCommits, version: int) -> int | None:
    """Return the version before the replayed batches; None when the first of them created the table."""
    before = history.commits[-1].version - 1 if history.commits else version
    return None if before < 0 else before


def _remedied(name: str, why: str, history: _BatchCommits, table: "DeltaTable", step: RestoreTable) -> ReplayOutcome:
    """Return the outcome for a table that has to be restored, or why it cannot be."""
    if not history.whole:
        return _refused(name, why, f"Its log no longer shows at which version batch {step.to_batch} was written")
    if history.others:
        more = f" and {len(history.others) - 1} more" if history.others[1:] else ""
        return _refused(name, why, f"Its {history.others[-1]}{more} was committed in between and would be undone too")
    hindrance = _hindrance(table, step)
    if hindrance is not None:
        return _refused(name, why, hindrance, step.to_version)
    to = step.to_version
    rows = {None: "loses all rows", step.from_version: "keeps its rows"}.get(to, f"goes back to version {to}")
    text = f"Restored, it {rows}, and takes the batches from {step.to_batch + 1} on as new."
    remedy = f"Let respool restore it with --restore-sink: from version {step.from_version} it {rows}."
    return ReplayOutcome(name, text, why, remedy, step)


def _hindrance(table: "DeltaTable", step: RestoreTable) -> str | None:
    """Return why a table cannot be restored, or None."""
    why = rehearse(table, step)
    if why is not None:
        return f"respool cannot write such a table ({why})"
    if step.to_version in (None, step.from_version):
        return None
    try:
        back = open_table(step.table, step.to_version)
    except CheckpointError as error:
        return f"Its version {step.to_version} can no longer be read ({error.summary})"
    gone = _missing(step.table, set(back.file_uris()) - set(table.file_uris()), table.table_uri)
    return f"Files of its version {step.to_version} are gone, as after a VACUUM: {gone[0]}" if gone else None


def _missing(location: str, uris: set[str], root: str) -> list[str]:
    paths = [uri.removeprefix(root).removeprefix(root.removeprefix("file://")) for uri in sorted(uris)]
    there = open_reader(location).facts(paths)
    return [path for path in paths if path not in there]


def _refused(name: str, why: str, hindrance: str, to_version: int | None = None) -> ReplayOutcome:
    first = "Delete the rows of those batches yourself"
    if to_version is not None:
        first = f"Run RESTORE TABLE … TO VERSION AS OF {to_version} in Spark, if it still can"
    remedy = f"{hindrance}. {first}, then rewind with --new-query-id; or let the query write to a new table."
    return ReplayOutcome(name, "It cannot be restored by respool.", why, remedy, new_query_id=True)


def _stranger(name: str, sink: DeltaAddress, app_id: str) -> ReplayOutcome:
    what = f"under the txnAppId {app_id}" if sink.app_id else f"of the query {app_id}"
    return ReplayOutcome(
        name,
        "It is unknown what it will do.",
        f"The {name} has no batch {what}. Check that this is the query's table.",
        "Name the table that the query writes to. If a foreachBatch function writes it, name its txnAppId as well: "
        "--sink 'delta:TABLE?txnAppId=NAME'; or give --sink foreachBatch when it sets none.",
    )


def _with_new_id(history: _BatchCommits, first_batch: int) -> str:
    if not history.commits:
        return f"It has no batch from {first_batch} on: they are written as new, under the query's new id."
    return (
        f"Under its new id the query writes all batches from {first_batch} on. The table has had some of them "
        f"({history.commits[-1]} is the first): their rows are written twice, unless you have deleted them."
    )
