"""The highest archived offsets: a record beyond them is not in the archive, so no lookup is needed.

They come from the table alone. Every commit records in its metadata the highest offsets before it, and the statistics
of the files that it added give the rest; so commits of other writers are taken into account. If neither is available,
the table is queried.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from respool.archive.table import PREFIX, read
from respool.spark.internals import HadoopPath
from respool.spark.sql import identifier
from respool.untrusted import Fields, Malformed, parse_json, read_regular_file, whole_number

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


_METADATA = "respool-archived"
_MOST_PARTITIONS = 1_000_000  # of a topic; more than any broker has
_HISTORY = 100  # commits whose metadata is read before the table itself is queried
_NEWEST = 8  # commits read directly before Spark is asked for the history; a compaction makes a few


@dataclass(frozen=True)
class ArchivedOffsets:
    """The highest archived offsets: records beyond `ends` are not in the table.

    Attributes:
        version: The version of the table for which this holds.
        ends: The highest offset, by topic and partition. A topic is named by its first characters, as in Delta's
            statistics.
    """

    version: int
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def after(self, added: Mapping[tuple[str, int], int]) -> "ArchivedOffsets":
        """Return the offsets after the next version has added records up to these."""
        ends = dict(self.ends)
        for place, offset in added.items():
            ends[place] = max(offset, ends.get(place, -1))
        return ArchivedOffsets(self.version + 1, ends)

    def maybe(self) -> "Column":
        """Return the condition under which a record may be in the table."""
        from pyspark.sql import functions as F

        by_topic: dict[str, list[int]] = {}
        for (topic, partition), offset in self.ends.items():
            offsets = by_topic.setdefault(topic, [])
            offsets += [-1] * (partition + 1 - len(offsets))
            offsets[partition] = offset
        # A far smaller plan than with a condition for each partition; Spark folds it to a constant.
        ends = F.from_json(F.lit(json.dumps(by_topic)), "MAP<STRING, ARRAY<BIGINT>>")
        end = F.get(F.try_element_at(ends, F.substring("topic", 1, PREFIX)), F.col("partition"))
        return F.coalesce(F.col("offset") <= end, F.lit(False))

    def to_json(self) -> str:
        """Return the metadata of a commit."""
        ends = [[topic, partition, offset] for (topic, partition), offset in sorted(self.ends.items())]
        return json.dumps({_METADATA: {"version": self.version, "ends": ends}})

    @staticmethod
    def from_json(text: str | None) -> "ArchivedOffsets | None":
        """Return the offsets in a commit's metadata; None when respool did not write it."""
        try:
            fields = Fields(parse_json(text or "")).nested(_METADATA)
            return ArchivedOffsets(fields.whole("version"), dict(fields.items("ends", _end)))
        except Malformed:
            return None


def _end(item: object) -> tuple[tuple[str, int], int]:
    match item:
        case [str() as topic, partition, offset]:
            return (topic, _partition(partition)), whole_number(offset, "an offset", least=-1)
    raise Malformed("an end is not a topic, a partition and an offset")


def _partition(number: object) -> int:
    return whole_number(number, "a partition", most=_MOST_PARTITIONS)


def read_archived_offsets(spark: "SparkSession", table: str, newest: int | None = None) -> ArchivedOffsets:
    """Return the highest archived offsets from the newest commits, or else from the table's records.

    Args:
        spark: A session.
        table: The table's path or URL.
        newest: The table's newest version, if known: Spark needs long to list the history of a table.
    """
    archived = None if newest is None else _from_newest_commits(spark, table, newest)
    return archived or _from_history(spark, table)


def _from_newest_commits(spark: "SparkSession", table: str, newest: int) -> ArchivedOffsets | None:
    """Return the offsets that the newest commits record; None when the whole history must be read."""
    for version in range(newest, max(newest - _NEWEST, -1), -1):
        commit = read_delta_commit(spark, table, version)
        if commit is None:
            return None
        archived = ArchivedOffsets.from_json(_user_metadata(commit))
        if archived is not None:
            # The recorded offsets cover all commits before it, unless another writer committed at the same time.
            return archived if archived.version + 1 == version else None
    return None


def _user_metadata(commit: str) -> str | None:
    try:
        for action in _actions(commit):
            if "commitInfo" in action:
                return action.nested("commitInfo").optional_text("userMetadata")
    except Malformed:  # Spark reports it when it reads the table
        return None
    return None


def _actions(commit: str) -> Iterator[Fields]:
    return (Fields(parse_json(line), "an action") for line in commit.split("\n") if line.strip())


def _from_history(spark: "SparkSession", table: str) -> ArchivedOffsets:
    history = spark.sql(f"DESCRIBE HISTORY {identifier(table)} LIMIT {_HISTORY}").collect()
    oldest = history[-1].version
    for commit in history:
        archived = ArchivedOffsets.from_json(commit.userMetadata)
        # All later commits must still exist.
        if archived is not None and archived.version + 1 >= oldest:
            return archived
    if oldest == 0 and history[-1].operation == "CREATE TABLE":
        return ArchivedOffsets(0)
    return _from_records(spark, table, history[0].version)


def catch_up(spark: "SparkSession", table: str, archived: ArchivedOffsets) -> ArchivedOffsets:
    """Return the highest archived offsets after the commits since: our own last commit, and those of other writers."""
    complete = True
    while (commit := read_delta_commit(spark, table, archived.version + 1)) is not None:
        added = _added(commit)
        complete = complete and added is not None
        archived = archived.after(added or {})
    return archived if complete else _from_records(spark, table, archived.version)


def _added(commit: str) -> dict[tuple[str, int], int] | None:
    """Return the highest offsets of the records that a commit added, or None when its statistics lack them.

    Spark reads each Kafka partition in separate tasks, so a file has records of one partition only. A file of another
    writer may mix them.
    """
    ends: dict[tuple[str, int], int] = {}
    try:
        for action in _actions(commit):
            file = action.nested("add") if "add" in action else None
            if file is None or not file.flag("dataChange"):  # compaction changes no data
                continue
            stats = Fields(parse_json(file.optional_text("stats") or "{}"), "the statistics of a file")
            low, high = stats.nested("minValues"), stats.nested("maxValues")
            place, highest = ((side.text("topic")[:PREFIX], _partition(side.any("partition"))) for side in (low, high))
            if place != highest:
                return None
            ends[place] = max(high.whole("offset"), ends.get(place, -1))
    except Malformed:
        return None
    return ends


def _from_records(spark: "SparkSession", table: str, version: int) -> ArchivedOffsets:
    """Return the highest offsets of the records in the table."""
    from pyspark.sql import functions as F

    place = (F.substring("topic", 1, PREFIX).alias("topic"), "partition")
    rows = read(spark, table, version).groupBy(*place).agg(F.max("offset").alias("end")).collect()
    return ArchivedOffsets(version, {(row.topic, row.partition): row.end for row in rows})


def read_delta_commit(spark: "SparkSession", table: str, version: int) -> str | None:
    """Return a commit of the table's log, or None when that version does not exist yet."""
    name = f"{table}/_delta_log/{version:020}.json"
    if table.startswith("/") and Path(name).parent.is_dir():  # quicker than through the JVM
        try:
            return read_regular_file(Path(name)).decode(errors="replace")  # what is not UTF-8 is not JSON either
        except FileNotFoundError:
            return None
    return HadoopPath(spark, name).read_text()
