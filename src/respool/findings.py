"""The findings of checks, each with its remedy."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from respool.text import plural

CheckStatus = Literal["ok", "note", "unchecked", "broken"]
_ORDER: tuple[CheckStatus, ...] = ("broken", "unchecked", "note")
_MOST = 100  # findings that are reported for one check
_NEWER = "Use a respool made for the Spark that wrote it. Nothing was changed."
READ_REMEDY = "Grant this account read access, or use an account that has it."


@dataclass(frozen=True)
class Finding:
    """A problem found by a check.

    Attributes:
        what: What was found, with the path.
        remedy: What to do.
        status: `broken` if a restart, or a rewind to a kept batch, relies on it; `unchecked` if respool cannot check
            it; else `note`.
    """

    what: str
    remedy: str
    status: Literal["note", "unchecked", "broken"] = "broken"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    Attributes:
        name: What was checked.
        status: The most severe status of its findings; `ok` without findings.
        findings: What was found.
    """

    name: str
    status: CheckStatus
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the result as `--json` prints it."""
        return {"name": self.name, "status": self.status, "found": [asdict(finding) for finding in self.findings]}


def check(name: str, findings: Iterable[Finding]) -> CheckResult:
    """Return the result of a check with its findings, the most severe first."""
    kept = sorted(findings, key=lambda finding: _ORDER.index(finding.status))
    status: CheckStatus = kept[0].status if kept else "ok"
    if len(kept) > _MOST:
        more = Finding(
            f"{plural(len(kept) - _MOST, 'more finding')} of this kind.", "Fix these first.", kept[_MOST].status
        )
        kept[_MOST:] = [more]
    return CheckResult(name, status, tuple(kept))


def note(what: str, remedy: str) -> Finding:
    """Return a finding that is harmless."""
    return Finding(what, remedy, "note")


def unchecked(what: str, remedy: str = _NEWER) -> Finding:
    """Return a finding about something that respool does not support: it may be intact, so do not delete it."""
    return Finding(what, remedy, "unchecked")


def unreadable(path: str, why: str) -> Finding:
    """Return the finding about a file or folder that this account cannot read."""
    return Finding(f"{path} cannot be read: {why}.", READ_REMEDY)
