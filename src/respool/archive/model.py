"""The contents of an archive as values, and as text and JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from respool.archive.table import DecoderIdentity
from respool.kafka.offsets import OffsetRange, TopicPartition, total
from respool.text import UNLIMITED, labelled, plural, size, table_lines

_COLUMNS = 8  # topic partitions that have a column each in the table of hours


@dataclass(frozen=True)
class PartitionContents:
    """The records of a topic partition in an archive.

    Attributes:
        place: The topic partition.
        records: The number of records, duplicates included.
        rejected: The number of records that do not decode.
        first: The lowest offset.
        last: The highest offset.
        gaps: The offsets between these two that are missing.
        doubles: The offsets that are present more than once.
        surplus: The number of records that are duplicates of another.
    """

    place: TopicPartition
    records: int
    rejected: int
    first: int
    last: int
    gaps: tuple[OffsetRange, ...]
    doubles: tuple[OffsetRange, ...]
    surplus: int

    @property
    def missing(self) -> int:
        """The number of missing offsets."""
        return total(self.gaps)


@dataclass(frozen=True)
class HourContents:
    """The records of an hour of event time in an archive.

    Attributes:
        start: The start of the hour, in UTC; None for rejected records, which have no event time.
        records: The number of records.
        files: The number of files.
        bytes: The size of the files.
        small: The number of files that a compaction would merge.
        places: The number of records by topic partition.
    """

    start: datetime | None
    records: int
    files: int
    bytes: int
    small: int
    places: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class UnreadableFile:
    """A data file that cannot be read.

    Attributes:
        path: Its path in the table.
        why: The reason.
        missing: Whether the file does not exist.
    """

    path: str
    why: str
    missing: bool


@dataclass(frozen=True, repr=False)
class ArchiveContents:
    """The contents of an archive.

    >>> contents = respool.Archive("visits_table").contents()
    >>> contents.records, contents.rejected, contents.files
    (100, 0, 2)

    Attributes:
        table: Its path or URL.
        version: The version of the table that was read.
        reading: How it reads event times; None when the table does not say.
        places: Its topic partitions, by name and number.
        hours: Its hours, the rejected records last.
        damaged: The data files that cannot be read; their records are not counted.
        nameless: Records without a topic, partition or offset: respool did not write them.
    """

    table: str
    version: int
    reading: DecoderIdentity | None
    places: tuple[PartitionContents, ...]
    hours: tuple[HourContents, ...]
    damaged: tuple[UnreadableFile, ...]
    nameless: int

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(place.records for place in self.places)

    @property
    def files(self) -> int:
        """The number of data files."""
        return sum(hour.files for hour in self.hours)

    @property
    def bytes(self) -> int:
        """The size of the data files."""
        return sum(hour.bytes for hour in self.hours)

    @property
    def small(self) -> int:
        """The number of files that a compaction would merge."""
        return sum(hour.small for hour in self.hours)

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """The hours of event time, from the first to the end of the last; None if there are no events."""
        starts = [hour.start for hour in self.hours if hour.start is not None]
        return (starts[0], starts[-1] + timedelta(hours=1)) if starts else None

    @property
    def rejected(self) -> int:
        """The number of records that do not decode."""
        return sum(place.rejected for place in self.places)

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"ArchiveContents({self.table!r}, version={self.version}, records={self.records}, files={self.files})"

    def __str__(self) -> str:
        """Return what `respool archive show` prints."""
        return self.text()

    def text(self, *, hours: bool = False, width: int = UNLIMITED) -> str:
        """Return what `respool archive show` prints.

        Args:
            hours: Add the hours of event time.
            width: The most characters of a line.
        """
        lines = [*(labelled(*pair, width) for pair in self._head()), ""]
        columns = ("topic", "partition", "offsets", "records", "rejected", "missing", "doubled")
        rows = [_place_row(place) for place in self.places]
        lines += table_lines(rows, columns, width) if rows else ["No record yet."]
        if hours:
            rows = [self._hour_row(hour) for hour in self.hours]
            lines += ["", *(table_lines(rows, self._hour_columns(), width) if rows else ["No hour yet."])]
        return "\n".join(lines)

    def to_json(self, *, hours: bool = False) -> dict[str, Any]:
        """Return what `respool archive show --json` prints.

        Args:
            hours: Add the hours of event time.
        """
        fields: dict[str, Any] = {
            "table": self.table,
            "version": self.version,
            "reading": asdict(self.reading) if self.reading else None,
            "span": [_time(moment) for moment in self.span] if self.span else None,
            "records": self.records,
            "rejected": self.rejected,
            "missing": sum(place.missing for place in self.places),
            "doubled": sum(place.surplus for place in self.places),
            "files": self.files,
            "bytes": self.bytes,
            "small_files": self.small,
            "damaged_files": [asdict(file) for file in self.damaged],
            "partitions": [_place_json(place) for place in self.places],
        }
        return {**fields, "hours": [_hour_json(hour) for hour in self.hours]} if hours else fields

    def _head(self) -> Iterator[tuple[str, str]]:
        yield "Archive", self.table
        yield "Version", f"{self.version:,}"
        if self.reading is None:
            yield "Event times", "the table does not say how they were read"
        else:
            zone = self.reading.timezone
            yield "Event times", f"the field {self.reading.event_time}; times without a zone in {zone}"
        if self.span is None:
            yield "Span", "no event yet"
        else:
            count = sum(hour.start is not None for hour in self.hours)
            yield "Span", f"{_time(self.span[0])} to {_time(self.span[1])}, {plural(count, 'hour')}"
        yield "Records", f"{self.records:,}, {self.rejected:,} of them rejected"
        compact = f"; {plural(self.small, 'small file')} to merge with: respool archive optimize" if self.small else ""
        yield "Files", f"{self.files:,}, {size(self.bytes)}{compact}"
        if self.damaged:
            yield "Damaged", f"{plural(len(self.damaged), 'file')} cannot be read; see: respool archive verify"

    def _hour_row(self, hour: HourContents) -> dict[str, Any]:
        return {
            "hour": "rejected" if hour.start is None else _time(hour.start),
            "records": hour.records,
            "files": hour.files,
            "size": size(hour.bytes),
            **{str(place.place): hour.places.get(place.place, 0) for place in self.places},
        }

    def _hour_columns(self) -> list[str]:
        """Return the columns of the table of hours; many topic partitions are in the JSON only."""
        names = [str(place.place) for place in self.places]
        return ["hour", "records", "files", "size", *(names if 1 < len(names) <= _COLUMNS else ())]


def _place_row(place: PartitionContents) -> dict[str, Any]:
    return {
        "topic": place.place.topic,
        "partition": place.place.partition,
        "offsets": f"{place.first:,} to {place.last:,}",
        "records": place.records,
        "rejected": place.rejected,
        "missing": place.missing,
        "doubled": place.surplus,
    }


def _place_json(place: PartitionContents) -> dict[str, Any]:
    return {
        "topic": place.place.topic,
        "partition": place.place.partition,
        "first": place.first,
        "last": place.last,
        "records": place.records,
        "rejected": place.rejected,
        "missing": place.missing,
        "doubled": place.surplus,
        "gaps": place.gaps,
    }


def _hour_json(hour: HourContents) -> dict[str, Any]:
    return {
        "hour": None if hour.start is None else _time(hour.start),
        "records": hour.records,
        "files": hour.files,
        "bytes": hour.bytes,
        "small_files": hour.small,
        "partitions": [
            {"topic": place.topic, "partition": place.partition, "records": count}
            for place, count in hour.places.items()
        ],
    }


def _time(moment: datetime) -> str:
    # isoformat and not strftime, which writes a year before 1000 with fewer digits.
    return moment.isoformat(timespec="minutes").replace("+00:00", "Z")
