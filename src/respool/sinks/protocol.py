"""Where results go. Batches of a stream and reprocessed results are written by the same code.

`json_of` is the only place that renders the keys and values of results as JSON. A time is rendered with milliseconds,
as Spark does by default, and with microseconds where milliseconds would not be exact: two different times never have
the same text. Spark's own options have one format for all times of a column.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from respool.errors import PipelineError
from respool.identity import FROM_TEXT, Identity, parse_identity
from respool.kafka.cluster import KafkaCluster
from respool.locations import canonical_location
from respool.settings import Settings
from respool.spark.sql import literal, quote
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


# What earlier versions of respool kept in run.json of a pipeline that archives; see `identity_from_text`.
_ARCHIVE_NOTE = "Records that the archive has already are left out."  # as earlier versions wrote it


SEVERAL = "several"  # the kind of the identity of several sinks

_MILLISECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSS"
_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


@dataclass(frozen=True)
class WriteContext:
    """What a sink needs for a write, besides the rows.

    Attributes:
        pipeline: The pipeline's name.
        batch: The id of the micro-batch; None for reprocessed results.
        kafka: The cluster for sinks that write there.
        settings: Where tables are that a sink names by a relative path.
        run: The id of the reprocessing run; None for a micro-batch.
        query: The id of the streaming query; None for reprocessed results.
        epoch: The id of the last change of the query's checkpoint, such as a rewind; empty before the first. A batch
            that comes again in the same epoch is a replay after a crash. In another epoch it is a new batch.
    """

    pipeline: str
    batch: int | None
    kafka: KafkaCluster
    settings: Settings
    run: str | None = None
    query: str | None = None
    epoch: str = ""

    def headers(self) -> dict[str, str]:
        """Return headers that identify the origin of a Kafka record for its consumers."""
        if self.run is not None:
            return {"respool-source": "reprocess", "respool-pipeline": self.pipeline, "respool-run-id": self.run}
        return {"respool-source": "live", "respool-pipeline": self.pipeline, "respool-batch": str(self.batch)}


@dataclass(frozen=True)
class SinkOutput:
    """Where results can be read again.

    Attributes:
        address: `kafka:TOPIC`, `delta:TABLE` with its whole path or URL, `files:FOLDER`, or `jdbc:…`.
        key: The columns that identify a result; empty without a key.
    """

    address: str
    key: tuple[str, ...] = ()


@runtime_checkable
class Sink(Protocol):
    """A place for results. If its results can be read back, it is a `ReadableSink`, too."""

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        ...

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        ...

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Create what the sink needs before the first write."""
        ...

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Write all rows of `frame`, once; every partition is computed, as stateful queries need."""
        ...


@runtime_checkable
class IdentifiedSink(Protocol):
    """A sink with an identity. Other sinks are compared by their description."""

    def identity(self) -> Identity:
        """Return the identity of this place, whatever is written there."""
        ...


@runtime_checkable
class ReadableSink(Protocol):
    """A place whose results can be read back."""

    def output(self, settings: Settings) -> SinkOutput:
        """Return where; the settings have the place of tables that a sink names by a relative path."""
        ...


@runtime_checkable
class RecordingSink(Sink, Protocol):
    """A place that records which batches it has. A change of the checkpoint asks it what it does with replayed batches.

    Its backend is found by the address: `registry.replay_of` and `registry.position_of`.
    """

    def recorded_at(self, settings: Settings) -> tuple[str, ...]:
        """Return the addresses of the places that record batches, as `--sink` names them."""
        ...


@runtime_checkable
class ForkableSink(Sink, Protocol):
    """A place for results that can be renamed by a suffix, for a second run of the same pipeline."""

    def with_suffix(self, suffix: str) -> Sink:
        """Return the same kind of place, with a suffix to its name."""
        ...


@runtime_checkable
class KeyedSink(Sink, Protocol):
    """A place where every result has a key, so that it can be compared, corrected and withdrawn."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a result."""
        ...

    def render(self, rows: "DataFrame") -> "DataFrame":
        """Return results with their `key` and `value` as bytes, and the `row` itself."""
        ...

    def published(self, spark: "SparkSession", write: WriteContext, rows: "StructType") -> "DataFrame":
        """Return what the sink holds now: `key`, `value` and `row` of each result, the newest of every key.

        `batch` is the live batch that wrote the result and `at` the time of the write; null where the sink does not
        record them.

        Args:
            spark: The pipeline's session.
            write: Where to look.
            rows: The schema of results.
        """
        ...

    def correct(self, changes: "DataFrame", write: WriteContext) -> None:
        """Write `key`, `value` and `row` of each result; a result whose value is null is withdrawn."""
        ...


