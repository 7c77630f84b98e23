"""What a decoder is: records → events, and records that are rejected with a reason."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable
from uuid import uuid4

from respool.identity import Identity
from respool.spark.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KAFKA_TIMESTAMP = "<kafka timestamp>"
"""In place of a field, as the event time: the timestamp of the record in Kafka."""
EVENT_TIME = "event_time"
"""The column of an event time that is not one of the event's fields: of a nested field, or of Kafka."""
RECORD = "record"
"""The column of an event that has parts of its record, if a decoder includes any."""

RecordPart = Literal["topic", "partition", "offset", "timestamp", "key", "headers", "tombstone"]
Tombstones = Literal["keep", "reject", "drop"]

_REJECTED, _DROPPED = "_respool_is_rejected", "_respool_is_dropped"


@dataclass(frozen=True)
class Decoded:
    """Records that a decoder has read.

    Attributes:
        records: The records with all of their columns, and columns of the decoder; it has each record once.
        rejected: The reason why there is no event, a column of `records`; null for an event.
        fields: The fields of an event, by name, in order: columns of `records`.
        time: The event time, a column of `records`; null for a rejected record.
        dropped: True for a record that is neither an event nor rejected, a column of `records`; None when no record
            is dropped.

    >>> list(respool.Decoded.__annotations__)
    ['records', 'rejected', 'fields', 'time', 'dropped']
    """

    records: "DataFrame"
    rejected: "Column"
    fields: "Mapping[str, Column]"
    time: "Column"
    dropped: "Column | None" = None


@runtime_checkable
class Decoder(Protocol):
    """Reads records. The same code runs in a stream, in the archive, in reprocessing and in tests.

    A decoder must not fail for any content of a record. It is a value: two equal decoders read alike.

    >>> isinstance(respool.TextDecoder(), respool.Decoder)
    True
    """

    @property
    def time_column(self) -> str:
        """The column of events that has the event time, a TIMESTAMP."""
        ...

    def check(self) -> list[str]:
        """Return the names of the columns of events; raise PipelineError, without a JVM, if it cannot be used."""
        ...

    def columns(self) -> Collection[str]:
        """Return the columns of records that it needs; headers are read from Kafka only for it."""
        ...

    def identity(self) -> Identity:
        """Return its identity, which is recorded and compared later; secrets are not part of it."""
        ...

    def decode(self, records: "DataFrame") -> Decoded:
        """Read records, a stream or a batch."""
        ...


def decode(records: "DataFrame", decoder: Decoder) -> "DataFrame":
    """Return the records with two more columns: `event`, a struct, and `rejected`, the reason why there is none.

    At most one of the two has a value; both are null in a record that the decoder drops.
    """
    from pyspark.sql import functions as F

    decoded = decoder.decode(records)
    is_event = decoded.rejected.isNull()
    if decoded.dropped is not None:
        is_event &= ~decoded.dropped
    event = F.when(is_event, F.struct(*(column.alias(name) for name, column in decoded.fields.items())))
    kept = (quote(name) for name in records.columns if name not in ("rejected", "event"))
    return decoded.records.select(*kept, decoded.rejected.alias("rejected"), event.alias("event"))


def decode_events(records: "DataFrame", decoder: Decoder, observation: str) -> "DataFrame":
    """Return the events of records, each field a column, and observe how many were `rejected`.

    Fields that the transform does not use are not carried along, as they would be in a struct.

    Args:
        records: The records.
        decoder: The decoder.
        observation: The name under which Spark reports the number, for each batch.
    """
    from pyspark.sql import functions as F

    decoded = decoder.decode(records)
    columns = [decoded.rejected.alias(_REJECTED), *(column.alias(name) for name, column in decoded.fields.items())]
    is_event = F.col(_REJECTED).isNull()
    if decoded.dropped is not None:
        columns.append(decoded.dropped.alias(_DROPPED))
        is_event &= ~F.col(_DROPPED)
    observed = decoded.records.select(*columns).observe(observation, F.count(_REJECTED).alias("rejected"))
    return observed.where(is_event).drop(_REJECTED, _DROPPED)


def decode_once(records: "DataFrame", decoder: Decoder) -> "DataFrame":
    """Return `decode` for a query that filters the events: each record is parsed once.

    A filter that Spark pushes below the decoding would parse each record many times; `observe` prevents that.
    """
    from pyspark.sql import functions as F

    return decode(records, decoder).observe(f"respool-{uuid4().hex}", F.count("rejected").alias("rejected"))
