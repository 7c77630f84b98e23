"""Whether the sources of a query still have the records that it will read.

Rewind, restore, fork and promotion use this with the ranges that follow the position at which the query will continue.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from respool.checkpoint.planning import source_trim
from respool.checkpoint.planning.request import KafkaRetention
from respool.checkpoint.planning.source_trim import Inputs
from respool.errors import Refusal
from respool.format.positions import PartitionRange, SourceRange

_WITHOUT = "Continue without them with --allow-data-loss."


@dataclass(frozen=True)
class Availability:
    """Which of the records that will be read the sources still have.

    Attributes:
        refusals: Records that they no longer have.
        notes: Records that could not be checked, and sources that generate their rows again.
    """

    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...]


def availability(
    readings: Sequence[SourceRange], inputs: Mapping[str, Inputs], kept: KafkaRetention | None
) -> Availability:
    """Return which of the records that will be read the sources still have.

    Args:
        readings: The range that will be read, by source: from the position at which the query continues on.
        inputs: The input files among it, by source, for sources of files.
        kept: The offsets that Kafka has; None when no broker could be asked.
    """
    refusals: list[Refusal] = []
    notes: list[str] = []
    for reading in readings:
        if reading.kind == "Kafka" and kept is not None:
            lost = (_lost_records(part, kept) for part in reading.parts)
            refusals += [Refusal(text, _WITHOUT) for text in lost if text]
        elif reading.kind == "files":
            _add_files(reading, inputs.get(reading.source), refusals, notes)
        elif reading.kind == "number" and reading.reads:
            refusals.append(_cannot_be_replayed(reading))
        else:
            notes += _remarks(reading)
    if kept is None and any(reading.kind == "Kafka" for reading in readings):
        notes.append("Whether Kafka still has these records was not checked. Name a broker with --bootstrap-servers.")
    return Availability(tuple(refusals), tuple(notes))


def _lost_records(part: PartitionRange, kept: KafkaRetention) -> str | None:
    topic, _, number = part.name.rpartition("-")
    key = (topic, int(number))
    if key not in kept.first:
        return f"Kafka has no partition {part.name}: was the topic deleted?"
    if kept.next[key] < part.end:
        return (
            f"{part.name} ends at offset {kept.next[key]}, though the query has read up to {part.end}: "
            "was the topic deleted and created again?"
        )
    gone = kept.first[key] - part.start
    if gone > 0:
        return (
            f"Kafka no longer has {gone:,} of the records of {part.name}: batches would read from offset "
            f"{part.start}, its first is {kept.first[key]}."
        )
    return None


def _add_files(reading: SourceRange, inputs: Inputs | None, refusals: list[Refusal], notes: list[str]) -> None:
    if inputs is None:
        notes.append(
            f"Source {reading.source} reads files. The files that it has read since are not recorded, so it was not "
            "checked whether they still exist: Spark skips missing files without an error."
        )
        return
    missing = source_trim.missing(inputs.paths)
    if missing.gone:
        count = len(missing.gone)
        files = f"{count:,} of {len(inputs.paths):,}: {missing.gone[0]}" + (" …" if count > 1 else "")
        refusals.append(Refusal(f"Input files are gone: {files}. Spark would skip them without an error.", _WITHOUT))
    if inputs.paths:
        count = len(inputs.paths)
        notes.append(f"{count:,} input file{'s are' if count != 1 else ' is'} read again.")
    if missing.unchecked:
        notes.append(
            f"{len(missing.unchecked):,} of the input files could not be checked, such as {missing.unchecked[0]}. "
            "Make sure that they exist: Spark skips missing files without an error."
        )
    if inputs.unknown and reading.reads:
        notes.append(
            f"Source {reading.source}: the log of input files does not name all files that are read again. Make sure "
            "that they exist: Spark skips missing files without an error."
        )


def _cannot_be_replayed(reading: SourceRange) -> Refusal:
    return Refusal(
        f"Source {reading.source} keeps its position as a bare number ({reading.start} → {reading.end}), as Spark's "
        "memory and socket sources do, and some custom sources. Memory and socket sources cannot be replayed: what "
        "was read no longer exists. The checkpoint does not record which source it is.",
        "Continue with --allow-data-loss if the records may be missing, or if the source can read them again.",
    )


def _remarks(reading: SourceRange) -> Iterator[str]:
    name = f"Source {reading.source}"
    if reading.kind == "number":
        yield (
            f"{name} keeps its position as a bare number, as Spark's memory and socket sources do: whether it can "
            f"continue at {reading.start} cannot be checked."
        )
    elif not reading.reads:
        return
    elif reading.kind == "rate":
        yield (
            f"{name} is Spark's rate source: its rows are generated again from the start time in "
            f"sources/{reading.source}/0, the same rows as long as rowsPerSecond and rampUpTime are the same."
        )
    elif reading.kind == "rate-micro-batch":
        yield (
            f"{name} is Spark's rate-micro-batch source: its rows are generated again, the same rows as long as its "
            "options are the same."
        )
    elif reading.kind == "Delta":
        yield (
            f"{name} is a Delta table, whose location the checkpoint does not hold: make sure with DESCRIBE HISTORY "
            f"that it still has what is read from {reading.start} on."
        )
    elif reading.kind == "other":
        yield f"{name} is of an unknown kind: whether it still has these records was not checked."
