"""The archive of a topic's records as an object: `respool.Archive`."""

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from respool.archive.model import ArchiveContents
from respool.archive.table import Size
from respool.errors import BrokerError, PipelineError
from respool.findings import CheckResult
from respool.operations.context import OnNote, OnProgress, note_of, session, settings_of
from respool.settings import Settings
from respool.text import plural, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.archive.kafka_check import KafkaComparison
    from respool.kafka.cluster import KafkaCluster
    from respool.pipeline.definition import Pipeline

DEFAULT_TABLE = "visits_table"
_MARKS = {"ok": "✓", "note": "•", "unchecked": "?", "broken": "✗"}


@dataclass(frozen=True, repr=False)
class ArchiveReport:
    """The result of verifying an archive.

    >>> print(respool.Archive("visits_table").verify(compare_with_kafka=False))  # doctest: +ELLIPSIS
    ✓ data files
    ...
    All is well: 100 records, each once.

    Attributes:
        contents: The contents of the archive.
        kafka: What Kafka has of its topics; None when Kafka was not asked.
        checks: What was checked, and the findings.
    """

    contents: ArchiveContents
    kafka: "KafkaComparison | None"
    checks: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        """Whether no check has found a defect."""
        return not self.broken

    @property
    def broken(self) -> tuple[CheckResult, ...]:
        """The checks that have found a defect."""
        return tuple(check for check in self.checks if check.status == "broken")

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"ArchiveReport({self.contents.table!r}, ok={self.ok}, broken={[check.name for check in self.broken]})"

    def __str__(self) -> str:
        """Return what `respool archive verify` prints."""
        lines: list[str] = []
        for check in self.checks:
            lines.append(f"{_MARKS[check.status]} {check.name}")
            for finding in check.findings:
                lines += [f"    {finding.what}", *([f"    → {finding.remedy}"] if finding.remedy else [])]
        lines.append(
            f"{len(self.broken)} of {len(self.checks)} checks found something wrong."
            if self.broken
            else f"All is well: {plural(self.contents.records, 'record')}, each once."
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return what `respool archive verify --json` prints."""
        checks = [check.to_json() for check in self.checks]
        return {
            **self.contents.to_json(),
            "kafka": _kafka_json(self.kafka),
            "ok": self.ok,
            "done": [],
            "checks": checks,
        }


@dataclass(frozen=True, repr=False)
class RepairResult:
    """The result of repairing an archive.

    >>> respool.Archive("visits_table").repair().report.ok
    True

    Attributes:
        report: The archive after the repair.
        lost_files: Lost data files that were removed from the table's log.
        removed: How many duplicate records were removed.
        differing: How many offsets have several records of different content; all of these were kept.
        refilled: How many records were refilled from Kafka.
    """

    report: ArchiveReport
    lost_files: tuple[str, ...] = ()
    removed: int = 0
    differing: int = 0
    refilled: int = 0

    @property
    def done(self) -> tuple[str, ...]:
        """A sentence without a full stop for each change."""
        steps = (
            self.lost_files and f"{plural(len(self.lost_files), 'lost file')} removed from the table's log",
            self.removed and f"{plural(self.removed, 'duplicate record')} removed",
            self.differing
            and f"{plural(self.differing, 'offset')} unchanged: the records there differ, so the topic was created "
            "again; give it a separate archive",
            self.refilled and f"{plural(self.refilled, 'record')} refilled from Kafka",
        )
        return tuple(str(step) for step in steps if step)

    def __repr__(self) -> str:
        """Return it in a line."""
        return (
            f"RepairResult({self.report.contents.table!r}, removed={self.removed}, refilled={self.refilled}, "
            f"lost_files={len(self.lost_files)}, ok={self.report.ok})"
        )

    def __str__(self) -> str:
        """Return what `respool archive verify --fix` prints."""
        return "\n".join([*(f"Done: {step}." for step in self.done), str(self.report)])

    def to_json(self) -> dict[str, Any]:
        """Return what `respool archive verify --fix --json` prints."""
        return {**self.report.to_json(), "done": list(self.done)}


@dataclass(frozen=True)
class CompactionResult:
    """The result of compacting an archive.

    >>> result = respool.Archive("visits_table").compact()
    >>> result.before == result.after
    True

    Attributes:
        table: The table's path or URL.
        before: Its data files before.
        after: Its data files afterwards.
        days: How many days of event time were compacted.
    """

    table: str
    before: Size
    after: Size
    days: int

    def __str__(self) -> str:
        """Return what `respool archive optimize` prints."""
        before, after = self.before, self.after
        if not self.days:
            return f"Nothing to compact: {plural(after.files, 'file')}, {size(after.bytes)}, with nothing to merge."
        return f"Files: {before.files:,} → {after.files:,}  Bytes: {size(before.bytes)} → {size(after.bytes)}"

    def to_json(self) -> dict[str, Any]:
        """Return what `respool archive optimize --json` prints."""
        return {"table": self.table, "before": asdict(self.before), "after": asdict(self.after)}


class Archive:
    """The Delta table of all raw records of a topic.

    Nothing is read before a method is called.

    >>> archive = respool.Archive("visits_table")
    >>> if not archive.verify(compare_with_kafka=False).ok:
    ...     print(archive.repair())
    """

    def __init__(self, table: str = DEFAULT_TABLE, *, settings: Settings | None = None) -> None:
        """Name an archive.

        Args:
            table: The table's path or URL; a relative path is under the settings' `archive_store`.
            settings: The settings; by default those of respool.toml and of the environment.
        """
        from respool.archive.table import locate

        self.settings = settings_of(settings)
        self.location = locate(table, self.settings)
        self._name = table

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"Archive({self.location!r})"

    def contents(self, *, on_progress: OnProgress | None = None) -> ArchiveContents:
        """Count records, gaps and duplicates by topic partition and hour. Neither Spark nor Kafka is needed.

        >>> respool.Archive("visits_table").contents().records
        100

        Args:
            on_progress: Called with how many data files were read, of how many.

        Raises:
            PipelineError: There is no archive, or it is something else.
        """
        from respool.archive.contents import read_contents

        return read_contents(self.location, on_progress or _ignore)

    def verify(self, *, compare_with_kafka: bool = True, on_progress: OnProgress | None = None) -> ArchiveReport:
        """Check that every record is present once, and that every data file can be read. Nothing is changed.

        >>> report = respool.Archive("visits_table").verify(compare_with_kafka=False)
        >>> report.ok, report.broken
        (True, ())

        Args:
            compare_with_kafka: Ask Kafka which of the missing offsets are records. If Kafka does not answer, the
                report says so.
            on_progress: Called with how many files or offsets were read, of how many.
        """
        kafka, why_not = self._kafka(compare_with_kafka)
        return self._report(kafka, why_not, on_progress)

    def repair(
        self,
        *,
        forget_lost_files: bool = False,
        pipeline: "Pipeline | None" = None,
        compare_with_kafka: bool = True,
        spark: "SparkSession | None" = None,
        on_note: OnNote | None = None,
        on_progress: OnProgress | None = None,
    ) -> RepairResult:
        """Refill from Kafka what the archive lacks, and remove duplicate records.

        Each step is one commit of the table. After an interruption, the same call does the rest.

        >>> respool.Archive("visits_table").repair().done
        ()

        Args:
            forget_lost_files: Remove data files that do not exist from the table's log.
            pipeline: Decode refilled records as this pipeline does, for a table that does not say how.
            compare_with_kafka: Refill from Kafka; otherwise only duplicates are removed.
            spark: The session to use; by default one is started if there is anything to do.
            on_note: Called with what happens; by default it is logged.
            on_progress: Called with how many files or offsets were read, of how many.

        Raises:
            PipelineError: Data files are lost or unreadable, or a running query may archive the same records.
        """
        from respool.archive.repair import forget_lost_files as forget

        kafka, why_not = self._kafka(compare_with_kafka)
        before = self._report(kafka, why_not, on_progress)
        lost: list[str] = []
        if before.contents.damaged:
            self._require_forgettable(before.contents, forget_lost_files)
            lost = forget(self.location)
            before = self._report(kafka, why_not, on_progress)
        result = self._repair(before, kafka, pipeline, spark, note_of(on_note))
        if not (lost or result.done):
            return result
        after = self._report(kafka, why_not, on_progress)
        return RepairResult(after, tuple(lost), result.removed, result.differing, result.refilled)

    def compact(self, *, spark: "SparkSession | None" = None, on_note: OnNote | None = None) -> CompactionResult:
        """Merge small data files, with one commit for each day of event time. Queries may run meanwhile.

        >>> respool.Archive("visits_table").compact().days
        0

        Args:
            spark: The session to use; by default one is started if there is anything to merge.
            on_note: Called with each day; by default it is logged.
        """
        from respool.archive.reader import data_files, days_to_compact, open_archive
        from respool.archive.repair import naming_failures
        from respool.archive.table import optimize

        note = note_of(on_note)
        files = data_files(open_archive(self.location))
        days = days_to_compact(files)
        before = after = Size(len(files), sum(file.size for file in files))

        def on_day(number: int) -> None:
            name = days[number] or "the rejected records"
            note(f"Compacting {name} ({number + 1:,} of {len(days):,}) …")

        if days:
            with (
                session(self.settings, spark, note, f"to compact {self.location}", [self.location]) as active,
                naming_failures(self.location),
            ):
                before, after = optimize(active, self.location, days, on_day)
        return CompactionResult(self.location, before, after, len(days))

    def _kafka(self, wanted: bool) -> "tuple[KafkaCluster | None, str]":
        """Return the cluster, or None and why it cannot be asked."""
        from respool.kafka.topics import connect

        if not wanted:
            return None, ""
        try:
            return connect(self.settings), ""
        except BrokerError as error:
            return None, str(error)

    def _report(self, kafka: "KafkaCluster | None", why_not: str, on_progress: OnProgress | None) -> ArchiveReport:
        from respool.archive.kafka_check import compare_with_kafka
        from respool.archive.verify import verify

        contents = self.contents(on_progress=on_progress)
        comparison = compare_with_kafka(kafka, contents, on_progress or _ignore) if kafka else None
        option = "" if self._name == DEFAULT_TABLE else f" --table {shlex.quote(self._name)}"
        command = f"respool archive verify{option} --fix"
        return ArchiveReport(contents, comparison, verify(contents, comparison, why_not, command))

    def _require_forgettable(self, contents: ArchiveContents, forget: bool) -> None:
        damaged = contents.damaged
        all_missing = all(file.missing for file in damaged)
        if forget and all_missing:
            return
        step = (
            "Restore them from a backup. Without a backup, add --forget-lost-files: it removes them from the table, "
            "and what Kafka still has of them is refilled."
            if all_missing
            else "Restore them from a backup. Without a backup, move those that cannot be read away, and add "
            "--forget-lost-files."
        )
        raise PipelineError(
            f"{len(damaged):,} data files of {self.location} are lost or cannot be read, such as {damaged[0].path}: "
            f"it is not known which records they had. {step} Nothing was changed."
        )

    def _repair(
        self,
        before: ArchiveReport,
        kafka: "KafkaCluster | None",
        pipeline: "Pipeline | None",
        spark: "SparkSession | None",
        note: OnNote,
    ) -> RepairResult:
        from respool.archive.repair import decoder_of, hold_archiving, refill, remove_doubles
        from respool.kafka.offsets import total

        contents, comparison = before.contents, before.kafka
        lacking = comparison.lacking if comparison else {}
        doubles = {place.place: place.doubles for place in contents.places if place.doubles}
        if not lacking and not doubles:
            return RepairResult(before)
        decoding = decoder_of(contents, pipeline) if lacking else None
        removed = differing = refilled = 0
        with (
            hold_archiving(self.settings, self.location, lacking),
            session(self.settings, spark, note, f"to repair {self.location}", [self.location]) as active,
        ):
            if doubles:
                note("Removing duplicate records …")
                removal = remove_doubles(active, self.location, doubles, note)
                removed, differing = removal.records, removal.differing
            if decoding and comparison and kafka:
                refilled = sum(total(ranges) for ranges in lacking.values())
                note(f"Refilling {plural(refilled, 'record')} from Kafka …")
                refill(active, kafka, self.settings, comparison, decoding, self.location)
        return RepairResult(before, (), removed, differing, refilled)


def _ignore(done: int, total: int) -> None:
    pass


def _kafka_json(comparison: "KafkaComparison | None") -> dict[str, Any] | None:
    """Return what Kafka has of an archive's topics; ranges are [start, end)."""
    from respool.kafka.offsets import total

    if comparison is None:
        return None
    other = [
        {"topic": place.topic, "partition": place.partition, "end": end} for place, end in comparison.other.items()
    ]
    partitions = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "start": partition.start,
            "end": partition.end,
            "lacking": partition.records,
            "no_record": total(partition.empty),
            "gone": partition.gone,
            "behind": partition.behind,
        }
        for place, partition in comparison.places.items()
    ]
    return {
        "bootstrap_servers": comparison.servers,
        "absent": comparison.absent,
        "other": other,
        "partitions": partitions,
    }
