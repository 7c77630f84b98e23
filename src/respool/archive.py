"""The archive: a Delta table of all raw records, by hour of event time, each record once.

A record is known by its topic, partition and offset. A batch that is run again, for whatever reason, adds only the
records that the table lacks. To make that cheap, the sink knows the highest offset of every topic and partition in the
table: a record beyond it is new. Any other is looked up in the table.

That knowledge comes from the table alone. Every commit says in its metadata what was known before it, and the
statistics of the files that it added say the rest; so whatever anybody else does to the table is seen as well. Where
neither tells, the table is asked.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool import records
from respool.decode import JsonDecoder, decode
from respool.errors import PipelineError
from respool.kafka import Kafka
from respool.sinks import Write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTITION_COLUMNS = ("event_date", "event_hour")
COLUMNS = (*records.COLUMNS, "event_time", *PARTITION_COLUMNS, "rejected")
_KEY = ("topic", "partition", "offset")
_SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestamp_type INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, event_time TIMESTAMP, event_date DATE, event_hour INT, "
    "rejected STRING"
)
_METADATA = "respool-archived"
_HISTORY = 100  # commits looked at for what is known, before the table itself is asked
_PREFIX = 32  # characters of a text that Delta's statistics keep


@dataclass(frozen=True)
class Size:
    """How large a table is.

    Attributes:
        files: The files of its current version.
        bytes: What they take.
    """

    files: int
    bytes: int


def to_archive(frame: "DataFrame", decoder: JsonDecoder) -> "DataFrame":
    """Return records as the archive keeps them; rejected ones are counted for the batch line.

    Date and hour are those of the event time in UTC, whatever the session's time zone. A record that does not decode
    has none of the three, and says why.
    """
    from pyspark.sql import functions as F

    decoded = decode(frame, decoder).observe("respool", F.count("rejected").alias("rejected"))
    time = F.col("event").getField(decoder.event_time)
    seconds = F.unix_seconds(F.col("event_time"))
    return (
        decoded.withColumn("event_time", time)
        .withColumn("event_date", F.date_from_unix_date(F.floor(seconds / 86400).cast("int")))
        .withColumn("event_hour", F.pmod(F.floor(seconds / 3600), F.lit(24)).cast("int"))
        .select(*COLUMNS)
    )


def locate(table: str, home: Path) -> str:
    """Return where a table is: a relative path is one under the home's `archive`, others are taken as they are."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", table):
        return table
    return str((home / "archive" / Path(table).expanduser()).absolute())


def require(table: str) -> None:
    """Raise PipelineError when a table of this machine is not there; of another place Spark must tell."""
    if table.startswith("/") and not (Path(table) / "_delta_log").is_dir():
        raise _missing(table)


def optimize(spark: "SparkSession", table: str) -> tuple[Size, Size]:
    """Make few large files of many small ones, hour by hour, and return the sizes before and after.

    No record changes, and readers and the archiving query go on meanwhile. The small files stay on the disk for those
    who still read an earlier version, until somebody vacuums the table.
    """
    from pyspark.errors import AnalysisException

    try:
        before = _size(spark, table)
    except AnalysisException as error:
        raise _missing(table) from error
    spark.sql(f"OPTIMIZE {_identifier(table)}")
    return before, _size(spark, table)


