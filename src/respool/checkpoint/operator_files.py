"""The files that Spark reads for stateful operators when a query starts: metadata and schemas; and what it compares.

Version 1 of the metadata is one file, written once; Spark can start without it. Version 2 is one file for each run of
the query. It names the schema files by their full address; Spark reads the newest file of an earlier batch.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from respool.checkpoint import reachability
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError, DamagedFileError, UnknownFormatVersionError
from respool.format import layout, logs, state_files
from respool.format.logs import kind_of
from respool.format.model import OperatorMetadata
from respool.format.state_files import ColumnFamily, UnknownSchemaError
from respool.locations import local_path
from respool.storage.folder import is_denied, reason


@dataclass(frozen=True)
class OperatorFlaw:
    """A problem with a file of an operator.

    Attributes:
        path: The file.
        what: The problem, as a predicate that follows the path.
        elsewhere: Whether the only problem is that it names files of another folder.
        denied: Whether the only problem is a missing permission.
        unknown: Whether it has a format version that respool does not support: it need not be damaged.
    """

    path: str
    what: str
    elsewhere: bool = False
    denied: bool = False
    unknown: bool = False


def has_runs(checkpoint: CheckpointSnapshot, operator: int) -> bool:
    """Return whether an operator has metadata for each run of the query: version 2."""
    base = f"state/{operator}"
    return any(folder.startswith((f"{base}/_metadata/v2", f"{base}/_stateSchema")) for folder in checkpoint.folders)


def runs(checkpoint: CheckpointSnapshot, operator: int) -> tuple[int, ...]:
    """Return the first batches of the runs for which an operator has metadata of version 2."""
    return layout.batches(checkpoint.folders.get(f"state/{operator}/_metadata/v2", ()))


def flaw_of_run(checkpoint: CheckpointSnapshot, operator: int, batch: int) -> OperatorFlaw | None:
    """Return why Spark cannot read an operator's metadata of version 2 for a start at a batch; None if it can."""
    if batch == 0:
        return None
    folder = f"state/{operator}/_metadata/v2"
    run = max((first for first in runs(checkpoint, operator) if first < batch), default=None)
    if run is None:
        return OperatorFlaw(folder, f"has no file of a run before batch {batch}")
    path = f"{folder}/{run}"
    try:
        addresses = logs.schema_paths(path, logs.decode(path, checkpoint.files.read(path)))
    except (CheckpointError, OSError) as error:
        return _flaw_of_error(path, error)
    for address in addresses:
        flaw = _flaw_of_address(checkpoint, path, address)
        if flaw is not None:
            return flaw
    return None


def schemas(checkpoint: CheckpointSnapshot, operator: int) -> Iterator[tuple[str, bool]]:
    """Yield the path of each schema file of an operator of version 1, and whether it exists."""
    for name in checkpoint.store_names(operator) or ("default",):
        folder = f"state/{operator}/0" + ("" if name == "default" else f"/{name}") + "/_metadata"
        yield f"{folder}/schema", "schema" in checkpoint.folders.get(folder, ())


def flaw_of_metadata(checkpoint: CheckpointSnapshot, path: str) -> OperatorFlaw | None:
    """Return why Spark cannot read an operator's metadata of version 1; None if it can, or if the file is missing."""
    try:
        logs.operator_stores(path, logs.decode(path, checkpoint.files.read(path)))
    except FileNotFoundError:
        return None
    except (CheckpointError, OSError) as error:
        return _flaw_of_error(path, error)
    return None


def flaw_of_schema(checkpoint: CheckpointSnapshot, path: str) -> OperatorFlaw | None:
    """Return why Spark cannot read a schema file; None if it can."""
    try:
        state_files.families(checkpoint.files.read(path))
    except (CheckpointError, OSError) as error:
        return OperatorFlaw(path, f"cannot be read: {reason(error)}", denied=is_denied(error))
    except UnknownSchemaError as error:
        return OperatorFlaw(path, str(error), unknown=True)
    except ValueError as error:
        return OperatorFlaw(path, f"is damaged: {error}")
    return None


def _flaw_of_error(path: str, error: Exception) -> OperatorFlaw:
    return OperatorFlaw(
        path, reason(error), denied=is_denied(error), unknown=isinstance(error, UnknownFormatVersionError)
    )


def _flaw_of_address(checkpoint: CheckpointSnapshot, path: str, address: str) -> OperatorFlaw | None:
    before, _, after = address.rpartition("/state/")
    inside = f"state/{after}"
    folder, _, name = inside.rpartition("/")
    exists = name in checkpoint.folders.get(folder, ())
    if not checkpoint.is_copy and _place(before) != _place(checkpoint.root):
        return OperatorFlaw(path, f"names the schema {address}, which is not in this checkpoint", elsewhere=exists)
    if not exists:
        return OperatorFlaw(path, f"names the schema {inside}, which is missing")
    return flaw_of_schema(checkpoint, inside)


def _place(address: str) -> str:
    """Return the canonical form of an address, equal for two addresses of the same folder."""
    local = local_path(address)
    if local is not None:
        return os.path.realpath(local)  # Spark writes these addresses as they are, without percent-encoding
    return address.partition("://")[2].rstrip("/")


def metadata_path(checkpoint: CheckpointSnapshot, number: int, batch: int) -> str | None:
    """Return the path of an operator's metadata as it was when a batch ran; None when there is no such file."""
    base = f"state/{number}/_metadata"
    runs = [run for run in layout.batches(checkpoint.folders.get(f"{base}/v2", ())) if run <= batch]
    if runs:
        return f"{base}/v2/{runs[-1]}"
    return f"{base}/metadata" if "metadata" in checkpoint.folders.get(base, ()) else None


