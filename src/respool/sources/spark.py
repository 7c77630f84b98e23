"""Any streaming source of Spark, and the source of generated rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from respool.errors import PipelineError
from respool.identity import Identity
from respool.sources.protocol import ReadContext, check_options
from respool.times import EPOCH, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Other classes read these, with rewinds and checks that options alone do not have.
_OWN = {"kafka": "KafkaSource", "delta": "DeltaSource"}


@dataclass(frozen=True)
class SparkSource:
    """Rows of any source that Spark has a format for, also of one in Python.

    Attributes:
        format: The name of the format, for Spark's `readStream.format`.
        options: The options of the format. They are not shown, as they may hold secrets.
        schema: The columns as Spark DDL, for formats that take a schema.

    >>> respool.SparkSource("rate", {"rowsPerSecond": "5"}).describe()
    'Spark source rate'
    """

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    schema: str = ""

    def __post_init__(self) -> None:
        """Refuse what another class is for."""
        if not self.format:
            raise PipelineError("format of a SparkSource is empty. Name one, such as rate.")
        if self.format.lower() in _OWN:
            raise PipelineError(f"format of a SparkSource is '{self.format}'. Use {_OWN[self.format.lower()]}.")
        check_options("SparkSource", self.options, {})

    def __hash__(self) -> int:
        """Return a hash of its identity."""
        return hash(self.identity())

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Spark source {self.format}"

    def identity(self) -> Identity:
        """Return the identity of this source: its format and schema, without options."""
        return Identity("spark", {"format": self.format, "schema": self.schema})

    def stream(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return its rows as a stream."""
        reader = spark.readStream.format(self.format).options(**self.options)
        return (reader.schema(self.schema) if self.schema else reader).load()

    def table_rows(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return all its rows, if the format has more than a stream."""
        reader = spark.read.format(self.format).options(**self.options)
        return (reader.schema(self.schema) if self.schema else reader).load()


@dataclass(frozen=True)
class RateSource:
    """Generated rows of `timestamp` and `value`, the same in every run, for tests.

    Each batch has the next rows: batch 0 the values from 0 on, all with the time `1970-01-01T00:00Z` plus `advance`
    times the number of batches before.

    Attributes:
        rows_per_batch: How many rows a batch has.
        advance: The time between the rows of two batches.

    >>> respool.RateSource(5).describe()
    '5 generated rows a batch'
    """

    rows_per_batch: int = 10
    advance: str = "1 second"

    def __post_init__(self) -> None:
        """Refuse what Spark would refuse later."""
        if self.rows_per_batch < 1:
            raise PipelineError(f"rows_per_batch is {self.rows_per_batch}; expected 1 or more. Correct it.")
        parse_duration(self.advance)

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"{self.rows_per_batch} generated rows a batch"

    def identity(self) -> Identity:
        """Return the identity of these rows."""
        return Identity("rate", {"rows_per_batch": self.rows_per_batch, "advance": parse_duration(self.advance)})

    def stream(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return the rows as a stream."""
        options = {
            "rowsPerBatch": str(self.rows_per_batch),
            "startTimestamp": str(int(EPOCH.timestamp())),
            "advanceMillisPerBatch": str(int(parse_duration(self.advance).total_seconds() * 1000)),
        }
        return spark.readStream.format("rate-micro-batch").options(**options).load()
