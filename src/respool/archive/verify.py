"""Check an archive: it has every record of its topics once, and every data file can be read. Nothing is changed."""

from collections.abc import Iterator, Sequence

from respool.archive.kafka_check import KafkaComparison, PartitionInKafka
from respool.archive.model import ArchiveContents, PartitionContents
from respool.findings import CheckResult, Finding, check, note
from respool.kafka.offsets import OffsetRange, shared, total
from respool.text import plural

_SHOWN = 3  # ranges of offsets that a finding names
_LOST = "If a copy of the table has them, restore them from there. Nothing else has them."


def verify(
    contents: ArchiveContents,
    kafka: KafkaComparison | None,
    why_not: str = "",
    fix: str = "respool archive verify --fix",
) -> tuple[CheckResult, ...]:
    """Return the results of all checks, each ok or with what is wrong and what to do.

    Args:
        contents: The contents of the archive.
        kafka: The comparison with its topics in Kafka; None when no broker could be asked.
        why_not: Why not.
        fix: The command that repairs the archive.
    """
    return (
        check("data files", _files(contents, fix)),
        check("each record once", _doubles(contents, fix)),
        check("no record missing", _gaps(contents, kafka, fix)),
        check("records before the first", _heads(contents, kafka, fix)),
        check("compared with Kafka", _kafka(kafka, why_not)),
        check("rejected records", _rejected(contents)),
    )


def _files(contents: ArchiveContents, fix: str) -> Iterator[Finding]:
    for file in contents.damaged:
        if file.missing:
            yield Finding(
                f"{file.path} does not exist, though the table's log names it.",
                f"Restore it from a copy. Without a copy, {fix} --forget-lost-files removes it from the table, and "
                "refills the records that Kafka still has.",
            )
        else:
            yield Finding(
                f"{file.path} cannot be read: {file.why}.",
                "Check that this account may read it, and that its store responds. If the file itself is damaged, "
                "restore it from a copy; without a copy, move it away: it then counts as lost.",
            )
    if contents.nameless:
        yield Finding(
            f"Without topic, partition or offset: {plural(contents.nameless, 'record')}. respool did not write them.",
            "Delete them from the table, or archive into a separate table.",
        )


def _doubles(contents: ArchiveContents, fix: str) -> Iterator[Finding]:
    for partition in contents.places:
        if partition.surplus:
            yield Finding(
                f"{partition.place}: {plural(partition.surplus, 'duplicate record')} at {_offsets(partition.doubles)}.",
                f"Keep one record per offset: {fix}",
            )


def _gaps(contents: ArchiveContents, kafka: KafkaComparison | None, fix: str) -> Iterator[Finding]:
    for partition in contents.places:
        in_kafka = kafka.places.get(partition.place) if kafka else None
        if not partition.gaps:
            continue
        if in_kafka is None:
            yield Finding(
                f"{partition.place}: {plural(partition.missing, 'offset')} missing, {_offsets(partition.gaps)}.",
                "Only Kafka shows whether these are records, and whether it still has them: name a broker with "
                "--bootstrap-servers.",
            )
            continue
        between = [OffsetRange(partition.first, partition.last + 1)]
        if refillable := shared(in_kafka.records, between):
            yield Finding(
                f"{partition.place}: {plural(total(refillable), 'record')} missing, {_offsets(refillable)}. Kafka has "
                f"{_them(refillable)}.",
                f"Refill: {fix}",
            )
        yield from _gone(partition, in_kafka, shared(in_kafka.gone, between))
        if empty := shared(in_kafka.empty, between):
            yield note(
                f"{partition.place}: Kafka has no record at {_offsets(empty)} either: transaction markers, or records "
                "that compaction removed.",
                "",
            )


def _gone(partition: PartitionContents, in_kafka: PartitionInKafka, gone: Sequence[OffsetRange]) -> Iterator[Finding]:
    """Yield findings on offsets that nobody has; gaps no longer than known transaction markers are likely markers."""
    marker = max((empty.size for empty in in_kafka.empty), default=0)
    lost = [gap for gap in gone if gap.size > marker]
    if lost:
        yield Finding(
            f"{partition.place}: {plural(total(lost), 'offset')} missing, {_offsets(lost)}. Kafka no longer has "
            f"{_them(lost)}.",
            _LOST,
        )
    if likely := [gap for gap in gone if gap.size <= marker]:
        yield note(
            f"{partition.place}: {plural(total(likely), 'offset')} missing that Kafka no longer has, "
            f"{_offsets(likely)}; most likely transaction markers, as Kafka has them further on.",
            "",
        )


def _heads(contents: ArchiveContents, kafka: KafkaComparison | None, fix: str) -> Iterator[Finding]:
    for partition in contents.places:
        in_kafka = kafka.places.get(partition.place) if kafka else None
        before = [OffsetRange(0, partition.first)]
        if not partition.first:
            continue
        start = f"{partition.place}: the archive starts at offset {partition.first:,}."
        if in_kafka is None:
            yield note(start, "")
            continue
        if refillable := shared(in_kafka.records, before):
            records = plural(total(refillable), "record")
            yield Finding(f"{start} Kafka has {records} before it, {_offsets(refillable)}.", f"Refill: {fix}")
        if gone := shared(in_kafka.gone, before):
            yield note(f"{start} Kafka no longer has {_offsets(gone)}.", "")


def _kafka(kafka: KafkaComparison | None, why_not: str) -> Iterator[Finding]:
    if kafka is None:
        yield note(f"Kafka was not asked. {why_not}".rstrip(), "")
        return
    for topic in kafka.absent:
        yield note(f"The topic {topic} no longer exists at {kafka.servers}.", "")
    for place, why in kafka.other.items():
        yield Finding(
            f"{place} at {kafka.servers} {why}: it is not the topic that was archived.",
            "Name the right cluster with --bootstrap-servers. A topic that was created again needs its own archive.",
        )
    behind = {place: in_kafka.behind for place, in_kafka in kafka.places.items() if in_kafka.behind > 0}
    if behind:
        each = ", ".join(f"{place} {count:,}" for place, count in behind.items())
        yield note(f"The archive is {plural(sum(behind.values()), 'offset')} behind Kafka: {each}.", "")


def _rejected(contents: ArchiveContents) -> Iterator[Finding]:
    rejected = sum(partition.rejected for partition in contents.places)
    if rejected:
        yield note(
            f"{rejected:,} of {plural(contents.records, 'record')} do not decode. They are archived unchanged.", ""
        )


def _offsets(ranges: Sequence[OffsetRange]) -> str:
    few = ", ".join(str(offsets) for offsets in ranges[:_SHOWN])
    more = len(ranges) - _SHOWN
    word = "offset" if total(ranges) == 1 else "offsets"
    return f"{word} {few}" + (f" and {plural(more, 'range')} more" if more > 0 else "")


def _them(ranges: Sequence[OffsetRange]) -> str:
    return "it" if total(ranges) == 1 else "them"
