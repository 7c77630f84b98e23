"""From a selection of state to a reading that Spark can do; what cannot be read is refused without Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from respool.checkpoint import operator_files, reachability, state_versions
from respool.checkpoint.snapshot import CheckpointSnapshot, require_checkpoint
from respool.checkpoint.state.operators import SIDES, Operator, operators, readable, rows_store
from respool.errors import CheckpointError
from respool.format.model import SNAPSHOTS, InclusiveRange, StateStore, spans, spans_text
from respool.text import did_you_mean

_STORE = "spark.sql.streaming.stateStore"
_PROVIDER = f"{_STORE}.providerClass"


@dataclass(frozen=True)
class StateSelection:
    """The state that a user selects; None selects the only operator, store or variable, and the newest batch.

    Attributes:
        batch: The state after this batch.
        operator: The operator's number.
        store: A store's name; for a join also `left` or `right`.
        variable: A variable of transformWithState.
        timers: The registered timers instead of a variable.
        changes: The changes made by these batches, instead of the state after a batch.
    """

    batch: int | None = None
    operator: int | None = None
    store: str | None = None
    variable: str | None = None
    timers: bool = False
    changes: InclusiveRange | None = None


@dataclass(frozen=True)
class StateReading:
    """A reading of the state by Spark's state reader.

    Attributes:
        root: The folder or URL of the checkpoint.
        batch: The batch after which the state is read; with changes, the last of these batches.
        operator: The operator.
        what: The part of the operator that is read, as text; empty when it has only one part.
        options: The options of Spark's reader.
        conf: Spark's settings for it.
        changes: The batches whose changes are read; None for the state itself.
        hidden: Columns that order the rows and are not shown.
        moved: Whether the query ran elsewhere, so that the checkpoint names files of another folder.
    """

    root: str
    batch: int
    operator: Operator
    what: str
    options: Mapping[str, str]
    conf: Mapping[str, str]
    changes: InclusiveRange | None = None
    hidden: tuple[str, ...] = ()
    moved: bool = False


def newest(checkpoint: CheckpointSnapshot) -> int:
    """Return the newest finished batch; raise CheckpointError when no batch is finished."""
    finished = [batch for batch in checkpoint.commits if checkpoint.has("offsets", batch)]
    if not finished:
        require_checkpoint(checkpoint)
        raise CheckpointError(f"The query of {checkpoint.root} has finished no batch yet: there is no state to read.")
    return finished[-1]


def select_state(checkpoint: CheckpointSnapshot, wanted: StateSelection) -> StateReading:
    """Return the selected reading; raise CheckpointError that lists what can be read instead."""
    if wanted.changes is not None and wanted.batch is not None:
        raise CheckpointError("--changes names its batches. Leave --batch out.")
    asked = wanted.batch if wanted.changes is None else wanted.changes.last
    batch = newest(checkpoint) if asked is None else asked
    _require_finished(checkpoint, batch)
    candidates = operators(checkpoint, batch)
    operator = _operator(checkpoint, candidates, wanted)
    _require_loadable(checkpoint, operator, batch)
    options, what = _what(operator, wanted)
    if wanted.changes is not None:
        _require_changes(checkpoint, operator, options, wanted.changes)
        options |= {
            "readChangeFeed": "true",
            "changeStartBatchId": str(wanted.changes.first),
            "changeEndBatchId": str(wanted.changes.last),
        }
    else:
        options["batchId"] = str(batch)
    options["operatorId"] = str(operator.number)
    hidden = ("index",) if operator.is_join and wanted.store in SIDES and wanted.changes is None else ()
    conf, moved = _conf(checkpoint, operator, batch), _is_moved(checkpoint, operator, batch)
    return StateReading(checkpoint.root, batch, operator, what, options, conf, wanted.changes, hidden, moved)


def _require_finished(checkpoint: CheckpointSnapshot, batch: int) -> None:
    if checkpoint.has("commits", batch) and checkpoint.has("offsets", batch):
        return
    if not checkpoint.commits or batch > checkpoint.commits[-1]:
        why = "it is not finished yet" if checkpoint.has("offsets", batch) else "there is no such batch yet"
    else:
        why = "it is no longer kept"
    raise CheckpointError(f"The state after batch {batch} cannot be read: {why}. {_can_be_read(checkpoint)}")


def _require_loadable(checkpoint: CheckpointSnapshot, operator: Operator, batch: int) -> None:
    try:
        for store in _stores(checkpoint, operator, batch):
            state_versions.load_of(checkpoint, store, batch + 1)
    except CheckpointError as error:
        raise CheckpointError(
            f"The state after batch {batch} cannot be read. {error} {_can_be_read(checkpoint, operator.number)}"
        ) from error


def _can_be_read(checkpoint: CheckpointSnapshot, operator: int | None = None) -> str:
    batches = spans_text(readable(checkpoint, operator))
    return f"Batches that can be read: {batches}." if batches else "See what is wrong with: respool checkpoint verify."


def _stores(checkpoint: CheckpointSnapshot, operator: Operator, batch: int) -> list[StateStore]:
    return [store for store in reachability.expected_stores(checkpoint, batch + 1) if store.operator == operator.number]


def _operator(checkpoint: CheckpointSnapshot, candidates: Sequence[Operator], wanted: StateSelection) -> Operator:
    if not candidates:
        require_checkpoint(checkpoint)
        raise CheckpointError(f"The query of {checkpoint.root} keeps no state: there is nothing to read.")
    known = ", ".join(f"{operator.number} ({operator.kind})" for operator in candidates)
    if wanted.operator is None:
        if len(candidates) > 1:
            raise CheckpointError(
                f"The query has {len(candidates)} stateful operators. Name one with --operator: {known}."
            )
        return candidates[0]
    for operator in candidates:
        if operator.number == wanted.operator:
            return operator
    raise CheckpointError(f"There is no stateful operator {wanted.operator}. The query has: {known}.")


def _what(operator: Operator, wanted: StateSelection) -> tuple[dict[str, str], str]:
    """Return the options of Spark's reader that select a part of an operator, and its name in messages."""
    if operator.is_transform:
        return _part_of_transform(operator, wanted)
    if wanted.variable is not None or wanted.timers:
        option = "--timers" if wanted.timers else "--var"
        raise CheckpointError(f"{_sentence(operator)} has no variables and no timers. Leave {option} out.")
    if wanted.store is None and operator.is_join:
        raise CheckpointError(
            f"{_sentence(operator)} keeps the rows of two sides. Name one with --store: {', '.join(operator.views)}."
        )
    store = wanted.store or operator.stores[0]
    if store not in operator.views:
        raise CheckpointError(
            f"{_sentence(operator)} has no store '{store}'.{did_you_mean(store, list(operator.views))} "
            f"It has: {', '.join(operator.views)}."
        )
    if operator.is_join and store in SIDES:
        # Spark's own option for a side opens files for writing and does not support changes.
        return {"storeName": rows_store(store)}, f"{store} side"
    return {"storeName": store}, "" if store == "default" else f"store {store}"