def metadata_of(checkpoint: CheckpointSnapshot, number: int, batch: int) -> OperatorMetadata | None:
    """Return the metadata of an operator as it was when a batch ran; None when there is no such file."""
    path = metadata_path(checkpoint, number, batch)
    return None if path is None else logs.operator_metadata(path, logs.decode(path, checkpoint.files.read(path)))


_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"


@dataclass(frozen=True)
class StateTableSchema:
    """A table of keys and values that an operator keeps.

    Attributes:
        store: The name of its store.
        name: The name of its column family; `default` in a store with a single column family.
        key: The schema of its keys, as in Spark's JSON.
        value: The schema of its values.
        older: The schemas that its values had in earlier runs of the query, the newest last.
    """

    store: str
    name: str
    key: Any
    value: Any
    older: tuple[Any, ...] = ()


@dataclass(frozen=True)
class OperatorShape:
    """A stateful operator.

    Attributes:
        number: Its number in the query.
        name: Spark's name for it; None when its metadata is lost.
        tables: Its tables, by store and name.
        modes: The time mode and the output mode of transformWithState.
        variables: The variables of transformWithState, each with its type: ValueState, ListState, MapState, TimerState.
    """

    number: int
    name: str | None
    tables: tuple[StateTableSchema, ...]
    modes: Mapping[str, str]
    variables: Mapping[str, str]

    @property
    def kind(self) -> str:
        """What it does, as text."""
        return kind_of(self.name) if self.name else "unknown"

    @property
    def place(self) -> str:
        """Its name in messages."""
        return f"operator {self.number} ({self.kind})"

    def table(self, store: str, name: str) -> StateTableSchema | None:
        """Return a table by its store and name; None when there is no such table."""
        return next((table for table in self.tables if (table.store, table.name) == (store, name)), None)


@dataclass(frozen=True)
class QueryShape:
    """What a query reads, and what state it keeps.

    Attributes:
        sources: How many sources it has.
        operators: Its stateful operators.
        partitions: How many partitions its state has; None when the checkpoint does not record it.
        conf: Spark's settings that are fixed in its checkpoint.
    """

    sources: int
    operators: tuple[OperatorShape, ...]
    partitions: int | None
    conf: Mapping[str, str]

    @property
    def is_avro(self) -> bool:
        """Whether its state is encoded in Avro, which supports schema evolution of values."""
        return self.conf.get(_ENCODING) == "avro"


def query_shape(checkpoint: CheckpointSnapshot, batch: int) -> QueryShape:
    """Return the shape of a query as it was when a batch ran; raise CheckpointError when a file of it is damaged."""
    planned = checkpoint.planned(batch)
    operators = tuple(
        _operator(checkpoint, number, batch) for number in sorted(reachability.operators_named(checkpoint))
    )
    return QueryShape(len(planned.sources), operators, checkpoint.partitions(batch), planned.conf)


def _operator(checkpoint: CheckpointSnapshot, number: int, batch: int) -> OperatorShape:
    path = metadata_path(checkpoint, number, batch)
    if path is None:
        return OperatorShape(number, None, tuple(_tables(checkpoint, number)), {}, {})
    text = logs.decode(path, checkpoint.files.read(path))
    metadata = logs.operator_metadata(path, text)
    tables = _tables_of_runs(checkpoint, path, text) if "/v2/" in path else _tables(checkpoint, number)
    modes = {name: str(metadata.properties[name]) for name in ("timeMode", "outputMode") if name in metadata.properties}
    declared: Any = metadata.properties.get("stateVariables", [])
    variables = {str(variable["stateName"]): str(variable["stateVariableType"]) for variable in declared}
    return OperatorShape(number, metadata.name, tuple(tables), modes, variables)


def _tables(checkpoint: CheckpointSnapshot, number: int) -> Iterator[StateTableSchema]:
    """Yield the tables of an operator whose schemas were written once, next to its stores."""
    for store in checkpoint.store_names(number) or (state_files.DEFAULT,):
        folder = f"state/{number}/0" + ("" if store == state_files.DEFAULT else f"/{store}") + "/_metadata"
        if "schema" in checkpoint.folders.get(folder, ()):
            for family in _families(checkpoint, f"{folder}/schema"):
                yield StateTableSchema(store, family.name, family.key, family.value)


def _tables_of_runs(checkpoint: CheckpointSnapshot, path: str, text: str) -> Iterator[StateTableSchema]:
    """Yield the tables of an operator whose schemas were written by each run that changed them, the newest last."""
    families: dict[str, list[ColumnFamily]] = {}
    for address in logs.schema_paths(
        path, text
    ):  # as they were in the folder where the query ran, which may be another
        inside = f"state/{address.rpartition('/state/')[2]}"
        folder, _, name = inside.rpartition("/")
        if name in checkpoint.folders.get(folder, ()):
            for family in _families(checkpoint, inside):
                families.setdefault(family.name, []).append(family)
    for name, schemas in sorted(families.items()):
        *older, newest = schemas
        yield StateTableSchema(
            state_files.DEFAULT, name, newest.key, newest.value, tuple(family.value for family in older)
        )


def _families(checkpoint: CheckpointSnapshot, path: str) -> tuple[ColumnFamily, ...]:
    try:
        return state_files.families(checkpoint.files.read(path))
    except ValueError as error:
        remedy = "Find out what to do with: respool checkpoint verify."
        raise DamagedFileError(path, str(error), remedy) from error
