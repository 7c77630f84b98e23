"""Kafka topics as a source."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from respool.errors import PipelineError
from respool.identity import Identity
from respool.kafka import records, topics
from respool.kafka.cluster import KafkaCluster
from respool.sources.protocol import ReadContext, check_choice, check_options, parse_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Starting = str | datetime | Mapping[str, Mapping[int, int]]
OnDataLoss = Literal["fail", "skip"]

REJECTED = "-rejected"  # at the end of the name of a topic that holds rejected records
_POLICIES = ("fail", "skip")
_OPTIONS = {
    "subscribe": "topics",
    "subscribepattern": "pattern",
    "assign": "starting",
    "startingoffsets": "starting",
    "startingtimestamp": "starting",
    "startingoffsetsbytimestamp": "starting",
    "failondataloss": "on_data_loss",
    "includeheaders": "nothing: the headers are always available to a pipeline without a decoder",
    "maxoffsetspertrigger": "max_offsets_per_trigger of the Pipeline",
    "kafka.bootstrap.servers": "bootstrap_servers of respool.toml",
}


@dataclass(frozen=True)
class KafkaSource:
    """Records of one or several topics.

    Attributes:
        topics: The names of the topics; a single name may be given as text.
        pattern: A regular expression for whole names of topics, in place of `topics`. Topics that appear later are
            read, too. Topics whose names end with `-rejected` are left out.
        starting: Where a query starts that has no checkpoint yet: `earliest`, `latest`, a time (a datetime or ISO
            8601) or the offset of each partition, as `{"orders": {0: 120}}`. Other partitions start at the earliest
            offset.
        on_data_loss: What happens when Kafka no longer has the next records: `fail`, or `skip` them, with a report.
        options: Further options of Spark's Kafka source, such as `minPartitions`; those of the Kafka client start with
            `kafka.`.

    >>> respool.KafkaSource("orders", starting="latest").describe()
    'Kafka topic orders'
    >>> respool.KafkaSource(pattern="orders-.*").describe()
    'Kafka topics orders-.*'
    """

    topics: str | Sequence[str] = ()
    pattern: str | None = None
    starting: Starting = "earliest"
    on_data_loss: OnDataLoss = "fail"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse what Kafka or Spark would refuse later."""
        names = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)
        object.__setattr__(self, "topics", names)
        if bool(names) == (self.pattern is not None):
            raise PipelineError("A KafkaSource needs either topics or a pattern. Name one of the two.")
        for name in names:
            if (problem := topics.name_problem(name)) is not None:
                raise PipelineError(f"topics has '{name}', which {problem}")
        if len(set(names)) < len(names):
            raise PipelineError(f"topics has a topic twice: {', '.join(names)}. Leave one of them out.")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise PipelineError(
                    f"pattern is '{self.pattern}', which is not a regular expression: {error}. Correct it."
                ) from error
        check_choice("on_data_loss", self.on_data_loss, _POLICIES)
        check_options("KafkaSource", self.options, _OPTIONS)
        self._check_starting()

    def _check_starting(self) -> None:
        match self.starting:
            case "earliest" | "latest":
                return
            case str() as text:
                object.__setattr__(
                    self,
                    "starting",
                    parse_start(text, "earliest, latest, a time such as 2025-09-04T07:30Z, or offsets"),
                )
            case datetime() as time:
                if time.tzinfo is None:
                    raise PipelineError(f"starting is {time} without a time zone. Give it one: tzinfo=timezone.utc.")
            case Mapping() as offsets:
                self._check_offsets(offsets)
            case other:
                raise PipelineError(
                    f"starting is {other!r}; expected earliest, latest, a time, or offsets by topic and partition. "
                    "Correct it."
                )

    def _check_offsets(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        for name, parts in offsets.items():
            if not self.matches(name):
                raise PipelineError(
                    f"starting has offsets of the topic '{name}', which the source does not read: it reads "
                    f"{self.describe()}. Correct it."
                )
            numbers = [*parts, *parts.values()] if isinstance(parts, Mapping) else [None]
            if not all(isinstance(number, int) and number >= 0 for number in numbers):
                raise PipelineError(
                    f"starting has {parts!r} for the topic {name}; expected an offset by partition, such as {{0: 120}}."
                )

    def __hash__(self) -> int:
        """Return a hash of its identity."""
        return hash(self.identity())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the topics; empty for a pattern."""
        return tuple(self.topics)

    def matches(self, topic: str) -> bool:
        """Return whether it reads a topic of this name."""
        if self.pattern is None:
            return topic in self.topics
        return re.fullmatch(self.pattern, topic) is not None and not topic.endswith(REJECTED)

    def reads(self) -> str:
        """Return what it reads, without the word Kafka: the names of the topics, or the pattern."""
        return self.pattern if self.pattern is not None else ", ".join(self.topics)

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Kafka topic{'' if len(self.topics) == 1 else 's'} {self.reads()}"

    def identity(self) -> Identity:
        """Return the identity of these topics, wherever a query starts."""
        if self.pattern is not None:
            return Identity("kafka-pattern", {"pattern": self.pattern})
        return Identity("kafka-topics", {"topics": sorted(self.topics)})

    def present(self, kafka: KafkaCluster) -> list[str]:
        """Return the topics that it reads now, in a request to Kafka for a pattern."""
        if self.pattern is None:
            return list(self.topics)
        return [name for name in topics.topic_names(kafka) if self.matches(name)]

    def require(self, kafka: KafkaCluster) -> None:
        """Raise TopicError when a topic that it names does not exist."""
        for name in self.topics:
            topics.require_topic(kafka, name)

    def starting_text(self) -> str:
        """Return where a query starts, as text."""
        match self.starting:
            case datetime() as time:
                return time.astimezone(timezone.utc).isoformat()
            case Mapping() as offsets:
                return "; ".join(
                    f"{name}-{partition} at {offset}"
                    for name, parts in sorted(offsets.items())
                    for partition, offset in sorted(parts.items())
                )
            case text:
                return text

    def stream(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return the records as a stream."""
        # A topic alone is subscribed to by its name; Java's client matches the whole name against a pattern.
        chosen = (
            {"subscribe": ",".join(self.topics)}
            if self.pattern is None
            else {"subscribePattern": f"(?:{self.pattern})(?<!{REJECTED})"}
        )
        options = {
            **self.options,
            **chosen,
            **self._start_options(read.kafka),
            "failOnDataLoss": "false" if self.on_data_loss == "skip" else "true",
        }
        return records.read_stream(spark, read.kafka, options, read.limit, headers=read.headers)

    def _start_options(self, kafka: KafkaCluster) -> dict[str, str]:
        match self.starting:
            case datetime() as time:
                # A partition whose records are all older starts at its end.
                return {
                    "startingTimestamp": str(int(time.timestamp() * 1000)),
                    "startingOffsetsByTimestampStrategy": "latest",
                }
            case Mapping() as offsets:
                return {"startingOffsets": records.start_positions(kafka, self.present(kafka), offsets)}
            case str() as text:
                return {"startingOffsets": text}
            case _:
                raise AssertionError(self.starting)