def _part_of_transform(operator: Operator, wanted: StateSelection) -> tuple[dict[str, str], str]:
    if wanted.store not in (None, *operator.stores):
        raise CheckpointError(f"{_sentence(operator)} has no store '{wanted.store}'. Name a variable with --var.")
    if wanted.timers:
        if wanted.variable is not None:
            raise CheckpointError("--timers and --var name two things. Leave one of them out.")
        if wanted.changes is not None:
            raise CheckpointError("Spark does not report changes of timers. Leave --changes out, or name a variable.")
        if not operator.has_timers:
            raise CheckpointError(f"{_sentence(operator)} has no timers. Leave --timers out.")
        return {"readRegisteredTimers": "true"}, "timers"
    names = [variable.name for variable in operator.variables]
    listed = ", ".join(f"{variable.name} ({variable.sort})" for variable in operator.variables) or "none"
    if wanted.variable is None and len(names) != 1:
        timers = " Its timers: --timers." if operator.has_timers else ""
        raise CheckpointError(
            f"{_sentence(operator)} has {len(names)} variables. Name one with --var: {listed}.{timers}"
        )
    name = wanted.variable or names[0]
    if name not in names:
        raise CheckpointError(
            f"{_sentence(operator)} has no variable '{name}'.{did_you_mean(name, names)} It has: {listed}."
        )
    if wanted.changes is not None and operator.variables[names.index(name)].sort == "list":
        raise CheckpointError(
            f"Spark reports only the first element of a list that changed; {name} is a list. Read two batches with "
            "--batch in place of --changes."
        )
    return {"stateVarName": name, "flattenCollectionTypes": "true"}, f"variable {name}"


def _require_changes(
    checkpoint: CheckpointSnapshot, operator: Operator, options: Mapping[str, str], changes: InclusiveRange
) -> None:
    if changes.first > changes.last:
        raise CheckpointError(f"--changes {changes.first}..{changes.last} ends before it begins.")
    _require_finished(checkpoint, changes.first)
    named = options.get("storeName")
    for store in _stores(checkpoint, operator, changes.last):
        if named in operator.stores and store.name != named:
            continue
        versions = {
            file.version for file in state_versions.committed_files(checkpoint, store) if file.kind not in SNAPSHOTS
        }
        if not versions:
            raise CheckpointError(
                f"{_sentence(operator)} keeps its state in RocksDB without changelog: what a batch changed is not "
                "kept, only the state after it. Read two batches with --batch in place of --changes."
            )
        missing = [batch for batch in range(changes.first, changes.last + 1) if batch + 1 not in versions]
        if missing:
            batches = "batch" if len(missing) == 1 else "batches"
            raise CheckpointError(
                f"What {batches} {spans_text(spans(missing))} changed in {store.place} is not kept. Batches whose "
                f"changes are kept: {spans_text(spans(sorted(version - 1 for version in versions)))}."
            )


def _is_moved(checkpoint: CheckpointSnapshot, operator: Operator, batch: int) -> bool:
    if not operator_files.has_runs(checkpoint, operator.number):
        return False
    flaw = operator_files.flaw_of_run(checkpoint, operator.number, batch + 1)
    if flaw is not None and not flaw.elsewhere:
        raise CheckpointError(f"The state cannot be read: {flaw.path} {flaw.what}. See: respool checkpoint verify.")
    return flaw is not None or checkpoint.is_copy


def _conf(checkpoint: CheckpointSnapshot, operator: Operator, batch: int) -> dict[str, str]:
    planned = checkpoint.planned(batch)
    conf = {
        f"{_STORE}.checkpointFormatVersion": "2" if checkpoint.committed(batch).state_ids else "1",
        # With it, Spark 4.2 opens a changelog for writing when it reads a variable.
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
        "spark.sql.adaptive.enabled": "false",  # it would drop the count from a plan that turns out to be empty
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    if _PROVIDER in planned.conf:
        conf[_PROVIDER] = planned.conf[_PROVIDER]
    if checkpoint.partitions(batch) is None:  # as in the first run of a query with offsets of version 2
        count = len({store.partition for store in checkpoint.stores if store.operator == operator.number})
        conf["spark.sql.streaming.internal.stateStore.partitions"] = str(count)
    return conf


def _sentence(operator: Operator) -> str:
    return f"{operator.place[0].upper()}{operator.place[1:]}"
