"""Check an archive: every record of its topics is there, once, and every data file can be read. Nothing is changed."""

from collections.abc import Iterator, Sequence

from respool.archive.kafka_check import KafkaComparison, PartitionInKafka
from respool.archive.model import ArchiveContents, PartitionContents
from respool.findings import CheckResult, Finding, check, note
from respool.kafka.offsets import OffsetRange, shared, total

_SHOWN = 3  # ranges of offsets that a finding names
_LOST = "If a copy of the table has them, bring them back from there. Nothing else has them."


def verify(
    facts: ArchiveContents, kafka: KafkaComparison | None, why_not: str = "", fix: str = "respool archive verify --fix"
) -> tuple[CheckResult, ...]:
    """Return what was checked, each thing ok or what is amiss and what to do.

    Args:
        facts: What the archive holds.
        kafka: What Kafka has of its topics; None when it could not be asked.
        why_not: Why it could not.
        fix: The command that puts right what can be.
    """
    return (
        check("data files", _files(facts, fix)),
        check("each record once", _doubles(facts, fix)),
        check("no record missing", _gaps(facts, kafka, fix)),
        check("records before the first", _heads(facts, kafka, fix)),
        check("compared with Kafka", _kafka(kafka, why_not)),
        check("rejected records", _rejected(facts)),
    )


def _files(facts: ArchiveContents, fix: str) -> Iterator[Finding]:
    for one in facts.damaged:
        if one.missing:
            yield Finding(
                f"{one.path} is not there, though the table's log names it.",
                f"Bring it back from a copy. Without one, {fix} --forget-lost-files takes it out of the table, and "
                "refills what Kafka still has of it.",
            )
        else:
            yield Finding(
                f"{one.path} cannot be read: {one.why}.",
                "See that this account may read it, and that its store answers. If the file itself is damaged, bring "
                "it back from a copy; without one, move it away: it counts as lost then.",
            )
    if facts.nameless:
        yield Finding(
            f"{facts.nameless:,} records have no topic, partition or offset: respool did not write them.",
            "Delete them from the table, or archive into one of its own.",
        )


def _doubles(facts: ArchiveContents, fix: str) -> Iterator[Finding]:
    for one in facts.places:
        if one.surplus:
            yield Finding(
                f"{one.place}: {_count(one.surplus, 'record')} too many, at {_offsets(one.doubles)}.",
                f"Leave one of each: {fix}",
            )


def _gaps(facts: ArchiveContents, kafka: KafkaComparison | None, fix: str) -> Iterator[Finding]:
    for one in facts.places:
        found = kafka.places.get(one.place) if kafka else None
        if not one.gaps:
            continue
        if found is None:
            yield Finding(
                f"{one.place}: {_count(one.missing, 'offset')} missing, {_offsets(one.gaps)}.",
                "Kafka can tell whether these are records, and whether it still has them: name it with "
                "--bootstrap-servers.",
            )
            continue
        between = [OffsetRange(one.first, one.last + 1)]
        if here := shared(found.records, between):
            yield Finding(
                f"{one.place}: {_count(total(here), 'record')} missing, {_offsets(here)}. Kafka has {_them(here)}.",
                f"Refill: {fix}",
            )
        yield from _gone(one, found, shared(found.gone, between))
        if empty := shared(found.empty, between):
            yield note(
                f"{one.place}: Kafka has no record at {_offsets(empty)} either: transaction markers, or records that "
                "compaction took away.",
                "",
            )


def _gone(one: PartitionContents, found: PartitionInKafka, gone: Sequence[OffsetRange]) -> Iterator[Finding]:
    """Tell of offsets that nobody has: those as short as what Kafka shows to be markers are most likely the same."""
    marker = max((empty.size for empty in found.empty), default=0)
    lost = [gap for gap in gone if gap.size > marker]
    if lost:
        yield Finding(
            f"{one.place}: {_count(total(lost), 'offset')} missing, {_offsets(lost)}. Kafka no longer has "
            f"{_them(lost)}.",
            _LOST,
        )
    if likely := [gap for gap in gone if gap.size <= marker]:
        yield note(
            f"{one.place}: {_count(total(likely), 'offset')} missing that Kafka no longer has, {_offsets(likely)}; "
            "most likely transaction markers, as Kafka has them further on.",
            "",
        )


def _heads(facts: ArchiveContents, kafka: KafkaComparison | None, fix: str) -> Iterator[Finding]:
    for one in facts.places:
        found = kafka.places.get(one.place) if kafka else None
        head = [OffsetRange(0, one.first)]
        if not one.first:
            continue
        if found is None:
            yield note(f"{one.place}: the archive starts at offset {one.first:,}.", "")
            continue
        if here := shared(found.records, head):
            yield Finding(
                f"{one.place}: the archive starts at offset {one.first:,}. Kafka has {_count(total(here), 'record')} "
                f"before it, {_offsets(here)}.",
                f"Refill: {fix}",
            )
        if gone := shared(found.gone, head):
            yield note(
                f"{one.place}: the archive starts at offset {one.first:,}. Kafka no longer has {_offsets(gone)}.", ""
            )


def _kafka(kafka: KafkaComparison | None, why_not: str) -> Iterator[Finding]:
    if kafka is None:
        yield note(f"Kafka was not asked. {why_not}".rstrip(), "")
        return
    for topic in kafka.absent:
        yield note(f"There is no topic {topic} at {kafka.servers} any more.", "")
    for place, why in kafka.other.items():
        yield Finding(
            f"{place} at {kafka.servers} {why}: it is not the topic that was archived.",
            "Name the right cluster with --bootstrap-servers. A topic that was made anew needs an archive of its own.",
        )
    behind = {place: one.behind for place, one in kafka.places.items() if one.behind > 0}
    if behind:
        each = ", ".join(f"{place} {count:,}" for place, count in behind.items())
        yield note(f"The archive is {_count(sum(behind.values()), 'offset')} behind Kafka: {each}.", "")


def _rejected(facts: ArchiveContents) -> Iterator[Finding]:
    rejected = sum(one.rejected for one in facts.places)
    if rejected:
        yield note(f"{rejected:,} of {_count(facts.records, 'record')} do not decode. They are kept as they came.", "")


def _offsets(ranges: Sequence[OffsetRange]) -> str:
    few = ", ".join(str(one) for one in ranges[:_SHOWN])
    more = len(ranges) - _SHOWN
    word = "offset" if total(ranges) == 1 else "offsets"
    return f"{word} {few}" + (f" and {_count(more, 'range')} more" if more > 0 else "")


def _them(ranges: Sequence[OffsetRange]) -> str:
    return "it" if total(ranges) == 1 else "them"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")
