"""Delta tables and folders of files as sources; both can be read as a whole, too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from respool.errors import PipelineError
from respool.identity import Identity
from respool.locations import absolute, canonical_location, for_spark
from respool.sources.protocol import ReadContext, check_options, parse_start, table_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DELTA_OPTIONS = {
    "readchangefeed": "change_feed",
    "readchangedata": "change_feed",
    "startingversion": "starting",
    "startingtimestamp": "starting",
    "path": "table",
}


@dataclass(frozen=True)
class DeltaSource:
    """Rows of a Delta table, as they are appended; or its change data feed.

    Attributes:
        table: The table's path or URL; a relative path lies under the storage's `results`, as that of a DeltaSink.
        change_feed: Read every insert, update and delete, with the columns `_change_type`, `_commit_version` and
            `_commit_timestamp`. The table needs the property `delta.enableChangeDataFeed`.
        starting: Where a query starts that has no checkpoint yet: `earliest`, which is all rows of the table;
            `latest`; a version; or a time, a datetime or ISO 8601.
        options: Further options of Delta's source, such as `maxFilesPerTrigger` or `skipChangeCommits`.

    >>> respool.DeltaSource("orders", change_feed=True).describe()
    'change feed of the Delta table orders'
    """

    table: str
    change_feed: bool = False
    starting: str | int | datetime = "earliest"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse what Delta would refuse later."""
        if not self.table:
            raise PipelineError("table of a DeltaSource is empty. Name the table's path or URL.")
        check_options("DeltaSource", self.options, _DELTA_OPTIONS)
        match self.starting:
            case "earliest" | "latest":
                pass
            case bool():
                raise PipelineError(f"starting is {self.starting}; expected a version or a time. Correct it.")
            case int() as version if version < 0:
                raise PipelineError(f"starting is {version}; expected a version of 0 or more. Correct it.")
            case str() as text:
                object.__setattr__(
                    self,
                    "starting",
                    parse_start(text, "earliest, latest, a version, or a time such as 2025-09-04T07:30Z"),
                )

    def __hash__(self) -> int:
        """Return a hash of its identity."""
        return hash(self.identity())

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"{'change feed of the ' if self.change_feed else ''}Delta table {self.table}"

    def identity(self) -> Identity:
        """Return the identity of this table, and of what is read of it."""
        return Identity("delta-table", {"table": canonical_location(self.table), "change_feed": self.change_feed})

    def stream(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return its rows, or its changes, as a stream."""
        options = dict(self.options)
        match self.starting:
            case datetime() as time:
                options["startingTimestamp"] = time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            case int() as version:
                options["startingVersion"] = str(version)
            case "latest":
                options["startingVersion"] = "latest"
        if self.change_feed:
            options["readChangeFeed"] = "true"
        location = table_location(self.table, read.settings)
        return spark.readStream.format("delta").options(**options).load(for_spark(location))

    def table_rows(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return all its rows, at the table's newest version whenever they are computed."""
        if self.change_feed:
            raise PipelineError(f"The {self.describe()} is a stream, and cannot be static. Leave change_feed out.")
        return spark.read.format("delta").load(for_spark(table_location(self.table, read.settings)))


@dataclass(frozen=True)
class FileSource:
    """Rows of files, as they appear in a folder.

    Attributes:
        path: The folder's path or URL. A relative path is relative to the working folder.
        schema: The columns as Spark DDL; for the format `text` it may be left out.
        format: A format of Spark: `parquet`, `json`, `csv`, `orc`, `text` or `avro`.
        options: Further options of the format, such as `header` or `maxFilesPerTrigger`.

    >>> respool.FileSource("shops", "shop STRING, city STRING", format="csv").describe()
    'csv files in shops'
    """

    path: str
    schema: str = ""
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse what Spark would refuse later."""
        if not self.path:
            raise PipelineError("path of a FileSource is empty. Name a folder.")
        if not self.schema and self.format != "text":
            raise PipelineError(
                f"schema of the FileSource {self.path} is empty: Spark infers no schema of a stream. Name the columns, "
                "such as schema='shop STRING, amount DOUBLE'."
            )
        check_options("FileSource", self.options, {"path": "path"})

    def __hash__(self) -> int:
        """Return a hash of its identity."""
        return hash(self.identity())

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"{self.format} files in {self.path}"

    def identity(self) -> Identity:
        """Return the identity of this folder."""
        return Identity("files", {"path": canonical_location(self.path), "format": self.format})

    def stream(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return the rows of new files as a stream."""
        reader = spark.readStream.format(self.format).schema(self.schema or "value STRING").options(**self.options)
        return reader.load(for_spark(absolute(self.path)))

    def table_rows(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return the rows of all files."""
        reader = spark.read.format(self.format).schema(self.schema or "value STRING").options(**self.options)
        return reader.load(for_spark(absolute(self.path)))
