"""The queries: each writes a kind of checkpoint that Spark 4.0 to 4.2 has."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.queries.inputs import EVENT, ROWS_PER_FILE, Source

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

_STORE = "spark.sql.streaming.stateStore"
_SNAPSHOTS = {f"{_STORE}.minDeltasForSnapshot": "3", f"{_STORE}.maintenanceInterval": "200ms"}
_HDFS = {
    **_SNAPSHOTS,
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
_ROCKSDB = {
    **_SNAPSHOTS,
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "false",
}
_CHANGELOG = {**_ROCKSDB, f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true"}
_IDS = {f"{_STORE}.checkpointFormatVersion": "2"}
_PURGED = {
    "spark.sql.streaming.minBatchesToRetain": "4",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
}


@dataclass(frozen=True)
class Kind:
    """A query, and the settings with which it runs.

    Attributes:
        name: What is special about its checkpoint.
        conf: Spark's settings of its session.
        query: Makes the query of a session and the options that say where its source is.
        output_mode: `append` or `update`.
        reads: What to tell Spark's state reader to see all of its state: the options of each reading.
        source: `files`, `kafka` or `clock`: what its input comes from. With `clock`, two runs read different rows.
        since: The first Spark that runs it.
        sink: The name of its sink.
        options: Options of its writer.
        endless: Whether its source never ends, so that one run is one batch.
        live: Whether it must run by the clock, as it does not run until its input ends.
        repartition: The number of partitions that its state gets half-way.
    """

    name: str
    conf: Mapping[str, str]
    query: "Callable[[SparkSession, Source], DataFrame]"
    output_mode: str = "update"
    reads: tuple[Mapping[str, str], ...] = ({},)
    source: str = "files"
    since: tuple[int, int] = (4, 0)
    sink: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    endless: bool = False
    live: bool = False
    repartition: int | None = None

    def readable(self, version: tuple[int, ...]) -> bool:
        """Return whether the state reader of this Spark can read its state; that of 4.0 reads no unique ids."""
        return bool(self.reads) and (version >= (4, 1) or not _IDS.items() <= self.conf.items())

    def session(self, spark: "SparkSession", conf: Mapping[str, str] | None = None) -> "SparkSession":
        """Return a session of its own with its settings, and with more of them."""
        session = spark.newSession()
        for name, value in {**BASE, **self.conf, **(conf or {})}.items():
            session.conf.set(name, value)
        return session


BASE = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}


def _files(session: "SparkSession", source: Source) -> "DataFrame":
    return session.readStream.schema(EVENT).option("maxFilesPerTrigger", 1).json(source["path"])


def _counts(session: "SparkSession", source: Source) -> "DataFrame":
    return _aggregate(_files(session, source))


def _aggregate(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return frame.groupBy("key", F.expr("id % 5 AS rest")).agg(F.count("*").alias("rows"), F.sum("amount").alias("sum"))


def _distinct_windows(session: "SparkSession", source: Source) -> "DataFrame":
    from pyspark.sql import functions as F

    distinct = _files(session, source).withWatermark("at", "2 minutes").dropDuplicatesWithinWatermark(["key", "id"])
    return distinct.groupBy(F.window("at", "3 minutes"), "key").agg(F.count("*").alias("rows"))


def _join(session: "SparkSession", source: Source) -> "DataFrame":
    from pyspark.sql import functions as F

    left = _files(session, source).selectExpr("key", "id AS left_id", "at AS left_at")
    right = _files(session, source).selectExpr("key AS right_key", "id AS right_id", "at AS right_at")
    near = "key = right_key AND left_id % 8 = right_id % 8 AND right_at BETWEEN left_at AND left_at + INTERVAL 1 MINUTE"
    left, right = left.withWatermark("left_at", "1 minute"), right.withWatermark("right_at", "1 minute")
    return left.join(right, F.expr(near), "leftOuter")


def _sessions(session: "SparkSession", source: Source) -> "DataFrame":
    from pyspark.sql import functions as F

    rows = _files(session, source).withWatermark("at", "2 minutes")
    return rows.groupBy(F.session_window("at", "90 seconds"), "key").agg(F.sum("amount").alias("sum"))


def _stateless(session: "SparkSession", source: Source) -> "DataFrame":
    return _files(session, source).where("amount > 20")


def _named(session: "SparkSession", source: Source) -> "DataFrame":
    reader = session.readStream.schema(EVENT).option("maxFilesPerTrigger", 1).format("json")
    return _aggregate(reader.name("visits").load(source["path"]))  # type: ignore[attr-defined,unused-ignore]


def _rate(session: "SparkSession", source: Source) -> "DataFrame":
    from pyspark.sql import functions as F

    reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 8).option("numPartitions", 2)
    rows = reader.option("startTimestamp", 1_757_000_000_000).option("advanceMillisPerBatch", 60_000).load()
    return rows.groupBy(F.window("timestamp", "3 minutes"), F.expr("value % 5 AS rest")).agg(F.sum("value"))


def _clock(session: "SparkSession", source: Source) -> "DataFrame":
    from pyspark.sql import functions as F

    rows = session.readStream.format("rate").option("rowsPerSecond", 8).option("numPartitions", 2).load()
    return rows.groupBy(F.expr("value % 5 AS rest")).agg(F.sum("value"))


def _kafka(session: "SparkSession", source: Source) -> "DataFrame":
    from pyspark.sql import functions as F

    reader = session.readStream.format("kafka").options(**source).option("startingOffsets", "earliest")
    records = reader.option("maxOffsetsPerTrigger", ROWS_PER_FILE).load()
    return _aggregate(
        records.select(F.from_json(F.col("value").cast("string"), EVENT).alias("event")).select("event.*")
    )


def _transform(session: "SparkSession", source: Source) -> "DataFrame":
    rows = _files(session, source).withWatermark("at", "2 minutes").selectExpr("*", "unix_millis(at) AS ms")
    schema = "key STRING, rows BIGINT, amounts STRING, by_id STRING, closed BOOLEAN"
    return rows.groupBy("key").transformWithStateInPandas(_processor(), schema, "Update", "EventTime")


def _processor() -> "StatefulProcessor":
    """Return a processor with every sort of state: a value, a list, a map and timers."""
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Visits(StatefulProcessor):
        def init(self, handle: "StatefulProcessorHandle") -> None:
            self._handle = handle
            self._rows = handle.getValueState("rows", "rows BIGINT")
            self._amounts = handle.getListState("amounts", "amount INT")
            self._by_id = handle.getMapState("by_id", "rest INT", "amount INT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: "TimerValues") -> "Iterator[pd.DataFrame]":
            frame = pd.concat(list(rows)).sort_values(["ms", "id", "amount"])
            (count,) = self._rows.get() or (0,)
            self._rows.update((count + len(frame),))
            self._amounts.put([(int(amount),) for amount in frame["amount"]])
            for number, amount in zip(frame["id"], frame["amount"], strict=True):
                self._by_id.updateValue((int(number) % 4,), (int(amount),))
            if not count:
                self._handle.registerTimer(int(frame["ms"].max()) + 90_000)
            yield self._row(key, closed=False)

        def handleExpiredTimer(
            self, key: Any, timerValues: "TimerValues", expiredTimerInfo: Any
        ) -> "Iterator[pd.DataFrame]":
            yield self._row(key, closed=True)
            self._rows.clear()
            self._amounts.clear()
            self._by_id.clear()

        def _row(self, key: Any, closed: bool) -> "pd.DataFrame":
            amounts = json.dumps([amount for (amount,) in self._amounts.get()])
            by_id = json.dumps(sorted((rest, amount) for (rest,), (amount,) in self._by_id.iterator()))
            row = (*key, *(self._rows.get() or ()), amounts, by_id, closed)
            return pd.DataFrame([row], columns=["key", "rows", "amounts", "by_id", "closed"])

        def close(self) -> None:
            pass

    return Visits()


_STORES = tuple(
    {"storeName": f"{side}-{store}"}
    for side in ("left", "right")
    for store in ("keyToNumValues", "keyWithIndexToValue")
)
_SIDES = ({"joinSide": "left"}, {"joinSide": "right"})
_VARIABLES = (
    {"stateVarName": "rows"},
    {"stateVarName": "amounts"},
    {"stateVarName": "by_id"},
    {"readRegisteredTimers": "true"},
)
_EVOLUTION = {f"spark.sql.streaming.queryEvolution.enable{what}Evolution": "true" for what in ("Source", "Sink")}
_OFFSETS_V2 = {"spark.sql.streaming.offsetLog.formatVersion": "2"}

KINDS = (
    Kind("hdfs", _HDFS, _counts),
    Kind("rocksdb", _ROCKSDB, _counts),
    Kind("changelog", _CHANGELOG, _counts),
    Kind("ids", {**_ROCKSDB, **_IDS}, _counts),
    Kind("ids-changelog", {**_CHANGELOG, **_IDS}, _counts),
    Kind("hdfs-purged", {**_HDFS, **_PURGED}, _counts),
    Kind("changelog-purged", {**_CHANGELOG, **_PURGED}, _counts),
    Kind("operators", _HDFS, _distinct_windows, "append", ({"operatorId": "0"}, {"operatorId": "1"})),
    Kind("session", {**_HDFS, f"{_STORE}.compression.codec": "zstd"}, _sessions, "append"),
    Kind("join", _HDFS, _join, "append", _STORES),
    Kind("join-changelog", _CHANGELOG, _join, "append", _STORES),
    Kind("join-ids", {**_CHANGELOG, **_IDS}, _join, "append", _STORES),
    Kind(
        "join-families",
        {**_CHANGELOG, "spark.sql.streaming.join.stateFormatVersion": "3"},
        _join,
        "append",
        _SIDES,
        since=(4, 1),
    ),
    Kind("transform", _CHANGELOG, _transform, "update", _VARIABLES),
    Kind("transform-ids", {**_CHANGELOG, **_IDS}, _transform, "update", _VARIABLES),
    Kind("offsets-v2", {**_HDFS, **_OFFSETS_V2}, _counts, since=(4, 2)),
    Kind("named", {**_CHANGELOG, **_IDS, **_OFFSETS_V2, **_EVOLUTION}, _named, since=(4, 2), sink="results"),
    Kind("repartitioned", _CHANGELOG, _counts, since=(4, 2), repartition=3),
    Kind("stateless", {}, _stateless, "append", ()),
    Kind("rate", _HDFS, _rate, source="", endless=True),
    Kind("kafka", _HDFS, _kafka, source="kafka"),
    Kind("clock", _HDFS, _clock, source="clock", live=True),
    Kind(
        "async",
        {},
        _stateless,
        "append",
        (),
        live=True,
        options={
            "asyncProgressTrackingEnabled": "true",
            "asyncProgressTrackingCheckpointIntervalMs": "1000",
            "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
        },
    ),
)
