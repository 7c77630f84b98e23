"""The open sessions of many visits, updated by whole columns: a fast implementation of the `gap` rule in `rules`.

The effect on each visit is that of `rules.update`; the tests compare the two. A visit's sessions are a chain of slots,
the earliest first, and a dictionary holds the first slot of every visit. So the cost of an update depends on what it
changes, not on how many sessions are open; only the search for ended sessions reads one column of all.

Every time is a whole number of microseconds since 1970 in UTC.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

_FREE = np.iinfo(np.int64).max  # the end time of a free slot: later than any limit
_SMALLEST = 1024


@dataclass(frozen=True)
class SessionColumns:
    """Sessions of visits, column by column: those of a visit are consecutive, the earliest first.

    Attributes:
        visits: The visits, each once.
        counts: The number of sessions of each visit.
        start: The times of the first events.
        end: The times of the last events.
        pages: The numbers of events.
    """

    visits: Sequence[str]
    counts: Numbers
    start: Numbers
    end: Numbers
    pages: Numbers


@dataclass(frozen=True)
class SessionResults:
    """Published results of sessions, column by column; see `rules.Result`."""

    visits: Texts
    start: Numbers
    end: Numbers
    pages: Numbers
    is_finished: Flags
    withdrawn: Flags


@dataclass(frozen=True)
class SessionChange:
    """The change of an update, to apply it to another copy of the table.

    Attributes:
        rows: All open sessions of the changed visits; a visit may have none left.
        ended: Sessions that ended at this time or before were closed; None when none were.
    """

    rows: SessionColumns
    ended: int | None


class SessionTable:
    """Open sessions by visit."""

    def __init__(self) -> None:
        """Create an empty table."""
        self._first: dict[str, int] = {}  # the slot of a visit's earliest session
        self._visit: Texts = np.empty(_SMALLEST, dtype=object)
        self._start, self._end, self._pages, self._next = (np.zeros(_SMALLEST, dtype=np.int64) for _ in range(4))
        self._end[:] = _FREE
        self._free: list[int] = list(range(_SMALLEST - 1, -1, -1))

    def __len__(self) -> int:
        """Return the number of open sessions."""
        return len(self._visit) - len(self._free)

    def rows(self) -> SessionColumns:
        """Return all open sessions."""
        visits = list(self._first)
        owners, slots = self._chains(np.fromiter(self._first.values(), np.int64, len(visits)))
        counts = np.bincount(owners, minlength=len(visits))
        return SessionColumns(visits, counts, self._start[slots], self._end[slots], self._pages[slots])

    def apply(self, change: SessionChange) -> None:
        """Apply the change of an update."""
        rows = change.rows
        _, slots = self._chains(self._firsts(rows.visits))
        self._replace(rows, slots)
        if change.ended is not None:
            self._end_until(change.ended)

    def update(
        self, visits: Sequence[str], owners: Numbers, times: Numbers, watermark: int | None, gap: int
    ) -> tuple[SessionResults, SessionChange]:
        """Add the events of a batch to the open sessions, then close those that the watermark has passed.

        Args:
            visits: The visits with events, each once.
            owners: The visit of every event, as its index in `visits`.
            times: The times of the events, in any order.
            watermark: No event at or before it will arrive after this update; None for no watermark yet.
            gap: The longest time between two neighbours of a session.
        """
        before, slots = self._chains(self._firsts(visits))
        joined = _join(
            np.concatenate([before, owners]),
            np.concatenate([self._start[slots], times]),
            np.concatenate([self._end[slots], times]),
            np.concatenate([self._pages[slots], np.ones(len(times), dtype=np.int64)]),
            len(slots),
            gap,
        )
        names = _texts(visits)
        limit = None if watermark is None else watermark - gap
        is_finished = np.zeros(len(joined.start), dtype=np.bool_) if limit is None else joined.end <= limit
        earlier = _EarlierSessions(before, self._start[slots], self._end[slots], joined.replaced)
        still = ~is_finished
        rows = SessionColumns(
            visits,
            np.bincount(joined.owner[still], minlength=len(visits)),
            *(joined.start[still], joined.end[still], joined.pages[still]),
        )
        self._replace(rows, slots)
        ended = self._end_until(limit) if limit is not None else _no_results()
        results = _results(names, joined, is_finished, earlier)
        return _concatenated(results, ended), SessionChange(rows, limit)

    def _firsts(self, visits: Sequence[str]) -> Numbers:
        return np.fromiter(map(self._first.get, visits, repeat(-1)), np.int64, len(visits))

    def _chains(self, firsts: Numbers) -> tuple[Numbers, Numbers]:
        """Return the slots of the chains that start at `firsts` (-1 for none), and the index of each chain."""
        owners = np.flatnonzero(firsts >= 0)
        slots = firsts[owners]
        links = [(owners, slots)]
        while len(slots):
            following = self._next[slots]
            more = following >= 0
            owners, slots = owners[more], following[more]
            links.append((owners, slots))
        owners = np.concatenate([link[0] for link in links])
        slots = np.concatenate([link[1] for link in links])
        if len(links) > 2:  # some visits have more than one session
            order = np.argsort(owners, kind="stable")
            owners, slots = owners[order], slots[order]
        return owners, slots

    def _replace(self, rows: SessionColumns, old: Numbers) -> None:
        """Replace all sessions of the visits of `rows`, which are in the slots `old`."""
        new = self._other_slots(old, len(rows.start))
        self._start[new], self._end[new], self._pages[new] = rows.start, rows.end, rows.pages
        visits = _texts(rows.visits)
        self._visit[new] = np.repeat(visits, rows.counts)
        lasts = np.cumsum(rows.counts) - 1
        has_some = rows.counts > 0
        following = np.full(len(new), -1, dtype=np.int64)
        following[:-1] = new[1:]
        following[lasts[has_some]] = -1
        self._next[new] = following
        firsts = new[(lasts - rows.counts + 1)[has_some]]
        self._first.update(zip(visits[has_some].tolist(), firsts.tolist(), strict=True))
        for visit in visits[~has_some].tolist():
            self._first.pop(visit, None)

    def _other_slots(self, old: Numbers, count: int) -> Numbers:
        """Return `count` slots, reusing the old slots; old slots in excess become free."""
        if count <= len(old):
            self._release(old[count:])
            return old[:count]
        wanted = count - len(old)
        while len(self._free) < wanted:
            self._grow()
        fresh = self._free[-wanted:]
        del self._free[-wanted:]
        return np.concatenate([old, np.array(fresh, dtype=np.int64)])

    def _grow(self) -> None:
        size = len(self._visit)
        self._visit = np.concatenate([self._visit, np.empty(size, dtype=object)])
        zeros = np.zeros(size, dtype=np.int64)
        self._start, self._pages, self._next = (
            np.concatenate([column, zeros]) for column in (self._start, self._pages, self._next)
        )
        self._end = np.concatenate([self._end, np.full(size, _FREE, dtype=np.int64)])
        self._free = [*range(2 * size - 1, size - 1, -1), *self._free]

    def _release(self, slots: Numbers) -> None:
        self._end[slots] = _FREE
        self._visit[slots] = None
        self._free.extend(slots.tolist())

    def _end_until(self, limit: int) -> SessionResults:
        """Remove the sessions that ended at `limit` or before, and return their final results."""
        slots = np.flatnonzero(self._end <= limit)
        if not len(slots):
            return _no_results()
        slots = slots[np.argsort(self._start[slots], kind="stable")]  # a visit's earliest is first, as in its chain
        visits = self._visit[slots]
        for visit, following in zip(visits.tolist(), self._next[slots].tolist(), strict=True):
            if following < 0:
                del self._first[visit]
            else:
                self._first[visit] = following
        results = SessionResults(
            visits,
            *(self._start[slots], self._end[slots], self._pages[slots]),
            is_finished=np.ones(len(slots), dtype=np.bool_),
            withdrawn=np.zeros(len(slots), dtype=np.bool_),
        )
        self._release(slots)
        return results


@dataclass(frozen=True)
class _EarlierSessions:
    """Sessions as they were before an update, and which of them no longer exist."""

    owner: Numbers
    start: Numbers
    end: Numbers
    replaced: Flags


@dataclass(frozen=True)
class _Joined:
    """Sessions after a batch, by visit and time; `changed` is false where the batch added nothing."""

    owner: Numbers
    start: Numbers
    end: Numbers
    pages: Numbers
    changed: Flags
    replaced: Flags  # of the sessions before the batch: no session starts where they started


def _join(owner: Numbers, start: Numbers, end: Numbers, pages: Numbers, old: int, gap: int) -> _Joined:
    """Join the parts of a visit that are at most `gap` apart; the first `old` parts are sessions, the others events."""
    count = len(owner)
    if not count:
        numbers, flags = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        return _Joined(numbers, numbers, numbers, numbers, flags, flags)
    order = np.lexsort((start, owner))
    owner, start, pages = owner[order], start[order], pages[order]
    reached = _reached(owner, end[order])
    starts = np.ones(count, dtype=np.bool_)
    starts[1:] = (owner[1:] != owner[:-1]) | (start[1:] - reached[:-1] > gap)
    firsts = np.flatnonzero(starts)
    sizes = np.diff(firsts, append=count)
    is_old = order < old
    olds = np.add.reduceat(is_old.astype(np.int64), firsts)
    number = np.cumsum(starts) - 1
    replaced = np.zeros(old, dtype=np.bool_)
    replaced[order[is_old]] = (start != start[firsts][number])[is_old]
    return _Joined(
        owner=owner[firsts],
        start=start[firsts],
        end=reached[firsts + sizes - 1],
        pages=np.add.reduceat(pages, firsts),
        changed=(sizes > 1) | (olds == 0),
        replaced=replaced,
    )


def _reached(owner: Numbers, end: Numbers) -> Numbers:
    """Return the latest end so far within every owner; the owners are sorted."""
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(end), dtype=np.int64)
    rank[by_end] = np.arange(len(end))
    # A number that grows from owner to owner and, within an owner, with the rank: its running maximum stays within it.
    highest = np.maximum.accumulate(owner * len(end) + rank)
    latest: Numbers = end[by_end[highest % len(end)]]
    return latest


def _results(names: Texts, joined: _Joined, is_finished: Flags, before: _EarlierSessions) -> SessionResults:
    """Return the withdrawn sessions, then those that changed or are finished."""
    gone = before.replaced
    updated = joined.changed | is_finished
    withdrawn = int(gone.sum())
    rest = int(updated.sum())
    return SessionResults(
        visits=np.concatenate([names[before.owner[gone]], names[joined.owner[updated]]]),
        start=np.concatenate([before.start[gone], joined.start[updated]]),
        end=np.concatenate([before.end[gone], joined.end[updated]]),
        pages=np.concatenate([np.zeros(withdrawn, dtype=np.int64), joined.pages[updated]]),
        is_finished=np.concatenate([np.zeros(withdrawn, dtype=np.bool_), is_finished[updated]]),
        withdrawn=np.concatenate([np.ones(withdrawn, dtype=np.bool_), np.zeros(rest, dtype=np.bool_)]),
    )


def _texts(values: Sequence[str]) -> Texts:
    texts: Texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def _no_results() -> SessionResults:
    numbers, flags = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
    return SessionResults(np.empty(0, dtype=object), numbers, numbers, numbers, flags, flags)


def _concatenated(first: SessionResults, second: SessionResults) -> SessionResults:
    if not len(second.start):
        return first

    def joined(name: str) -> Any:
        return np.concatenate([getattr(first, name), getattr(second, name)])

    return SessionResults(*(joined(name) for name in ("visits", "start", "end", "pages", "is_finished", "withdrawn")))
