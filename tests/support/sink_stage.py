"""A pipeline of files of rows, run as respool runs it, with any sink and without Kafka."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner, Result

from respool.cli.app import app
from respool.kafka.cluster import KafkaCluster
from respool.pipeline.definition import Pipeline
from respool.pipeline.inputs import Input
from respool.running.claim import claim, newest_change
from respool.running.dataflow import sink_writer, start_query
from respool.settings import Settings
from respool.sinks.protocol import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOWHERE = KafkaCluster("nowhere:1")


@dataclass(frozen=True)
class SinkStage:
    """A query that reads files of rows, one file a batch, and keeps state: each id once.

    Attributes:
        spark: The session.
        home: The folder of its files, its checkpoint and its results.
        schema: The columns of the rows, in DDL; one of them is `id`.
    """

    spark: "SparkSession"
    home: Path
    schema: str = "id INT"

    @property
    def settings(self) -> Settings:
        """The settings, whose results are under the home."""
        return Settings(home=self.home)

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.home / "checkpoint"

    def feed(self, batch: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put the file of a batch."""
        (self.home / "in").mkdir(exist_ok=True)
        file = self.home / "in" / f"{batch:04}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_757_000_000 + batch,) * 2)

    def run(self, *sinks: Sink) -> None:
        """Run the query until its input ends."""
        many = {"sinks": sinks} if len(sinks) > 1 else {"sink": sinks[0]}
        pipeline = Pipeline("rows", "rows", transform=lambda rows: rows.dropDuplicates(["id"]), **many)
        checkpoint = str(self.checkpoint)
        lease = claim(checkpoint, pipeline, self.settings)
        assert lease is not None
        with lease:
            write = sink_writer(NOWHERE, pipeline, self.settings, newest_change(checkpoint))
            query = start_query(self.spark, pipeline, self._read, write, checkpoint, {"availableNow": True})
            query.awaitTermination()

    def _read(self, session: "SparkSession", name: str, each: Input) -> "DataFrame":
        return session.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).json(str(self.home / "in"))

    def command(self, name: str, *words: str) -> Result:
        """Run `respool checkpoint` on the query's checkpoint."""
        line = ["checkpoint", name, str(self.checkpoint), *words, "--yes", "--home", str(self.home)]
        return CliRunner().invoke(app, line)

    def rewind(self, batch: int, *words: str) -> Result:
        """Rewind the query to a batch; the test fails when that is refused."""
        done = self.command("rewind", "--to-batch", str(batch), *words)
        assert done.exception is None, (done.output, done.exception)
        return done

    def forget_commit(self, batch: int) -> None:
        """Put the checkpoint as a crash leaves it, between the write of a batch and its commit."""
        for name in (str(batch), f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
