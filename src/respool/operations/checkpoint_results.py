"""What the methods of `Checkpoint` return."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from respool.checkpoint.journal.apply import Leftover
from respool.checkpoint.journal.steps import Journal
from respool.checkpoint.ownership import ForkRecord, RunRecord
from respool.checkpoint.summary import CheckpointSummary
from respool.findings import CheckResult
from respool.text import plural

if TYPE_CHECKING:
    from respool.savepoint.manifest import SavepointManifest


@dataclass(frozen=True)
class CheckpointStatus:
    """A checkpoint with what respool records about it, as `respool checkpoint show` prints it.

    Attributes:
        summary: Batches, offsets, state, and which batches can be rewound to.
        run: The pipeline that respool runs on it; None when another program runs the query.
        holder: The process that holds it now; None when none is known.
        history: What respool changed, the oldest first.
        pending: The change that was interrupted; None for none.
        fork: Where it was forked from; None when it is not a fork.
        savepoints: Its savepoints, the oldest first.
        leftovers: Files that interrupted commands left.

    Example:
        >>> checkpoint.status()
        CheckpointStatus(..., next_batch=14)
    """

    summary: CheckpointSummary
    run: RunRecord | None
    holder: str | None
    history: tuple[Journal, ...]
    pending: Journal | None
    fork: ForkRecord | None
    savepoints: "tuple[SavepointManifest, ...]"
    leftovers: tuple[Leftover, ...]

    def __repr__(self) -> str:
        """Return the status in one line."""
        return f"CheckpointStatus({self.summary.root!r}, next_batch={self.summary.next_batch})"


@dataclass(frozen=True)
class CheckpointReport:
    """The result of `Checkpoint.verify`.

    Attributes:
        location: The checkpoint's folder or URL.
        checks: What was checked, each with its findings.

    Example:
        >>> report = checkpoint.verify(deep=False)
        >>> report.ok, [check.name for check in report.broken]
        (True, [])
    """

    location: str
    checks: tuple[CheckResult, ...]

    def __repr__(self) -> str:
        """Return the result in one line."""
        return f"CheckpointReport({self.location!r}, ok={self.ok}, complete={self.complete})"

    @property
    def broken(self) -> tuple[CheckResult, ...]:
        """The checks that found something broken."""
        return tuple(check for check in self.checks if check.status == "broken")

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken

    @property
    def complete(self) -> bool:
        """Whether everything could be checked."""
        return all(finding.status != "unchecked" for check in self.checks for finding in check.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the result as `--json` prints it."""
        whole = {"checkpoint": self.location, "ok": self.ok, "complete": self.complete}
        return {**whole, "checks": [check.to_json() for check in self.checks]}


@dataclass(frozen=True)
class PurgeResult:
    """What `Checkpoint.purge` deleted, or would delete.

    Attributes:
        changes: The changes whose moved files were deleted; they cannot be undone any more.
        leftovers: Files that interrupted commands had left.

    Example:
        >>> checkpoint.purge(dry_run=True)
        PurgeResult(0 changes, 0 leftovers)
    """

    changes: tuple[Journal, ...]
    leftovers: tuple[Leftover, ...]

    def __repr__(self) -> str:
        """Return the result in one line."""
        return f"PurgeResult({plural(len(self.changes), 'change')}, {plural(len(self.leftovers), 'leftover')})"