def compute(frame: "DataFrame") -> None:
    """Compute every partition of a batch that is not written, as stateful queries need."""
    frame.write.format("noop").mode("overwrite").save()


def render_rows(rows: "DataFrame", key: Sequence[str], withdrawn: str | None) -> "DataFrame":
    """Return results with their `key` and `value` as JSON in bytes, and the `row` itself.

    The value of a withdrawn result is null.

    Args:
        rows: The results.
        key: The columns that identify a result.
        withdrawn: A boolean column that is true for withdrawn results; it is left out of the value and the row.
    """
    from pyspark.sql import functions as F

    names = [name for name in rows.columns if name != withdrawn]
    row = F.struct(*[F.col(quote(name)) for name in names])
    key_text, value = F.expr(json_of(rows.schema, key)), F.expr(json_of(rows.schema, names))
    if withdrawn is not None and withdrawn in rows.columns:  # what is read back has no such column
        value = F.when(~F.coalesce(F.col(quote(withdrawn)), F.lit(False)), value)
    return rows.select(key_text.cast("binary").alias("key"), value.cast("binary").alias("value"), row.alias("row"))


def identity_of(sink: Sink) -> Identity:
    """Return the identity of a sink's place."""
    return sink.identity() if isinstance(sink, IdentifiedSink) else Identity("described", {"text": sink.describe()})


def places_of(identity: Identity) -> tuple[Identity, ...]:
    """Return the identity of each place of a sink: several sinks have several."""
    if identity.kind != SEVERAL:
        return (identity,)
    return tuple(parse_identity(place) for place in identity.fields["places"])


def overlap(recorded: Identity, current: Identity) -> bool:
    """Return whether a recorded sink and a current one have a place in common."""
    return any(place.is_same(other) for place in places_of(recorded) for other in places_of(current))


def is_among(current: Identity, recorded: Identity) -> bool:
    """Return whether every place of a current sink is one of the recorded."""
    return all(any(place.is_same(other) for place in places_of(recorded)) for other in places_of(current))


def kafka_identity(topic: str) -> Identity:
    """Return the identity of a topic."""
    return Identity("kafka", {"topic": topic})


def table_identity(table: str, holds: Literal["results", "records"]) -> Identity:
    """Return the identity of a Delta table.

    Args:
        table: Its path or URL, as the pipeline names it: a relative path lies under the home.
        holds: `results`, or the `records` of an archive. They have different folders under the home.
    """
    return Identity("delta", {"table": canonical_location(table), "holds": holds})


def folder_identity(folder: str) -> Identity:
    """Return the identity of a folder that is given in place of a sink."""
    return Identity("folder", {"path": canonical_location(folder)})


def identity_from_text(text: str, replay_note: str = "") -> Identity | None:
    """Return the identity of a sink that earlier versions of respool kept as a sentence; None for an empty sentence.

    Args:
        text: What `describe` returned, or `folder PATH` for results that were written to a folder.
        replay_note: What `replay_note` returned, where it was kept: only that distinguishes an archive from a table of
            results.
    """
    if not text:
        return None
    for start, name in (("Kafka topic ", "topic"), ("Delta table ", "table"), ("folder ", "path")):
        place = text.removeprefix(start)
        if place == text:
            continue
        if name == "table":
            holds = {} if not replay_note else {"holds": "records" if replay_note == _ARCHIVE_NOTE else "results"}
            return Identity("delta", {"table": canonical_location(place), **holds}, FROM_TEXT)
        if name == "path":
            return Identity("folder", {"path": canonical_location(place)}, FROM_TEXT)
        return Identity("kafka", {"topic": place}, FROM_TEXT)
    return Identity("console", {}, FROM_TEXT) if text == "console" else Identity("described", {"text": text}, FROM_TEXT)


