"""A pipeline: a named source → decode → transform → sink, as data."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

from respool.decoders.protocol import Decoder, decode
from respool.errors import PipelineError
from respool.pipeline import soundness
from respool.pipeline.inputs import Input, check_duration
from respool.pipeline.results import Results
from respool.pipeline.soundness import IdleInputs, OutputMode
from respool.settings import check_timezone
from respool.sinks.kafka import RejectedSink
from respool.sinks.protocol import Sink
from respool.sinks.several import SeveralSinks
from respool.sources.kafka import REJECTED, KafkaSource
from respool.sources.protocol import Source
from respool.spark.sql import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


EVENTS = "events"  # the name of the only input of a pipeline without `inputs`
_REQUIRED: Any = None


def unchanged(events: "DataFrame") -> "DataFrame":
    """Return the events: the transform of a pipeline that only moves them."""
    return events


@dataclass(frozen=True)
class Pipeline:
    """A named path from records to results, the same for a stream and for a batch.

    It reads either a `topic`, or another `source`, or several `inputs`.

    Attributes:
        name: Letters, digits, dots, dashes and underscores; the name of its checkpoint too.
        topic: The Kafka topic that it reads.
        transform: Events in, results out, the same for a stream and a batch. Without a decoder its input is records.
            With several inputs it has a parameter of the name of each. By default the events are the results.
        sink: Where the results go; with `sinks`, all of them.
        decode: How records become events; None for a pipeline of raw records.
        summary: What it does, in one line.
        watermark: How late an event may come, such as `10 minutes`; None for no watermark.
        output_mode: Spark's output mode.
        trigger: The time from batch to batch, such as `20 seconds`; None for no pause between batches.
        max_offsets_per_trigger: How many records a batch reads at most of each Kafka source; None for all available
            records.
        timezone: The zone in which event times without a zone are read, and results are rendered.
        spark: Spark settings of its session.
        stateless: The transform gets a single batch, and no state is kept from batch to batch.
        results: How results relate to event time, so that a span of them can be computed again; None if that is
            unknown.
        archive: The archive of its topic, a Delta table's path or URL; None for `<topic>_table`.
        fixed: Parameters that determine the layout of its state: a checkpoint records their values, and refuses others.
        source: What it reads, in place of a topic.
        event_time: Without a decoder, the column that the watermark is about.
        inputs: What it reads, by the names of the transform's parameters, in place of a topic or source.
        idle_inputs: Of several inputs with watermarks, whether the watermark of the query waits for the slowest
            (`wait`), so that nothing is dropped too early, or follows the fastest (`ignore`), so that an input without
            records does not hold back results. Then events of an input that lags behind count as late.
        sinks: Several places where the results go, in place of `sink`. A batch is computed once for all of them.

    >>> respool.Pipeline("orders", "orders", transform=lambda events: events, sink=respool.ConsoleSink())
    Pipeline('orders', topic='orders')
    """

    name: str
    topic: str | None = None
    transform: "Callable[..., DataFrame]" = unchanged
    sink: Sink = _REQUIRED
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
    source: Source | None = None
    event_time: str | None = None
    inputs: Mapping[str, Input] = field(default_factory=dict)
    idle_inputs: IdleInputs = "wait"
    sinks: InitVar[Sequence[Sink] | None] = None
    streams: Mapping[str, Input] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        """Return its name and what it reads."""
        if self.topic is not None:
            return f"Pipeline({self.name!r}, topic={self.topic!r})"
        return f"Pipeline({self.name!r}, reads={self.reads!r})"

    def __post_init__(self, sinks: Sequence[Sink] | None) -> None:
        """Refuse definitions that would fail later."""
        if (problem := soundness.pipeline_name_problem(self.name)) is not None:
            raise PipelineError(problem)
        if self.sink is not None and sinks is not None:
            raise PipelineError(f"The pipeline {self.name} has `sink` and `sinks`. Give it one of the two.")
        if sinks is not None:
            object.__setattr__(self, "sink", SeveralSinks(tuple(sinks)))
        check_timezone(self.timezone)
        try:
            if self.trigger is not None:
                check_duration("trigger", self.trigger)
            object.__setattr__(self, "streams", self._streams())
        except PipelineError as error:
            raise PipelineError(f"The pipeline {self.name}: {error}") from error
        if problem := next(self._problems(), None):
            raise PipelineError(problem)

    def _problems(self) -> Iterator[str]:
        name, streams = self.name, self.streams
        yield from soundness.transform_problems(name, self.transform, self.inputs)
        yield from soundness.sink_problems(name, self.sink, self.known_columns)
        yield from soundness.mode_problems(name, self.output_mode, self.stateless, streams, self.results)
        yield from soundness.idle_problems(name, self.idle_inputs, streams)
        yield from soundness.results_problems(name, self.results, self.stateless, streams, self.event_fields)
        yield from soundness.setting_problems(name, self.max_offsets_per_trigger, self.spark)

    def _streams(self) -> dict[str, Input]:
        """Return the inputs by their names; a topic or source is the input `events`."""
        given = [name for name in ("topic", "source", "inputs") if getattr(self, name)]
        if len(given) != 1:
            raise PipelineError(
                f"it has {' and '.join(given) or 'neither topic nor source nor inputs'}; expected one of topic, source "
                "and inputs. Give it exactly one."
            )
        if not self.inputs:
            source = self.source or KafkaSource(self.topic or ())
            return {EVENTS: Input(source, self.decode, self.watermark, self.event_time, archive=self.archive)}
        for name in ("decode", "watermark", "event_time", "archive"):
            if getattr(self, name) is not None:
                raise PipelineError(f"{name} is given for a pipeline with inputs. Give it to each Input.")
        for name, each in self.inputs.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise PipelineError(f"inputs has the name {name!r}; expected the name of a parameter of the transform.")
            if not isinstance(each, Input):
                raise PipelineError(f"inputs['{name}'] is a {type(each).__name__}; expected an Input.")
        if all(each.static for each in self.inputs.values()):
            raise PipelineError("all inputs are static. Leave static out for at least one of them.")
        return dict(self.inputs)

    @property
    def reads(self) -> str:
        """What it reads: the name of its topic, the topics of several inputs, or descriptions of other sources."""
        return ", ".join(each.reads() for each in self.streams.values() if not each.static)

    @property
    def kafka_sources(self) -> list[KafkaSource]:
        """Its sources that are Kafka's, in the order of its inputs."""
        return [each.kafka for each in self.streams.values() if each.kafka is not None]

    @property
    def topics(self) -> list[str]:
        """The Kafka topics that it reads by their names, each once; those of patterns are left out."""
        return list(dict.fromkeys(name for source in self.kafka_sources for name in source.names))

    def may_read(self, topics: set[str]) -> bool:
        """Return whether its query may be that of a checkpoint whose query reads these Kafka topics."""
        sources = self.kafka_sources
        return not (topics or sources) or any(source.matches(topic) for source in sources for topic in topics)

    def compute(self, events: "Mapping[str, DataFrame]") -> "DataFrame":
        """Return the results of events, by the names of the inputs."""
        return self.transform(**events) if self.inputs else self.transform(*events.values())

    def event_fields(self) -> list[str] | None:
        """Return the fields of its events, as far as they are known without Spark; None for several inputs."""
        [first, *more] = self.streams.values()
        return None if more else first.fields()

    def known_columns(self) -> list[str] | None:
        """Return the columns of its results, if they are known without Spark: those of events that it only moves."""
        return self.event_fields() if self.transform is unchanged else None

    @property
    def is_companion(self) -> bool:
        """Whether it keeps the rejected records of other pipelines."""
        return isinstance(self.sink, RejectedSink)

    def describe(self) -> dict[str, str]:
        """Return what it reads, does and writes, for `respool pipelines`."""
        return {
            "pipeline": self.name,
            "reads": ", ".join(each.source.describe() for each in self.streams.values()),
            "does": self.summary,
            "writes": self.sink.describe(),
        }


def rejected(topic: str, decoders: Mapping[Decoder, Sequence[str]], source: KafkaSource | None = None) -> Pipeline:
    """Return the companion of pipelines that read `topic`: it keeps the records that any of their decoders rejects.

    Each record is kept once, however many decoders reject it.

    Args:
        topic: The topic.
        decoders: The decoders, each with the names of its pipelines.
        source: The topic as a source, where the pipelines do not start at its earliest offset.
    """
    digests = sorted(_digest(decoder.identity().text()) for decoder in decoders)
    return Pipeline(
        name=f"rejected-{topic}-{digests[0] if len(digests) == 1 else _digest(' '.join(digests))}",
        source=source or KafkaSource(topic),
        transform=lambda records: _rejected_by_any(records, decoders),
        sink=RejectedSink(f"{topic}{REJECTED}"),
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
