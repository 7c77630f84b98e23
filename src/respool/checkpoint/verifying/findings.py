"""What a check of a checkpoint found, and what to do about it."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "unchecked", "broken"]
_ORDER: tuple[Status, ...] = ("broken", "unchecked", "note")
_MOST = 100  # findings that are told of one check
_NEWER = "Use a respool made for the Spark that wrote it. Nothing was changed."
_READ = "Let this account read it, or use one that may."


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
class Check:
    """One thing that was checked.

    Attributes:
        name: What was checked.
        status: The worst of what was found; `ok` when nothing was.
        found: What was found.
    """

    name: str
    status: Status
    found: tuple[Finding, ...] = ()


def check(name: str, found: Iterable[Finding]) -> Check:
    """Return a check of what was found."""
    kept = sorted(found, key=lambda one: _ORDER.index(one.status))
    status: Status = kept[0].status if kept else "ok"
    if len(kept) > _MOST:
        more = Finding(f"{len(kept) - _MOST:,} more findings of this kind.", "Mend these first.", kept[_MOST].status)
        kept[_MOST:] = [more]
    return Check(name, status, tuple(kept))


def note(what: str, remedy: str) -> Finding:
    """Return a finding that keeps nothing from working."""
    return Finding(what, remedy, "note")


def unchecked(what: str, remedy: str = _NEWER) -> Finding:
    """Return the finding of something that respool does not know: it may be whole, and nothing is to be deleted."""
    return Finding(what, remedy, "unchecked")


def unreadable(path: str, why: str) -> Finding:
    """Return the finding of a file or folder that may not be read."""
    return Finding(f"{path} cannot be read: {why}.", _READ)


def is_denied(error: BaseException) -> bool:
    """Return whether a file could not be read for want of a permission."""
    return isinstance(error, PermissionError) or isinstance(error.__cause__, PermissionError)


def rewind(root: str, batch: int, *flags: str) -> str:
    """Return the command that rewinds a checkpoint."""
    return " ".join(["respool checkpoint rewind", shlex.quote(root), f"--to-batch {batch}", *flags])


def few(paths: Sequence[str], most: int = 3) -> str:
    """Return the first of many paths, and how many more there are."""
    more = len(paths) - most
    return ", ".join(paths[:most]) + (f" and {more:,} more" if more > 0 else "")


def numbers(first: int, last: int) -> str:
    """Return a run of numbers as text."""
    return str(first) if first == last else f"{first} to {last}"