@dataclass(frozen=True)
class _Archived:
    """Which records are surely not in a table: those beyond `ends`.

    Attributes:
        version: The table's version of which this is true.
        ends: The highest offset, by topic and partition. A topic is named by its first characters, as in Delta's
            statistics.
    """

    version: int
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def after(self, added: Mapping[tuple[str, int], int]) -> "_Archived":
        """Return what is known after the next version has added records up to these offsets."""
        ends = dict(self.ends)
        for place, offset in added.items():
            ends[place] = max(offset, ends.get(place, -1))
        return _Archived(self.version + 1, ends)

    def maybe(self) -> "Column":
        """Return the condition under which a record may be in the table."""
        from pyspark.sql import functions as F

        by_topic: dict[str, list[int]] = {}
        for (topic, partition), offset in self.ends.items():
            offsets = by_topic.setdefault(topic, [])
            offsets += [-1] * (partition + 1 - len(offsets))
            offsets[partition] = offset
        # Far smaller a plan than a condition for each partition, and folded to a constant.
        ends = F.from_json(F.lit(json.dumps(by_topic)), "MAP<STRING, ARRAY<BIGINT>>")
        end = F.get(F.try_element_at(ends, F.substring("topic", 1, _PREFIX)), F.col("partition"))
        return F.coalesce(F.col("offset") <= end, F.lit(False))

    def to_json(self) -> str:
        """Return the metadata of a commit."""
        ends = [[topic, partition, offset] for (topic, partition), offset in sorted(self.ends.items())]
        return json.dumps({_METADATA: {"version": self.version, "ends": ends}})

    @staticmethod
    def from_json(text: str | None) -> "_Archived | None":
        """Return what the metadata of a commit says, or None when it is not one of ours."""
        try:
            found = json.loads(text or "")[_METADATA]
            return _Archived(found["version"], {(topic, int(part)): int(end) for topic, part, end in found["ends"]})
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class _Run:
    """What the sink remembers of a run of a query from batch to batch.

    Attributes:
        archived: What was known at the last batch.
        settled: A batch of this run had nothing but new records. Later ones have too, but for rare cases.
    """

    archived: _Archived
    settled: bool


@dataclass(frozen=True)
class ArchiveSink:
    """Records to a Delta table, each once. A batch makes one commit, or none when it has nothing new.

    The table's first version, 0, is the empty table. Two processes must not archive the same topic in the same table at
    the same moment.

    Attributes:
        table: The table's path or URL; a relative path is one under the home's `archive`.
    """

    table: str
    _runs: dict[str, _Run] = field(default_factory=dict, init=False, repr=False, compare=False)

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return f"Delta table {self.table}"

    def on_replay(self) -> str:
        """Return what becomes of a batch that comes again, for the plan of a rewind."""
        return "Records that the archive has already are left out."

    def prepare(self, kafka: Kafka, source_topic: str) -> None:
        """Nothing to make: the first write creates the table."""

    def write(self, frame: "DataFrame", write: Write) -> None:
        """Append the records of `frame` that the table lacks."""
        spark = frame.sparkSession
        table = locate(self.table, write.home)
        name = spark.sparkContext.getLocalProperty("spark.jobGroup.id")  # Spark's id of a query's run
        run = self._runs.get(name) if name else None
        if run is None:
            _create(spark, table)
            run = _Run(_learn(spark, table), settled=False)
        run = replace(run, archived=_catch_up(spark, table, run.archived))
        only_new = (_append_new if run.settled else _append_lacking)(frame, table, run.archived)
        if name:
            self._runs[name] = replace(run, settled=run.settled or only_new)


def _append_lacking(frame: "DataFrame", table: str, archived: _Archived) -> bool:
    """Append what the table lacks, and return whether that was all: for batches that may well be replayed ones."""
    from pyspark.sql import functions as F

    frame = frame.persist()  # read once, so that rejected records are counted once
    try:
        span = frame.where(archived.maybe()).agg(F.min("offset"), F.max("offset")).first()
        assert span is not None
        only_new = span[0] is None
        _append(frame if only_new else _lacking(frame, table, archived, span[0], span[1]), table, archived)
    finally:
        frame.unpersist()
    return only_new


