"""The events of a run, in the order in which they happened."""

import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

_ALIKE = 5  # violations of the same text that are kept


@dataclass(frozen=True)
class Entry:
    """Something that happened during a run.

    Attributes:
        at: Seconds since the start of the run, by a clock that never jumps.
        what: The kind of a fault, or `started`, `ended`, `violation` and the like.
        target: What it happened to.
        outcome: For a fault: `done`, `refused`, `skipped` or `failed`.
        text: The details.
        took: How many seconds it took.
        number: The fault's position in the schedule; None for other entries.
    """

    at: float
    what: str
    target: str = ""
    outcome: str = ""
    text: str = ""
    took: float = 0.0
    number: int | None = None


@dataclass
class Timeline:
    """All entries of a run; threads may add to it."""

    entries: list[Entry] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    show: Any = None
    _begin: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return time.monotonic() - self._begin

    def add(self, what: str, target: str = "", text: str = "", **facts: Any) -> None:
        """Add an entry, now unless `at` names another moment."""
        entry = Entry(**{"at": round(self.now(), 2), "what": what, "target": target, "text": text, **facts})
        with self._lock:
            self.entries.append(entry)
        if self.show is not None:
            self.show(line(entry))

    def violate(self, text: str) -> None:
        """Add a violation of a guarantee."""
        with self._lock:
            alike = sum(known.partition(";")[0] == text.partition(";")[0] for known in self.violations)
            if alike < _ALIKE:
                self.violations.append(text)
        if alike < _ALIKE:
            self.add("violation", text=text)

    def as_json(self) -> list[dict[str, Any]]:
        """Return all entries as JSON."""
        return [asdict(entry) for entry in self.entries]


def line(entry: Entry) -> str:
    """Return an entry as a line of text."""
    parts = [f"{entry.at:8.1f} s", f"{entry.what:<13}", entry.target, entry.outcome]
    if entry.took >= 0.1:
        parts.append(f"({entry.took:.1f} s)")
    return "  ".join(part for part in (*parts, entry.text) if part)
