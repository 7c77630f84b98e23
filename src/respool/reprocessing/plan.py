"""The plan of a reprocessing run, and why it may be refused. Plain data; nothing is read or written here."""

from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from respool.archive.reader import ArchiveReader
from respool.archive.sink import ArchiveSink
from respool.archive.table import DecoderIdentity, Size
from respool.errors import ReprocessError
from respool.pipeline.definition import Pipeline
from respool.pipeline.results import ArrivalDependent, Events, Recomputable, Sessions, Windows
from respool.reprocessing.live import LiveQuery, decoder_of
from respool.settings import Settings
from respool.text import size as size_text
from respool.times import Span, time_text

SLICE = timedelta(days=1)
_NEVER = datetime(1900, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class ReprocessRequest:
    """What the user asks for.

    Attributes:
        pipeline: The pipeline whose results are computed.
        asked: The span of event time.
        allow_open: Include results that the live query has not closed yet.
        allow_partial: Accept an archive that lacks records.
        slice: The approximate span of event time that is computed at a time.
        settings: The settings: the home, the archive and Kafka.
    """

    pipeline: Pipeline
    asked: Span
    allow_open: bool = False
    allow_partial: bool = False
    slice: timedelta = SLICE
    settings: Settings = field(default_factory=Settings, repr=False)


@dataclass(frozen=True, repr=False)
class ReprocessPlan:
    """The computation of a span.

    >>> plan = respool.plan_reprocess(pipeline, "2025-09-04T07:00Z", "2025-09-04T08:00Z")
    >>> plan == respool.plan_reprocess(pipeline, "2025-09-04T07:00Z", "2025-09-04T08:00Z")
    True
    >>> plan.to_json()["asked"]["end"]
    '2025-09-04T08:00:00+00:00'

    Attributes:
        request: What the user asks for.
        computed: The requested span, widened to whole windows. Sessions may reach beyond it.
        slices: The spans that are computed one after another: of the starts of windows, or of the event time of
            sessions.
        table: The archive.
        version: The version of the archive.
        reads: The number and size of the files to read; sessions may need more.
        size: The number and size of all files of the archive.
        live: The live query; None when there is none.
        decoded_alike: Whether the pipeline decodes records as the archive did.
        to: Where results go, as text; None while that is undecided, or when nothing is written.
    """

    request: ReprocessRequest
    computed: Span
    slices: tuple[Span, ...]
    table: str
    version: int
    reads: Size
    size: Size
    live: LiveQuery | None
    decoded_alike: bool
    to: str | None = None

    def __repr__(self) -> str:
        """Return it in a line."""
        return f"{type(self).__name__}({self.pipeline.name!r}, {self.request.asked.text(self.zone)}, {self.table!r})"

    def __str__(self) -> str:
        """Return what the command prints."""
        asked, pipeline = self.request.asked.text(self.zone), self.pipeline
        lines = [
            ("pipeline", f"{pipeline.name}, {results_of(pipeline).describe()}"),
            ("asked", f"{asked} ({pipeline.timezone})"),
            ("computed", self._computed()),
            (
                "archive",
                f"{self.table}, version {self.version}: {self.reads.files:,} of {self.size.files:,} files, "
                f"{size_text(self.reads.bytes)} of {size_text(self.size.bytes)}",
            ),
        ]
        if self.live is not None:
            closed = "nothing yet" if self.closed is None else f"up to {time_text(self.closed.astimezone(self.zone))}"
            lines.append(("live query", f"batch {self.live.batch:,}; closed {closed}"))
        if self.to is not None:
            lines.append(("to", self.to))
        if len(self.slices) > 1:
            lines.append(("slices", f"{len(self.slices):,}"))
        lines += [("note", note) for note in self.notes()]
        return "\n".join(f"{name:<11}{text}" for name, text in lines)

    def to_json(self) -> dict[str, Any]:
        """Return the field `plan` of what the command prints with --json."""
        live = self.live
        return {
            "pipeline": self.pipeline.name,
            "asked": _span_json(self.request.asked),
            "computed": _span_json(self.computed),
            "slices": len(self.slices),
            "archive": {"table": self.table, "version": self.version, **asdict(self.size)},
            "reads": asdict(self.reads),
            "live": live and {"batch": live.batch, "watermark": live.watermark and live.watermark.isoformat()},
            "notes": self.notes(),
        }

    def _computed(self) -> str:
        if isinstance(self.pipeline.results, Sessions):
            return "every session that touches it, whole"
        if self.computed == self.request.asked:
            return "the same"
        return f"{self.computed.text(self.zone)}, to have whole windows"

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline whose results are computed."""
        return self.request.pipeline

    @property
    def zone(self) -> ZoneInfo:
        """The zone in which times are shown."""
        return ZoneInfo(self.pipeline.timezone)

    @property
    def has_open_results(self) -> bool:
        """Whether later events can change results: not those of single events, which are final at once."""
        results = results_of(self.pipeline)
        return not isinstance(results, Events) or bool(results.reach_time)

    @property
    def closed(self) -> datetime | None:
        """The watermark up to which the live query has closed its results; None without a live query."""
        return self.live.watermark if self.live else None

    def closed_until(self, *, judge_open: bool) -> datetime | None:
        """Return the time after which results are skipped because they are still open; None to skip none.

        Args:
            judge_open: Whether to include open results.
        """
        if judge_open or self.live is None or not self.has_open_results:
            return None
        return self.closed or _NEVER

    def notes(self) -> list[str]:
        """Return remarks for the user."""
        notes = []
        if self.live is None:
            notes.append("No live query of this pipeline has run here, so it was not checked that the span is closed.")
        if not self.decoded_alike:
            notes.append("The archive decodes records in another way: rejected records are decoded again.")
        return notes


def _span_json(span: Span) -> dict[str, str]:
    return {"start": span.start.isoformat(), "end": span.end.isoformat()}


def results_of(pipeline: Pipeline) -> Recomputable:
    """Return how a pipeline's results relate to event time; ReprocessError when they cannot be computed again."""
    match pipeline.results:
        case Windows() | Sessions() | Events() as results:
            return results
        case ArrivalDependent(why):
            raise ReprocessError(f"The pipeline {pipeline.name} cannot be reprocessed: {why}.")
        case None if isinstance(pipeline.sink, ArchiveSink):
            raise ReprocessError(
                f"The pipeline {pipeline.name} cannot be reprocessed: it writes the archive from which the results of "
                "other pipelines are recomputed. Name one of those pipelines. To check whether the archive is "
                "complete: respool archive verify."
            )
        case None:
            raise ReprocessError(
                f"The pipeline {pipeline.name} does not declare how its results relate to event time, so they cannot "
                'be recomputed for a span. Declare windows such as results=Windows("10 minutes"), sessions with '
                "results=Sessions(…), or results of single events with results=Events(…)."
            )


def make_plan(request: ReprocessRequest, reader: ArchiveReader, live: LiveQuery | None, now: datetime) -> ReprocessPlan:
    """Return the plan of a request; raise ReprocessError or PipelineError when it is refused."""
    pipeline, asked = request.pipeline, request.asked
    results = results_of(pipeline)
    mine = DecoderIdentity.of(decoder_of(pipeline), pipeline.timezone)
    if reader.reading is not None:
        reader.reading.check(reader.table, mine)
    if isinstance(results, Windows):
        starts = results.starts(asked)
        computed = reads = results.events(starts)
        slices, closed_by = results.slices(starts, request.slice), results.closed_by(starts)
    else:
        computed = asked
        slices, closed_by = results.slices(asked, request.slice), results.closed_by(asked)
        around = results.gap_time if isinstance(results, Sessions) else results.reach_time
        reads = Span(asked.start - around, asked.end + around)
    plan = ReprocessPlan(
        request=request,
        computed=computed,
        slices=tuple(slices),
        table=reader.table,
        version=reader.version,
        reads=reader.cost(reads),
        size=reader.size,
        live=live,
        decoded_alike=reader.reading is None or reader.reading.is_decoded_as(mine),
    )
    _refuse(plan, reader.events, closed_by, now)
    return plan


def _refuse(plan: ReprocessPlan, archived: Span | None, closed_by: datetime, now: datetime) -> None:
    zone, asked = plan.zone, plan.computed
    text = asked.text(zone)
    if plan.request.asked.start >= now:
        raise ReprocessError(f"The span {text} is in the future. Give a span that has passed.")
    if archived is None:
        raise ReprocessError(f"The archive {plan.table} has no events yet. Run the pipeline that archives first.")
    if not (archived.start < asked.end and asked.start < archived.end):
        raise ReprocessError(
            f"The span {text} is outside the archive {plan.table}, whose events are from {archived.text(zone)}. "
            "Give a span within it."
        )
    if plan.request.allow_open or (plan.live is not None and not plan.has_open_results):
        return
    if plan.live is None:
        if closed_by > now:
            raise ReprocessError(
                f"The span {text} reaches into the future. Give a span that has passed, or add --allow-open."
            )
        return
    closed = plan.closed
    if closed is None or closed < closed_by:
        so_far = "nothing yet" if closed is None else f"what is before {time_text(closed.astimezone(zone))}"
        raise ReprocessError(
            f"The live query of {plan.pipeline.name} has closed {so_far}; the span {text} needs "
            f"{time_text(closed_by.astimezone(zone))}. Wait for it, give an earlier span, or add --allow-open."
        )
