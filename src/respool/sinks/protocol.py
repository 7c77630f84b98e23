"""Where results go. A batch of a stream and a result computed again are written by the same code."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from respool.errors import PipelineError
from respool.identity import FROM_TEXT, Identity
from respool.kafka.cluster import KafkaCluster
from respool.locations import canonical_location
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# What earlier versions of respool kept in run.json of a pipeline that archives; see `identity_from_text`.
_ARCHIVE_ON_REPLAY = "Records that the archive has already are left out."


@dataclass(frozen=True)
class WriteContext:
    """One write: what a sink must know beside the rows.

    Attributes:
        pipeline: The pipeline's name.
        batch: The id of the micro-batch; None for what is computed again.
        kafka: The cluster for sinks that write there.
        home: The folder under which sinks put files of their own.
        run: The id of the run that computes a span again; None for a micro-batch.
    """

    pipeline: str
    batch: int | None
    kafka: KafkaCluster
    home: Path
    run: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that tell a consumer where a Kafka record comes from."""
        if self.run is not None:
            return {"respool-source": "reprocess", "respool-pipeline": self.pipeline, "respool-run-id": self.run}
        return {"respool-source": "live", "respool-pipeline": self.pipeline, "respool-batch": str(self.batch)}


@dataclass(frozen=True)
class SinkOutput:
    """Where results can be read again.

    Attributes:
        address: `kafka:TOPIC` or `delta:TABLE`, the table with its whole path or URL.
        key: The columns that identify a result; none when it has no key.
    """

    address: str
    key: tuple[str, ...] = ()


@runtime_checkable
class Sink(Protocol):
    """A place for results. One whose results can be read again is a `ReadableSink`, too."""

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        ...

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        ...

    def prepare(self, kafka: KafkaCluster, source_topic: str) -> None:
        """Make what the sink needs before the first write."""
        ...

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Write all rows of `frame`, once; every partition is computed, as stateful queries need."""
        ...


@runtime_checkable
class IdentifiedSink(Protocol):
    """A place that can be told from others of its kind. Of another sink only its description is known."""

    def identity(self) -> Identity:
        """Return what tells this place from others, whatever is written there."""
        ...


@runtime_checkable
class ReadableSink(Protocol):
    """A place whose results can be read again."""

    def output(self, home: Path) -> SinkOutput:
        """Return where; `home` is the folder under which sinks put files of their own."""
        ...


@runtime_checkable
class ForkableSink(Sink, Protocol):
    """A place for results that can have another one beside it, for a second run of the same pipeline."""

    def with_suffix(self, suffix: str) -> Sink:
        """Return the same kind of place, with a suffix to its name."""
        ...


@runtime_checkable
class KeyedSink(Sink, Protocol):
    """A place where every result stands under a key, so that it can be compared, put right and taken back."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a result."""
        ...

    def render(self, rows: "DataFrame") -> "DataFrame":
        """Return results with their `key` and `value` as bytes, and the `row` itself."""
        ...

    def published(self, spark: "SparkSession", write: WriteContext, rows: "StructType") -> "DataFrame":
        """Return what the sink holds now: `key`, `value` and `row` of each result, the newest of every key.

        What is known of its writing: `batch`, the live batch it came from, and `at`, the time; else null.

        Args:
            spark: The pipeline's session.
            write: Where to look.
            rows: The schema of results.
        """
        ...

    def correct(self, changes: "DataFrame", write: WriteContext) -> None:
        """Write `key`, `value` and `row` of each result; one whose value is null is withdrawn."""
        ...


def identity_of(sink: Sink) -> Identity:
    """Return what tells the place of a sink from others."""
    return sink.identity() if isinstance(sink, IdentifiedSink) else Identity("described", {"text": sink.describe()})


def kafka_identity(topic: str) -> Identity:
    """Return what tells a topic from other places."""
    return Identity("kafka", {"topic": topic})


def table_identity(table: str, holds: Literal["results", "records"]) -> Identity:
    """Return what tells a Delta table from other places.

    Args:
        table: Its path or URL, as the pipeline names it: a relative path lies under the home.
        holds: `results`, or the `records` of an archive. They have different folders under the home.
    """
    return Identity("delta", {"table": canonical_location(table), "holds": holds})


def folder_identity(folder: str) -> Identity:
    """Return what tells a folder, given in place of a sink, from other places."""
    return Identity("folder", {"path": canonical_location(folder)})


def identity_from_text(text: str, on_replay: str = "") -> Identity | None:
    """Return the identity in a sentence of earlier versions of respool, which kept sentences; None for an empty one.

    Args:
        text: What `describe` returned, or `folder PATH` for results that were written to a folder.
        on_replay: What `on_replay` returned, where it is kept: only that tells an archive from a table of results.
    """
    if not text:
        return None
    for start, name in (("Kafka topic ", "topic"), ("Delta table ", "table"), ("folder ", "path")):
        place = text.removeprefix(start)
        if place == text:
            continue
        if name == "table":
            holds = {} if not on_replay else {"holds": "records" if on_replay == _ARCHIVE_ON_REPLAY else "results"}
            return Identity("delta", {"table": canonical_location(place), **holds}, FROM_TEXT)
        if name == "path":
            return Identity("folder", {"path": canonical_location(place)}, FROM_TEXT)
        return Identity("kafka", {"topic": place}, FROM_TEXT)
    return Identity("console", {}, FROM_TEXT) if text == "console" else Identity("described", {"text": text}, FROM_TEXT)


def text_of(identity: Identity) -> str:
    """Return an identity of a place for people, as its sink describes it."""
    fields = identity.fields
    match identity.kind:
        case "kafka":
            return f"Kafka topic {fields.get('topic')}"
        case "delta":
            return f"Delta table {fields.get('table')}"
        case "folder":
            return f"folder {fields.get('path')}"
        case _:
            return str(fields.get("text", identity.kind))


def check_key(sink: object, columns: Sequence[str], pipeline: str) -> None:
    """Raise PipelineError when results lack a column of the sink's key.

    Args:
        sink: The sink.
        columns: The columns of results.
        pipeline: The pipeline's name.
    """
    known = {name.lower() for name in columns}
    lacking = next((name for name in getattr(sink, "key", ()) if name.lower() not in known), None)
    if lacking is not None:
        raise PipelineError(
            f"The key of the sink of {pipeline} has the column '{lacking}', which its results do not have "
            f"({', '.join(columns)}).{did_you_mean(lacking, list(columns))} Correct the key or the transform."
        )
