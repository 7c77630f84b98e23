"""What is surely not in an archive yet, so that a record need not be looked up there.

That knowledge comes from the table alone. Every commit says in its metadata what was known before it, and the
statistics of the files that it added say the rest; so whatever anybody else does to the table is seen as well. Where
neither tells, the table is asked.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from respool.archive.table import PREFIX, read
from respool.spark.files import read_delta_commit
from respool.spark.sql import identifier
from respool.untrusted import Fields, Malformed, parse_json, whole_number

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


_METADATA = "respool-archived"
_MOST_PARTITIONS = 1_000_000  # of a topic; more than any broker has
_HISTORY = 100  # commits looked at for what is known, before the table itself is asked
_NEWEST = 8  # commits that are read by themselves before Spark is asked for the history: a compaction makes some


@dataclass(frozen=True)
class ArchivedOffsets:
    """Which records are surely not in a table: those beyond `ends`.

    Attributes:
        version: The table's version of which this is true.
        ends: The highest offset, by topic and partition. A topic is named by its first characters, as in Delta's
            statistics.
    """

    version: int
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def after(self, added: Mapping[tuple[str, int], int]) -> "ArchivedOffsets":
        """Return what is known after the next version has added records up to these offsets."""
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
        # Far smaller a plan than a condition for each partition, and folded to a constant.
        ends = F.from_json(F.lit(json.dumps(by_topic)), "MAP<STRING, ARRAY<BIGINT>>")
        end = F.get(F.try_element_at(ends, F.substring("topic", 1, PREFIX)), F.col("partition"))
        return F.coalesce(F.col("offset") <= end, F.lit(False))

    def to_json(self) -> str:
        """Return the metadata of a commit."""
        ends = [[topic, partition, offset] for (topic, partition), offset in sorted(self.ends.items())]
        return json.dumps({_METADATA: {"version": self.version, "ends": ends}})

    @staticmethod
    def from_json(text: str | None) -> "ArchivedOffsets | None":
        """Return what the metadata of a commit says, or None when it is not one of ours."""
        try:
            facts = Fields(parse_json(text or "")).nested(_METADATA)
            return ArchivedOffsets(facts.whole("version"), dict(facts.items("ends", _end)))
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
    """Return what the newest commits tell of the table, or else ask the table.

    Args:
        spark: A session.
        table: The table's path or URL.
        newest: The table's newest version, for who knows it: the history of a table takes Spark long to tell.
    """
    found = None if newest is None else _learn_from(spark, table, newest)
    return found or _learn_from_history(spark, table)


def _learn_from(spark: "SparkSession", table: str, newest: int) -> ArchivedOffsets | None:
    """Return what the newest commits tell; None when the whole history must be looked at."""
    for version in range(newest, max(newest - _NEWEST, -1), -1):
        commit = read_delta_commit(spark, table, version)
        if commit is None:
            return None
        found = ArchivedOffsets.from_json(_user_metadata(commit))
        if found is not None:
            # What was known before it is all that came before it, unless another wrote at the same time.
            return found if found.version + 1 == version else None
    return None


def _user_metadata(commit: str) -> str | None:
    try:
        for action in _actions(commit):
            if "commitInfo" in action:
                return action.nested("commitInfo").optional_text("userMetadata")
    except Malformed:  # Spark will say so when it reads the table
        return None
    return None


def _actions(commit: str) -> Iterator[Fields]:
    return (Fields(parse_json(line), "an action") for line in commit.split("\n") if line.strip())


def _learn_from_history(spark: "SparkSession", table: str) -> ArchivedOffsets:
    history = spark.sql(f"DESCRIBE HISTORY {identifier(table)} LIMIT {_HISTORY}").collect()
    oldest = history[-1].version
    for commit in history:
        found = ArchivedOffsets.from_json(commit.userMetadata)
        # All that came after it must still be there to be read.
        if found is not None and found.version + 1 >= oldest:
            return found
    if oldest == 0 and history[-1].operation == "CREATE TABLE":
        return ArchivedOffsets(0)
    return _ask(spark, table, history[0].version)


def catch_up(spark: "SparkSession", table: str, known: ArchivedOffsets) -> ArchivedOffsets:
    """Return what is known after the commits that were made since: our own last one, and those of others."""
    told = True
    while (commit := read_delta_commit(spark, table, known.version + 1)) is not None:
        added = _added(commit)
        told = told and added is not None
        known = known.after(added or {})
    return known if told else _ask(spark, table, known.version)


def _added(commit: str) -> dict[tuple[str, int], int] | None:
    """Return the highest offsets of the records that a commit added, or None when its statistics do not tell.

    Spark reads each Kafka partition in tasks of its own, so a file has records of one only. A file that others made
    may mix them.
    """
    ends: dict[tuple[str, int], int] = {}
    try:
        for action in _actions(commit):
            file = action.nested("add") if "add" in action else None
            if file is None or not file.flag("dataChange"):  # compaction changes no data
                continue
            stats = Fields(parse_json(file.optional_text("stats") or "{}"), "the statistics of a file")
            low, high = stats.nested("minValues"), stats.nested("maxValues")
            place, other = ((one.text("topic")[:PREFIX], _partition(one.any("partition"))) for one in (low, high))
            if place != other:
                return None
            ends[place] = max(high.whole("offset"), ends.get(place, -1))
    except Malformed:
        return None
    return ends


def _ask(spark: "SparkSession", table: str, version: int) -> ArchivedOffsets:
    """Read the highest offsets from the records themselves."""
    from pyspark.sql import functions as F

    place = (F.substring("topic", 1, PREFIX).alias("topic"), "partition")
    rows = read(spark, table, version).groupBy(*place).agg(F.max("offset").alias("end")).collect()
    return ArchivedOffsets(version, {(row.topic, row.partition): row.end for row in rows})
