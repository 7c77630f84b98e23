"""What `respool archive` prints: text for people, plain data for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from respool.archive.contents import ArchiveContents, HourContents
from respool.archive.kafka_check import KafkaComparison
from respool.cli.render.checkpoint import line
from respool.cli.render.output import size
from respool.kafka.offsets import total

_COLUMNS = 8  # topic partitions that get a column of their own in the table of hours


def head_lines(facts: ArchiveContents) -> Iterator[str]:
    """Return what is told of the archive as a whole."""
    yield line("Archive", facts.table)
    yield line("Version", f"{facts.version:,}")
    yield line("Event times", _reading(facts))
    if facts.span is None:
        yield line("Span", "no event yet")
    else:
        first, end = facts.span
        count = sum(one.start is not None for one in facts.hours)
        yield line("Span", f"{_time(first)} to {_time(end)}, {count:,} hour{'' if count == 1 else 's'}")
    rejected = sum(one.rejected for one in facts.places)
    yield line("Records", f"{facts.records:,}, {rejected:,} of them rejected")
    compact = f"; {facts.small:,} small ones can be put together: respool archive optimize" if facts.small else ""
    yield line("Files", f"{facts.files:,}, {size(facts.bytes)}{compact}")
    if facts.damaged:
        yield line("Damaged", f"{len(facts.damaged):,} files cannot be read; see: respool archive verify")


def place_rows(facts: ArchiveContents) -> list[dict[str, Any]]:
    """Return the rows of the table of topic partitions."""
    return [
        {
            "topic": one.place.topic,
            "partition": one.place.partition,
            "offsets": f"{one.first:,} to {one.last:,}",
            "records": one.records,
            "rejected": one.rejected,
            "missing": one.missing,
            "doubled": one.surplus,
        }
        for one in facts.places
    ]


def hour_rows(facts: ArchiveContents) -> list[dict[str, Any]]:
    """Return the rows of the table of hours."""
    return [
        {
            "hour": _hour(one),
            "records": one.records,
            "files": one.files,
            "size": size(one.bytes),
            **({str(place.place): one.places.get(place.place, 0) for place in facts.places}),
        }
        for one in facts.hours
    ]


def hour_columns(facts: ArchiveContents) -> list[str]:
    """Return the columns of the table of hours; many topic partitions are left to `--json`."""
    names = [str(one.place) for one in facts.places]
    return ["hour", "records", "files", "size", *(names if 1 < len(names) <= _COLUMNS else ())]


def facts_json(facts: ArchiveContents, hours: bool) -> dict[str, Any]:
    """Return what an archive holds for programs."""
    told: dict[str, Any] = {
        "table": facts.table,
        "version": facts.version,
        "reading": asdict(facts.reading) if facts.reading else None,
        "span": [_time(one) for one in facts.span] if facts.span else None,
        "records": facts.records,
        "rejected": sum(one.rejected for one in facts.places),
        "missing": sum(one.missing for one in facts.places),
        "doubled": sum(one.surplus for one in facts.places),
        "files": facts.files,
        "bytes": facts.bytes,
        "small_files": facts.small,
        "damaged_files": [asdict(one) for one in facts.damaged],
        "partitions": [
            {
                "topic": one.place.topic,
                "partition": one.place.partition,
                "first": one.first,
                "last": one.last,
                "records": one.records,
                "rejected": one.rejected,
                "missing": one.missing,
                "doubled": one.surplus,
                "gaps": one.gaps,
            }
            for one in facts.places
        ],
    }
    return {**told, "hours": [_hour_json(one) for one in facts.hours]} if hours else told


def kafka_json(found: KafkaComparison | None) -> dict[str, Any] | None:
    """Return what Kafka has of an archive's topics for programs; ranges are [start, end)."""
    if found is None:
        return None
    return {
        "bootstrap_servers": found.servers,
        "absent": found.absent,
        "other": [{"topic": place.topic, "partition": place.partition, "end": at} for place, at in found.other.items()],
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "start": one.start,
                "end": one.end,
                "lacking": one.records,
                "no_record": total(one.empty),
                "gone": one.gone,
                "behind": one.behind,
            }
            for place, one in found.places.items()
        ],
    }


def _reading(facts: ArchiveContents) -> str:
    found = facts.reading
    if found is None:
        return "the table does not say how they were read"
    return f"the field {found.event_time}; those that name no zone in {found.timezone}"


def _hour(one: HourContents) -> str:
    return "rejected" if one.start is None else _time(one.start)


def _hour_json(one: HourContents) -> dict[str, Any]:
    return {
        "hour": None if one.start is None else _time(one.start),
        "records": one.records,
        "files": one.files,
        "bytes": one.bytes,
        "small_files": one.small,
        "partitions": [
            {"topic": place.topic, "partition": place.partition, "records": count}
            for place, count in one.places.items()
        ],
    }


def _time(moment: datetime) -> str:
    # isoformat and not strftime, which writes a year before 1000 with fewer digits.
    return moment.isoformat(timespec="minutes").replace("+00:00", "Z")
