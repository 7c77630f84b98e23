"""A user's own streaming query, which respool did not define, under the same name, lease and records as a pipeline.

Its sources, watermarks and sink are whatever the user's code says. respool knows where Spark's own sink writes, which
decides what happens to replayed batches, and the code of the functions that make the query.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.errors import PipelineError
from respool.identity import Identity
from respool.locations import absolute, canonical_location
from respool.pipeline.definition import Pipeline
from respool.pipeline.registry import load_file, load_module
from respool.sinks.address import DeltaAddress, FileAddress, JdbcAddress, OtherAddress
from respool.sinks.protocol import Sink, SinkOutput, kafka_identity, table_identity
from respool.sinks.registry import parse_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from respool.kafka.cluster import KafkaCluster
    from respool.settings import Settings
    from respool.sinks.protocol import WriteContext
    from respool.sources.protocol import ReadContext

Build = Callable[["SparkSession"], "DataStreamWriter"]


@dataclass(frozen=True)
class JobSource:
    """The sources of a user's own query."""

    def describe(self) -> str:
        """Return a few words for messages."""
        return "its own sources"

    def identity(self) -> Identity:
        """Return the identity of sources that are not known."""
        return Identity("job", {})

    def stream(self, spark: "SparkSession", read: "ReadContext") -> "DataFrame":
        """Refuse: the query reads its sources itself."""
        raise PipelineError("The query of a job reads its own sources. Run it with respool run --job.")


@dataclass(frozen=True)
class JobSink:
    """Where a user's own query writes.

    Attributes:
        address: The address, as the option `--sink` names it, such as `delta:/data/totals` or `foreachBatch`.
        key: The columns that identify a result, for `respool diff`.
    """

    address: str
    key: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an address of another form."""
        object.__setattr__(self, "key", (self.key,) if isinstance(self.key, str) else tuple(self.key))
        parse_sink(self.address)

    def describe(self) -> str:
        """Return a few words for messages."""
        match parse_sink(self.address):
            case DeltaAddress(table):
                return f"Delta table {table}"
            case FileAddress(folder):
                return f"files in {folder}"
            case OtherAddress(kind):
                return kind
            case JdbcAddress():
                return self.address

    def identity(self) -> Identity:
        """Return the identity of this place."""
        match parse_sink(self.address):
            case DeltaAddress(table):
                return table_identity(table, "results")
            case FileAddress(folder):
                return Identity("files", {"path": canonical_location(folder)})
        kind, _, place = self.address.partition(":")
        return kafka_identity(place) if kind.lower() == "kafka" else Identity("described", {"text": self.describe()})

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, as far as that does not depend on the sink's own records."""
        return getattr(
            parse_sink(self.address), "text", "Spark's own sink decides, by the batches that it has recorded."
        )

    def output(self, settings: "Settings") -> SinkOutput:
        """Return where results can be read back; nowhere for a sink that is neither a topic nor a Delta table."""
        match parse_sink(self.address):
            case DeltaAddress(table):
                return SinkOutput(f"delta:{table}", self.key)
        return SinkOutput(self.address if self.address.lower().startswith("kafka:") else "", self.key)

    def recorded_at(self, settings: "Settings") -> tuple[str, ...]:
        """Return the address of a table or a folder, where Spark's own sink records which batches it has."""
        return (self.address,) if isinstance(parse_sink(self.address), DeltaAddress | FileAddress) else ()

    def prepare(self, kafka: "KafkaCluster", source_topic: str | None) -> None:
        """Nothing to create."""

    def write(self, frame: "DataFrame", write: "WriteContext") -> None:
        """Refuse: the query writes itself."""
        raise PipelineError("The query of a job writes its results itself. Run it with respool run --job.")


UNKNOWN_SINK: Sink = JobSink("foreachBatch")


@dataclass(frozen=True)
class JobPipeline(Pipeline):
    """A user's own query as a pipeline.

    Attributes:
        build: Returns the writer of the query; None for a query that the user's code has started.
        checkpoint: The checkpoint that the user's code names; None when it names none, or it is not known yet.
        code: The functions that make the query.
    """

    source: Any = field(default_factory=JobSource)
    sink: Any = UNKNOWN_SINK
    build: Build | None = None
    checkpoint: str | None = None
    code: Sequence[object] = ()

    def __repr__(self) -> str:
        """Return its name."""
        return f"JobPipeline({self.name!r})"

    def may_read(self, topics: set[str]) -> bool:
        """Return whether its query may be that of a checkpoint: its topics are not known before it runs."""
        return True


def find_job(name: str) -> JobPipeline:
    """Return the query that a function makes, to be run unchanged.

    >>> respool.find_job("my_job.py:build").name
    'my_job'

    Args:
        name: `FILE.py:FUNCTION` or `module:function`. The function takes a SparkSession and returns the
            DataStreamWriter of the query, which it has not started.

    Raises:
        PipelineError: There is no such function.
    """
    place, colon, function = name.rpartition(":")
    if not (place and colon and function):
        raise PipelineError(f"'{name}' does not name a job. Expected a file and a function, such as my_job.py:build.")
    module = load_file(Path(place), name) if place.endswith(".py") else load_module(place, name)
    build: Any = getattr(module, function, None)
    if not callable(build):
        raise PipelineError(
            f"{place} has no function '{function}'. Expected one that takes a SparkSession and returns the "
            "DataStreamWriter of a query."
        )
    return JobPipeline(Path(place).stem if place.endswith(".py") else place, build=build, code=(build,))


def sink_of(kind: str, options: dict[str, str], key: Sequence[str] = ()) -> JobSink:
    """Return the sink that a query writes to by Spark.

    Args:
        kind: The format of the writer, or what Spark calls the sink of a running query.
        options: The options of the writer, their names in lower case.
        key: The columns that identify a result.
    """
    lower, path = kind.lower(), options.get("path")
    if "kafka" in lower and "topic" in options:
        return JobSink(f"kafka:{options['topic']}", tuple(key))
    if "delta" in lower and path:
        return JobSink(f"delta:{absolute(path)}", tuple(key))
    if path and (lower.startswith("filesink") or lower in _FILES):
        return JobSink(f"files:{absolute(path)}", tuple(key))
    if "console" in lower:
        return JobSink("console", tuple(key))
    return JobSink("foreachBatch", tuple(key))


_FILES = ("parquet", "json", "csv", "orc", "text", "avro", "")
