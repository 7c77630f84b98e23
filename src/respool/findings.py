"""What a check of a checkpoint found, and what to do about it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

CheckStatus = Literal["ok", "note", "unchecked", "broken"]
_ORDER: tuple[CheckStatus, ...] = ("broken", "unchecked", "note")
_MOST = 100  # findings that are told of one check
_NEWER = "Use a respool made for the Spark that wrote it. Nothing was changed."
READ_REMEDY = "Grant this account read access, or use an account that has it."


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        what: What was found, with the path.
        remedy: What to do.
        status: `broken` if a restart, or a rewind to a batch that seems to be there, relies on it; `unchecked` if
            respool cannot tell; else `note`.
    """

    what: str
    remedy: str
    status: Literal["note", "unchecked", "broken"] = "broken"


@dataclass(frozen=True)
class CheckResult:
    """One thing that was checked.

    Attributes:
        name: What was checked.
        status: The worst of what was found; `ok` when nothing was.
        findings: What was found.
    """

    name: str
    status: CheckStatus
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the result as `--json` prints it."""
        return {"name": self.name, "status": self.status, "found": [asdict(finding) for finding in self.findings]}


def check(name: str, findings: Iterable[Finding]) -> CheckResult:
    """Return a check of what was found."""
    kept = sorted(findings, key=lambda finding: _ORDER.index(finding.status))
    status: CheckStatus = kept[0].status if kept else "ok"
    if len(kept) > _MOST:
        more = Finding(f"{len(kept) - _MOST:,} more findings of this kind.", "Fix these first.", kept[_MOST].status)
        kept[_MOST:] = [more]
    return CheckResult(name, status, tuple(kept))


def note(what: str, remedy: str) -> Finding:
    """Return a finding that keeps nothing from working."""
    return Finding(what, remedy, "note")


def unchecked(what: str, remedy: str = _NEWER) -> Finding:
    """Return the finding of something that respool does not know: it may be whole, and nothing is to be deleted."""
    return Finding(what, remedy, "unchecked")
