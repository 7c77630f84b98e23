"""What Spark compares with a checkpoint when a query starts from it: sources, stateful operators, state schemas."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from respool.checkpoint import reachability
from respool.checkpoint.operator_files import metadata_path
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import DamagedFileError
from respool.format import logs, state_schema
from respool.format.logs import kind_of
from respool.format.state_schema import ColumnFamily

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
    for store in checkpoint.store_names(number) or (state_schema.DEFAULT,):
        folder = f"state/{number}/0" + ("" if store == state_schema.DEFAULT else f"/{store}") + "/_metadata"
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
            state_schema.DEFAULT, name, newest.key, newest.value, tuple(family.value for family in older)
        )


def _families(checkpoint: CheckpointSnapshot, path: str) -> tuple[ColumnFamily, ...]:
    try:
        return state_schema.families(checkpoint.files.read(path))
    except ValueError as error:
        remedy = "Find out what to do with: respool checkpoint verify."
        raise DamagedFileError(path, str(error), remedy) from error