def text_of(identity: Identity) -> str:
    """Return an identity of a place as text, as its sink describes it."""
    fields = identity.fields
    match identity.kind:
        case "kafka":
            return f"Kafka topic {fields.get('topic')}"
        case "delta":
            return f"Delta table {fields.get('table')}"
        case "folder":
            return f"folder {fields.get('path')}"
        case "jdbc":
            return f"PostgreSQL table {fields.get('table')} of {fields.get('database')}"
        case kind if kind == SEVERAL:
            return str(fields.get("text"))
        case _:
            return str(fields.get("text", identity.kind))


# The fields of sinks that name columns of results.
_COLUMN_FIELDS = ("key", "partition_by", "cluster_by", "overwrite_by", "latest_by", "headers", "partition")


def check_columns(sink: object, columns: Sequence[str], pipeline: str) -> None:
    """Raise PipelineError when results lack a column that the sink names, such as one of its key.

    Args:
        sink: The sink.
        columns: The columns of results.
        pipeline: The pipeline's name.
    """
    present = {name.lower() for name in columns}
    for each in getattr(sink, "sinks", ()):
        check_columns(each, columns, pipeline)
    for field in _COLUMN_FIELDS:
        value = getattr(sink, field, None)
        for name in (value,) if isinstance(value, str) else tuple(value or ()):
            if name.lower() not in present:
                raise PipelineError(
                    f"The {field.replace('_', ' ')} of the sink of {pipeline} has the column '{name}', which its "
                    f"results do not have ({', '.join(columns)}).{did_you_mean(name, list(columns))} Correct "
                    f"{type(sink).__name__}.{field} or the transform."
                )


def json_of(schema: "StructType", names: Iterable[str], zone: str | None = None) -> str:
    """Return some columns as a JSON object, in SQL.

    Args:
        schema: The schema of the rows.
        names: The columns.
        zone: The time zone in which times are rendered; the session's by default.
    """
    kinds = {field.name.lower(): field.dataType for field in schema}  # Spark ignores the case; it reports unknown names
    fields = (f"{_exact(quote(name), kinds.get(name.lower()), zone)} AS {quote(name)}" for name in names)
    return f"to_json(struct({', '.join(fields)}){_options({}, zone)})"


def json_value(value: str, kind: "DataType") -> str:
    """Return a struct, an array or a map as JSON, in SQL; times are in UTC."""
    return f"to_json({_exact(value, kind, 'UTC')}{_options({}, 'UTC')})"


def _exact(value: str, kind: "DataType | None", zone: str | None, depth: int = 0) -> str:
    """Return a value with each time in it as text; without times it is left as it is."""
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampNTZType, TimestampType

    if isinstance(kind, TimestampType | TimestampNTZType):
        return _time(value, zone)
    if isinstance(kind, StructType):
        fields = [(field.name, _exact(f"{value}.{quote(field.name)}", field.dataType, zone, depth)) for field in kind]
        if all(sql == f"{value}.{quote(name)}" for name, sql in fields):
            return value
        struct = ", ".join(f"{sql} AS {quote(name)}" for name, sql in fields)
        return f"CASE WHEN {value} IS NOT NULL THEN struct({struct}) END"
    if isinstance(kind, ArrayType):
        element = f"respool_{depth}"
        changed = _exact(element, kind.elementType, zone, depth + 1)
        return value if changed == element else f"transform({value}, {element} -> {changed})"
    if isinstance(kind, MapType):
        element = f"respool_{depth}"
        changed = _exact(element, kind.valueType, zone, depth + 1)
        return value if changed == element else f"transform_values({value}, (respool_key, {element}) -> {changed})"
    return value


def _time(value: str, zone: str | None) -> str:
    is_exact = f"extract(SECOND FROM {value}) * 1000 % 1 = 0"
    return (
        f"CASE WHEN {is_exact} THEN {_formatted(value, _MILLISECONDS, zone)} "
        f"ELSE {_formatted(value, _MICROSECONDS, zone)} END"
    )


def _formatted(value: str, pattern: str, zone: str | None) -> str:
    """Return a time as Spark's JSON has it, for its time zone and for times without a zone alike."""
    options = _options({"timestampFormat": f"{pattern}XXX", "timestampNTZFormat": pattern}, zone)
    return f"CASE WHEN {value} IS NOT NULL THEN trim(BOTH '[\"]' FROM to_json(array({value}){options})) END"


def _options(options: dict[str, str], zone: str | None) -> str:
    if zone is not None:
        options = {**options, "timeZone": zone}
    pairs = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in options.items())
    return f", map({pairs})" if pairs else ""
