"""The stateful operators of a checkpoint, and which parts of their state can be read. This module needs no JVM."""

from collections.abc import Iterable
from dataclasses import dataclass

from respool.checkpoint import reachability, state_versions
from respool.checkpoint.operator_files import metadata_of
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.format.logs import TRANSFORM_WITH_STATE, kind_of
from respool.format.model import InclusiveRange, OperatorMetadata, spans

SIDES = ("left", "right")
_JOIN_ROWS = "keyWithIndexToValue"
_JOIN_STORES = tuple(f"{side}-{kind}" for side in SIDES for kind in ("keyToNumValues", _JOIN_ROWS))
_SORTS = {"ValueState": "value", "ListState": "list", "MapState": "map"}


@dataclass(frozen=True)
class Variable:
    """A state variable of transformWithState.

    Attributes:
        name: Its name.
        sort: `value`, `list` or `map`.
    """

    name: str
    sort: str


@dataclass(frozen=True)
class Operator:
    """A stateful operator.

    Attributes:
        number: Its number in the query.
        kind: What it does: aggregation, join, deduplication, transformWithState, …; Spark's name for other operators.
        stores: The names of its stores on disk.
        views: The names by which its state can be read: store names; for a join also its two sides.
        variables: The variables of transformWithState.
        has_timers: Whether timers can be registered.
    """

    number: int
    kind: str
    stores: tuple[str, ...]
    views: tuple[str, ...]
    variables: tuple[Variable, ...] = ()
    has_timers: bool = False

    @property
    def is_join(self) -> bool:
        """Whether it is a stream-stream join."""
        return self.kind == "join"

    @property
    def is_transform(self) -> bool:
        """Whether it is transformWithState."""
        return self.kind == TRANSFORM_WITH_STATE

    @property
    def place(self) -> str:
        """Its name in messages."""
        return f"operator {self.number} ({self.kind})"


@dataclass(frozen=True)
class StateChoice:
    """A part of an operator's state that can be read separately.

    Attributes:
        operator: The operator.
        option: The option that selects it; empty when the operator has no other part.
        holds: A description of its rows.
    """

    operator: Operator
    option: str
    holds: str


def operators(checkpoint: CheckpointSnapshot, batch: int) -> tuple[Operator, ...]:
    """Return the stateful operators of a query, as they were when a batch ran."""
    numbers = sorted({store.operator for store in checkpoint.stores} | reachability.operators_named(checkpoint))
    return tuple(_operator(checkpoint, number, batch) for number in numbers)


def choices(known: Iterable[Operator]) -> tuple[StateChoice, ...]:
    """Return all parts of the state that can be read, the most useful first."""
    return tuple(choice for operator in known for choice in _choices(operator))


def readable(checkpoint: CheckpointSnapshot, operator: int | None = None) -> list[InclusiveRange]:
    """Return the batches after which the state of one operator or of all can be read, judged by file names."""
    stores = [store for store in checkpoint.stores if operator is None or store.operator == operator]
    known = [(store.partition, state_versions.loadable(checkpoint, store)) for store in stores]
    kept = [batch for batch in checkpoint.commits if checkpoint.has("offsets", batch)]
    checkpoint.read_ahead([f"offsets/{batch}" for batch in kept])

    def loads(batch: int) -> bool:
        try:
            count = checkpoint.partitions(batch)
        except CheckpointError:
            return False
        return all(
            any(span.first <= batch + 1 <= span.last for span in versions)
            for partition, versions in known
            if count is None or partition < count
        )

    return spans([batch for batch in kept if loads(batch)])


def rows_store(side: str) -> str:
    """Return the store of a join that holds the rows of a side."""
    return f"{side}-{_JOIN_ROWS}"


def _operator(checkpoint: CheckpointSnapshot, number: int, batch: int) -> Operator:
    metadata = metadata_of(checkpoint, number, batch)
    if metadata is None:
        stores = checkpoint.store_names(number)
        kind = "join" if any(name.startswith("left-") for name in stores) else "unknown"
        metadata = OperatorMetadata(kind, stores, {})
    kind = kind_of(metadata.name)
    if kind == "join":
        return Operator(number, kind, metadata.stores, (*SIDES, *_JOIN_STORES))
    if kind != TRANSFORM_WITH_STATE:
        return Operator(number, kind, metadata.stores, metadata.stores)
    declared = [(str(variable.get("stateName")), variable.get("stateVariableType")) for variable in _declared(metadata)]
    variables = tuple(Variable(name, _SORTS[sort]) for name, sort in sorted(declared) if sort in _SORTS)
    timers = any(sort == "TimerState" for _, sort in declared)
    return Operator(number, kind, metadata.stores, metadata.stores, variables, timers)


def _declared(metadata: OperatorMetadata) -> list[dict[str, str]]:
    variables = metadata.properties.get("stateVariables", [])
    return [variable for variable in variables if isinstance(variable, dict)] if isinstance(variables, list) else []


def _choices(operator: Operator) -> list[StateChoice]:
    if operator.is_join:
        sides = [StateChoice(operator, f"--store {side}", f"the rows of the {side} side") for side in SIDES]
        stores = [name for name in operator.views if name not in SIDES]
        return [*sides, *(StateChoice(operator, f"--store {name}", "a store, as it is") for name in stores)]
    if operator.is_transform:
        variables = [
            StateChoice(operator, f"--var {name.name}", f"a {name.sort} for each key") for name in operator.variables
        ]
        return (
            [*variables, StateChoice(operator, "--timers", "the registered timers")]
            if operator.has_timers
            else variables
        )
    return [StateChoice(operator, "", "a row for each key")]
