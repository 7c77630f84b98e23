"""A pipeline: a named source → decode → transform → sink, as data."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from respool.decoders.protocol import Decoder, decode
from respool.errors import PipelineError
from respool.pipeline.results import Results, Sessions, Windows
from respool.settings import check_timezone
from respool.sinks.kafka import RejectedSink
from respool.sinks.protocol import Sink
from respool.spark.sql import literal, quote
from respool.times import parse_duration, spark_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


OutputMode = Literal["append", "update", "complete"]


@dataclass(frozen=True)
class Pipeline:
    """A named path from records to results, the same for a stream and for a batch.

    Attributes:
        name: Letters, digits, dots, dashes and underscores; the name of its checkpoint too.
        topic: The Kafka topic it reads.
        transform: Events in, results out, the same for a stream and a batch. Without a decoder its input is records.
        sink: Where the results go.
        decode: How records become events; None for a pipeline of raw records.
        summary: What it does, in one line.
        watermark: How late an event may come, such as `10 minutes`; None for no watermark.
        output_mode: Spark's output mode.
        trigger: The time from batch to batch, such as `20 seconds`; None for no pause between batches.
        max_offsets_per_trigger: How many records a batch reads at most; None for all available records.
        timezone: The zone in which event times without a zone are read, and results are rendered.
        spark: Spark settings of its session.
        stateless: The transform gets a single batch, and no state is kept from batch to batch.
        results: How results relate to event time, so that a span of them can be computed again; None if that is
            unknown.
        archive: The archive of its topic, a Delta table's path or URL; None for `<topic>_table`.
        fixed: Parameters that determine the layout of its state: a checkpoint records their values, and refuses others.

    >>> respool.Pipeline("orders", "orders", transform=lambda events: events, sink=respool.ConsoleSink())
    Pipeline('orders', topic='orders')
    """

    name: str
    topic: str
    transform: "Callable[[DataFrame], DataFrame]"
    sink: Sink
    decode: Decoder | None = None
    summary: str = ""
    watermark: str | None = None
    output_mode: OutputMode = "append"
    trigger: str | None = None
    max_offsets_per_trigger: int | None = None
    timezone: str = "UTC"
    spark: Mapping[str, str] = field(default_factory=dict)
    stateless: bool = False
    results: Results | None = None
    archive: str | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return its name and topic."""
        return f"Pipeline({self.name!r}, topic={self.topic!r})"

    def __post_init__(self) -> None:
        """Refuse definitions that would fail later."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise PipelineError(
                f"Invalid pipeline name '{self.name}'. Use letters, digits, dots, dashes and underscores."
            )
        if self.watermark and self.stateless:
            raise PipelineError(f"The pipeline {self.name} is stateless: a watermark has no effect. Leave it out.")
        if self.watermark and self.decode is None:
            raise PipelineError(f"The pipeline {self.name} has a watermark but no decoder. Give it one, or neither.")
        for decoder in (self.decode, getattr(self.sink, "decoder", None)):
            self._check_decoder(decoder)
        check_timezone(self.timezone)
        if self.watermark is not None:
            spark_interval(self.watermark)
        if self.trigger is not None:
            parse_duration(self.trigger)
        if isinstance(self.results, Windows | Sessions) and (self.decode is None or self.stateless):
            kind = "has no decoder" if self.decode is None else "is stateless"
            raise PipelineError(
                f"The pipeline {self.name} {kind}: its results cannot be windows or sessions of event time. "
                "Leave `results` out, or give it a decoder and a state."
            )

    def _check_decoder(self, decoder: object) -> None:
        if decoder is None:
            return
        try:
            if not isinstance(decoder, Decoder):
                raise PipelineError(
                    f"decode is a {type(decoder).__name__}, which is not a decoder: it lacks time_column or a "
                    "method: check, columns, identity and decode. Use JsonDecoder or another decoder of respool."
                )
            decoder.check()
        except PipelineError as error:
            raise PipelineError(f"The pipeline {self.name}: {error}") from error

    @property
    def is_companion(self) -> bool:
        """Whether it keeps the rejected records of other pipelines."""
        return isinstance(self.sink, RejectedSink)

    def describe(self) -> dict[str, str]:
        """Return what it reads, does and writes, for `respool pipelines`."""
        return {
            "pipeline": self.name,
            "reads": f"Kafka topic {self.topic}",
            "does": self.summary,
            "writes": self.sink.describe(),
        }


def rejected(topic: str, decoders: Mapping[Decoder, Sequence[str]]) -> Pipeline:
    """Return the companion of pipelines that read `topic`: it keeps the records that any of their decoders rejects.

    Each record is kept once, however many decoders reject it.

    Args:
        topic: The topic.
        decoders: The decoders, each with the names of its pipelines.
    """
    digests = sorted(_digest(decoder.identity().text()) for decoder in decoders)
    return Pipeline(
        name=f"rejected-{topic}-{digests[0] if len(digests) == 1 else _digest(' '.join(digests))}",
        topic=topic,
        transform=lambda records: _rejected_by_any(records, decoders),
        sink=RejectedSink(f"{topic}-rejected"),
        summary=f"Keeps the records of {topic} that do not decode",
    )


def _rejected_by_any(records: "DataFrame", decoders: Mapping[Decoder, Sequence[str]]) -> "DataFrame":
    """Return the rejected records: `rejected` has the reasons; `rejected_by` the pipelines, of several decoders."""
    if len(decoders) == 1:
        [decoder] = decoders
        return decode(records, decoder).where("rejected IS NOT NULL")
    rows, columns = records, records.columns
    reasons = [f"_respool_reason_{number}" for number in range(len(decoders))]
    for reason, decoder in zip(reasons, decoders, strict=True):
        rows = decode(rows, decoder).withColumnRenamed("rejected", reason).drop("event")
    names = (
        f"CASE WHEN {reason} IS NOT NULL THEN {literal(', '.join(sorted(names)))} END"
        for reason, names in zip(reasons, decoders.values(), strict=True)
    )
    return rows.where(f"coalesce({', '.join(reasons)}) IS NOT NULL").selectExpr(
        *map(quote, columns),
        f"array_join(array_distinct(array_compact(array({', '.join(reasons)}))), '; ') AS rejected",
        f"concat_ws(', ', {', '.join(names)}) AS rejected_by",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
