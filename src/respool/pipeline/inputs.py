"""The inputs of a pipeline: a source, how its records become events, and how late these may be."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from respool.decoders.protocol import Decoder
from respool.errors import PipelineError, SettingsError
from respool.sources.kafka import KafkaSource
from respool.sources.protocol import Source, TableSource
from respool.sources.spark import RateSource
from respool.times import spark_interval

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_built_in: ContextVar[bool] = ContextVar("built_in", default=False)


@contextmanager
def built_in() -> Iterator[None]:
    """Leave the schemas of decoders unread for the length of a `with` block.

    To read them loads the types of pyspark. The tests read the schemas of respool's own pipelines, and a list of these
    pipelines is printed without that wait.
    """
    token = _built_in.set(True)
    try:
        yield
    finally:
        _built_in.reset(token)


@dataclass(frozen=True)
class Input:
    """One of the inputs of a pipeline.

    Attributes:
        source: Where it is read.
        decode: How its records become events; None for rows that are used as they are.
        watermark: How late an event may come, such as `10 minutes`; None for no watermark.
        event_time: Without a decoder, the column that a watermark is about; of raw Kafka records it is `timestamp`.
        static: Read all rows of the source, anew for every batch: a table that a stream is joined with.
        archive: The archive of its records, a Delta table's path or URL; None for the default of `archive_pipeline`.

    >>> respool.Input(respool.RateSource(5), watermark="10 seconds", event_time="timestamp").time_column
    'timestamp'
    """

    source: Source
    decode: Decoder | None = None
    watermark: str | None = None
    event_time: str | None = None
    static: bool = False
    archive: str | None = None

    def __post_init__(self) -> None:
        """Refuse definitions that would fail later."""
        if not isinstance(self.source, Source):
            raise PipelineError(
                f"source is a {type(self.source).__name__}, which is not a source: it lacks one of the methods "
                "describe, identity and stream. Use KafkaSource, DeltaSource, FileSource, RateSource or SparkSource."
            )
        if self.decode is not None and not isinstance(self.decode, Decoder):
            raise PipelineError(
                f"decode is a {type(self.decode).__name__}, which is not a decoder: it lacks time_column or a method: "
                "check, columns, identity and decode. Use JsonDecoder or another decoder of respool."
            )
        if self.decode is not None and not isinstance(self.source, KafkaSource):
            raise PipelineError(
                f"decode is for records of Kafka; the source is: {self.source.describe()}. Leave it out, and name the "
                "column of the event time as event_time."
            )
        if self.decode is not None and self.event_time is not None:
            raise PipelineError(
                f"event_time is {self.event_time}, but the decoder determines the event time. Leave it out."
            )
        if self.decode is not None:
            self.fields()  # raises for a decoder that cannot be used
        if self.static:
            self._check_static()
        if self.watermark is not None:
            check_duration("watermark", self.watermark)
            if self.time_column is None:
                raise PipelineError(
                    f"watermark is {self.watermark}, but the input has no event time. Give it a decoder, or name a "
                    "column as event_time, or leave the watermark out."
                )
        self._check_event_time()

    def _check_static(self) -> None:
        if not isinstance(self.source, TableSource):
            raise PipelineError(
                f"static is true, but the {self.source.describe()} can only be read as a stream. Leave it out."
            )
        for name in ("watermark", "event_time"):
            if getattr(self, name) is not None:
                raise PipelineError(f"{name} has no effect on a static input. Leave it out.")

    def _check_event_time(self) -> None:
        """Raise PipelineError when the column of the event time is known not to exist, or not to be a time."""
        if self.event_time is None:
            return
        from pyspark.sql.types import TimestampNTZType, TimestampType

        schema = self.known_schema()
        if schema is None:
            return
        if self.event_time not in schema.names:
            raise PipelineError(
                f"event_time is '{self.event_time}', which is not a column of the {self.source.describe()} "
                f"({', '.join(schema.names)}). Name one of them."
            )
        kind = schema[self.event_time].dataType
        if not isinstance(kind, TimestampType | TimestampNTZType):
            raise PipelineError(
                f"event_time is '{self.event_time}', which is declared as {kind.simpleString()}; expected "
                "TIMESTAMP. Declare it so."
            )

    @property
    def time_column(self) -> str | None:
        """The column of the event time; None when there is none."""
        return self.event_time if self.decode is None else self.decode.time_column

    @property
    def kafka(self) -> KafkaSource | None:
        """Its source, if that is Kafka."""
        return self.source if isinstance(self.source, KafkaSource) else None

    def reads(self) -> str:
        """Return what it reads: the topics of Kafka, or a description of another source."""
        return self.source.reads() if isinstance(self.source, KafkaSource) else self.source.describe()

    def fields(self) -> list[str] | None:
        """Return the names of its columns, as far as they are known without Spark."""
        if _built_in.get():
            return None
        if self.decode is not None:
            return self.decode.check()
        schema = self.known_schema()
        return None if schema is None else schema.names

    def known_schema(self) -> "StructType | None":
        """Return the columns of a source without a decoder, if they are known without Spark."""
        from respool.kafka import records
        from respool.spark.sql import DdlError, parse_ddl

        text = getattr(self.source, "schema", "")
        if isinstance(self.source, KafkaSource):
            text = records.SCHEMA
        elif isinstance(self.source, RateSource):
            text = "timestamp TIMESTAMP, value BIGINT"
        try:
            return parse_ddl(text) if text else None
        except DdlError as error:
            raise PipelineError(f"schema of the {self.source.describe()}: {error}") from error


def check_duration(field: str, text: str) -> None:
    """Raise PipelineError when a field is not a duration."""
    try:
        spark_interval(text)
    except SettingsError as error:
        raise PipelineError(f"{field}: {error}") from error