def _append_new(frame: "DataFrame", table: str, archived: _Archived) -> bool:
    """Append what the table lacks, and return whether that was all: reads the batch once when all of it is new."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    replayed = Observation()
    watched = frame.observe(replayed, F.min(F.when(archived.maybe(), F.col("offset"))).alias("first"))
    _append(watched.where(~archived.maybe()), table, archived)
    first = replayed.get["first"]
    if first is None:
        return True
    # A second commit, and Spark counts the batch's records twice: rare, as it takes another writer meanwhile.
    last = max(archived.ends.values())
    _append(_lacking(frame.where(archived.maybe()), table, archived, first, last), table, archived)
    return False


def _lacking(frame: "DataFrame", table: str, archived: _Archived, first: int, last: int) -> "DataFrame":
    """Return the records that the table lacks, when none of `frame` that it has lies outside these offsets."""
    there = _read(frame.sparkSession, table, archived.version).where(f"offset BETWEEN {first} AND {last}")
    return frame.join(there.select(*_KEY), list(_KEY), "left_anti").select(*frame.columns)


def _append(frame: "DataFrame", table: str, archived: _Archived) -> None:
    # Delta makes no commit of an append without rows.
    writer = frame.write.format("delta").mode("append").partitionBy(*PARTITION_COLUMNS)
    writer.option("userMetadata", archived.to_json()).save(table)


def _create(spark: "SparkSession", table: str) -> None:
    partitions = ", ".join(PARTITION_COLUMNS)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {_identifier(table)} ({_SCHEMA}) USING DELTA PARTITIONED BY ({partitions})")
    found = spark.read.format("delta").load(table).columns
    lacking = [name for name in COLUMNS if name not in found]
    if lacking:
        raise PipelineError(
            f"The table {table} is not an archive: it has no column {lacking[0]}. Give the pipeline another table."
        )


def _learn(spark: "SparkSession", table: str) -> _Archived:
    """Return what the newest commits tell of the table, or else ask the table."""
    history = spark.sql(f"DESCRIBE HISTORY {_identifier(table)} LIMIT {_HISTORY}").collect()
    oldest = history[-1].version
    for commit in history:
        found = _Archived.from_json(commit.userMetadata)
        # All that came after it must still be there to be read.
        if found is not None and found.version + 1 >= oldest:
            return found
    if oldest == 0 and history[-1].operation == "CREATE TABLE":
        return _Archived(0)
    return _ask(spark, table, history[0].version)


def _catch_up(spark: "SparkSession", table: str, known: _Archived) -> _Archived:
    """Return what is known after the commits that were made since: our own last one, and those of others."""
    while (commit := _read_commit(spark, table, known.version + 1)) is not None:
        added = _added(commit)
        known = known.after(added) if added is not None else _ask(spark, table, known.version + 1)
    return known


def _added(commit: str) -> dict[tuple[str, int], int] | None:
    """Return the highest offsets of the records that a commit added, or None when its statistics do not tell.

    Spark reads each Kafka partition in tasks of its own, so a file has records of one only. A file that others made
    may mix them.
    """
    ends: dict[tuple[str, int], int] = {}
    for line in commit.split("\n"):
        file = json.loads(line or "{}").get("add")
        if file is None or not file["dataChange"]:  # compaction changes no data
            continue
        stats = json.loads(file.get("stats") or "{}")
        try:
            low, high = stats["minValues"], stats["maxValues"]
            place, other = ((one["topic"][:_PREFIX], int(one["partition"])) for one in (low, high))
            offset = int(high["offset"])
        except KeyError:
            return None
        if place != other:
            return None
        ends[place] = max(offset, ends.get(place, -1))
    return ends


def _read_commit(spark: "SparkSession", table: str, version: int) -> str | None:
    """Return a commit of the table's log, or None when there is none of that version yet."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{table}/_delta_log/{version:020}.json")
    try:
        stream = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).open(path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
            return None
        raise
    try:
        text: str = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        return text
    finally:
        stream.close()


def _ask(spark: "SparkSession", table: str, version: int) -> _Archived:
    """Read the highest offsets from the records themselves."""
    from pyspark.sql import functions as F

    place = (F.substring("topic", 1, _PREFIX).alias("topic"), "partition")
    rows = _read(spark, table, version).groupBy(*place).agg(F.max("offset").alias("end")).collect()
    return _Archived(version, {(row.topic, row.partition): row.end for row in rows})


def _read(spark: "SparkSession", table: str, version: int) -> "DataFrame":
    # Of a fixed version: reading it makes no conflict with a compaction that runs meanwhile.
    return spark.read.format("delta").option("versionAsOf", version).load(table)


def _size(spark: "SparkSession", table: str) -> Size:
    detail = spark.sql(f"DESCRIBE DETAIL {_identifier(table)}").first()
    assert detail is not None
    return Size(detail.numFiles, detail.sizeInBytes)


def _missing(table: str) -> PipelineError:
    return PipelineError(f"There is no archive at {table}. Name another, or make it with: respool run visits-archive.")


def _identifier(table: str) -> str:
    return f"delta.`{table.replace('`', '``')}`"
