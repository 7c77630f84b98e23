"""Results as files of a folder, each batch exactly once, by the log of Spark's own file sink.

`_spark_metadata/N` names the files of batch N; it is written after them, and at once. Readers in Spark see only files
that are named there; other readers also see files of a batch that was interrupted.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from respool.errors import PipelineError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.locations import for_spark, under
from respool.settings import Settings
from respool.sinks.columns import ColumnNames
from respool.sinks.file_replay import fill_log, newest_batch
from respool.sinks.protocol import WriteContext, compute, folder_identity
from respool.spark.internals import write_file_batch
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FileFormat = Literal["parquet", "json"]

_INTERVAL = "spark.sql.streaming.fileSink.log.compactInterval"


@dataclass(frozen=True)
class FileSink:
    """Rows to files of a folder, each batch exactly once for readers in Spark.

    Attributes:
        folder: The folder's path or URL; a relative path lies under the storage's `results`.
        format: `parquet` or `json`.
        partition_by: The columns by which files are put in folders such as `day=2025-09-04`.

    >>> respool.FileSink("order-totals", format="json", partition_by="shop").describe()
    'folder order-totals'
    """

    folder: str
    format: FileFormat = "parquet"
    partition_by: ColumnNames = ColumnNames()  # noqa: RUF009  (a descriptor, not a default)

    def __post_init__(self) -> None:
        """Refuse an unknown format."""
        formats = list(get_args(FileFormat))
        if self.format not in formats:
            raise PipelineError(
                f"FileSink.format is {self.format!r}.{did_you_mean(str(self.format), formats)} Expected "
                f"{' or '.join(formats)}."
            )

    def with_suffix(self, suffix: str) -> "FileSink":
        """Return a folder of the same results, with a suffix to its name."""
        return replace(self, folder=f"{self.folder.rstrip('/')}{suffix}")

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"folder {self.folder}"

    def identity(self) -> Identity:
        """Return the identity of this folder."""
        return folder_identity(self.folder)

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        return f"{self.folder} records which batches it has, and skips those unless --restore-sink moves them aside."

    def recorded_at(self, settings: Settings) -> tuple[str, ...]:
        """Return the folder, whose log records batches."""
        return (f"files:{self.locate(settings)}",)

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Nothing to create: the first write creates the folder."""

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Write the files of a batch and then their log entry; a batch that the log has is skipped."""
        folder = self.locate(write.settings)
        if write.batch is None:
            raise PipelineError(
                f"The folder {folder} holds batches of a query; expected the id of a batch. Write other results to a "
                "separate folder with --output."
            )
        newest = newest_batch(folder)
        if newest >= write.batch:
            compute(frame)
            return
        if newest < write.batch - 1:
            fill_log(folder, write.batch, int(str(frame.sparkSession.conf.get(_INTERVAL, "10"))))
        write_file_batch(frame, for_spark(folder), self.format, self.partition_by, write.batch)

    def locate(self, settings: Settings) -> str:
        """Return where the folder is."""
        return under(settings.result_store, self.folder)
