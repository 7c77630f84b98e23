"""The report of a run: as text, as JSON, and for docs/reliability.md."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.checks import Figures
from chaos.schedule import KINDS
from chaos.timeline import Entry, Timeline, line

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
_LINES = 80  # of the timeline that are printed


@dataclass(frozen=True)
class Report:
    """A run that has ended.

    Attributes:
        seed: Its seed.
        minutes: How long events should be produced.
        arguments: The arguments that replay it.
        timeline: What happened.
        figures: What was counted.
        seconds: How long events were produced.
        starts: How many times `respool run` was started.
        unforced: How many of these processes ended without a fault aimed at them.
        at: The date.
        machine: The number of cores.
    """

    seed: int
    minutes: float
    arguments: str
    timeline: Timeline
    figures: Figures
    seconds: float
    starts: int
    unforced: int
    at: str
    machine: str

    @property
    def faults(self) -> list[Entry]:
        """The injected faults."""
        return [entry for entry in self.timeline.entries if entry.number is not None]

    @property
    def replay(self) -> str:
        """The command that runs the same schedule again."""
        return f'make chaos ARGS="{self.arguments}"'

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "seed": self.seed,
            "minutes": self.minutes,
            "at": self.at,
            "machine": self.machine,
            "replay": self.replay,
            "ok": not self.timeline.violations,
            "violations": self.timeline.violations,
            "faults": {kind: dict(outcomes) for kind, outcomes in by_kind(self.faults).items()},
            "figures": asdict(self.figures),
            "events_per_second": round(self.rate, 1),
            "starts": self.starts,
            "ended_on_their_own": self.unforced,
            "timeline": self.timeline.as_json(),
        }

    @property
    def rate(self) -> float:
        """The records produced per second, including outages."""
        return self.figures.records / self.seconds if self.seconds else 0.0

    def text(self) -> str:
        """Return the report as text."""
        entries = self.timeline.entries
        half = _LINES // 2
        lines = [line(entry) for entry in entries]
        if len(lines) > _LINES:
            lines = [*lines[:half], f"  … {len(lines) - 2 * half:,} more entries …", *lines[-half:]]
        parts = ["", "Timeline", *lines, "", *self._counts()]
        if self.timeline.violations:
            parts += ["", f"{len(self.timeline.violations)} violations:"]
            parts += [f"✗ {violation}" for violation in self.timeline.violations[:30]]
            parts += [f"Replay: {self.replay}"]
        else:
            parts += ["", "No violation."]
        return "\n".join(parts)

    def _counts(self) -> list[str]:
        figures = self.figures
        lines = [f"Seed {self.seed}: {len(self.faults)} faults"]
        for kind, outcomes in by_kind(self.faults).items():
            lines.append(f"  {kind:<13} " + ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())))
        withdrawn = (
            f"; {figures.stale:,} early results of rewound batches withdrawn by a reprocess" if figures.stale else ""
        )
        lines += [
            f"{figures.records:,} records in {self.seconds:.0f} s, {self.rate:,.0f} a second",
            f"{figures.archived:,} records archived",
            f"{figures.windows:,} windows and {figures.sessions:,} sessions, "
            f"from {figures.result_records:,} result records{withdrawn}",
            f"{figures.checkpoints} checkpoints, {figures.savepoints} savepoints and {figures.forks} forks verified",
            f"{self.starts} starts of `respool run`; {self.unforced} ended without a fault aimed at them",
        ]
        return lines


def by_kind(faults: list[Entry]) -> dict[str, Counter[str]]:
    """Return the number of faults by kind and outcome."""
    counts = {kind: Counter(fault.outcome for fault in faults if fault.what == kind) for kind in KINDS}
    return {kind: outcomes for kind, outcomes in counts.items() if outcomes}


def markdown(report: Report) -> str:
    """Return the figures as they stand in docs/reliability.md."""
    figures = report.figures
    rows = [
        ("seed", str(report.seed)),
        ("date, machine", f"{report.at[:10]}, {report.machine}"),
        ("time of production", f"{report.seconds / 60:.0f} minutes"),
        ("records produced", f"{figures.records:,}, {report.rate:,.0f} a second with all outages"),
        ("faults injected", f"{len(report.faults):,}"),
        ("starts of `respool run`", f"{report.starts:,}"),
        ("records archived exactly once", f"{figures.archived:,} of {figures.records:,}"),
        ("windows correct", f"{figures.windows:,}"),
        ("sessions correct", f"{figures.sessions:,}"),
        ("early results of rewound batches, withdrawn by `reprocess`", f"{figures.stale:,}"),
        ("records that do not decode, all kept", f"{figures.rejected:,}"),
        ("checkpoints, savepoints, forks verified", f"{figures.checkpoints}, {figures.savepoints}, {figures.forks}"),
        ("violations", str(len(report.timeline.violations))),
    ]
    table = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    kinds = ["| fault | injected | of these refused or skipped |", "|---|---|---|"]
    for kind, outcomes in by_kind(report.faults).items():
        kinds.append(f"| `{kind}` | {outcomes.total()} | {outcomes.total() - outcomes['done']} |")
    return "\n".join([*table, "", *kinds])


def publish(report: Report, page: Path) -> None:
    """Write the figures into a page, between its markers."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no {BEGIN} … {END}")
    page.write_text(f"{before}{BEGIN}\n\n{markdown(report)}\n\n{END}{after}", encoding="utf-8")
