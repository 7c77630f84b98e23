"""The open sessions of many visits, updated by whole columns: the `gap` rule of `visits.session_rules`, made fast.

What one call does to a visit is what `session_rules.update` says; the tests hold the one against the other. A visit's
sessions are a chain of slots, the earliest first, and a dictionary knows the first slot of every visit. So an update
costs what it touches, however many sessions are open; only the look for those that end reads one column of all.

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

_FREE = np.iinfo(np.int64).max  # the end of what is in no session: later than any limit
_SMALLEST = 1024


@dataclass(frozen=True)
class SessionColumns:
    """Sessions of visits, column by column: those of a visit in a row, the earliest first.

    Attributes:
        visits: The visits, each once.
        counts: How many sessions each of them has.
        start: The times of the first events.
        end: The times of the last events.
        pages: How many events there are.
    """

    visits: Sequence[str]
    counts: Numbers
    start: Numbers
    end: Numbers
    pages: Numbers


@dataclass(frozen=True)
class SessionResults:
    """What is told of sessions, column by column, as `session_rules.Result` says it."""

    visits: Texts
    start: Numbers
    end: Numbers
    pages: Numbers
    is_finished: Flags
    withdrawn: Flags


@dataclass(frozen=True)
class Change:
    """What an update did to the table, to do it again elsewhere.

    Attributes:
        rows: The open sessions of the visits that changed, all of them; a visit may have none left.
        ended: What is open then and ended at this time or before was closed; None when nothing was.
    """

    rows: SessionColumns
    ended: int | None


class SessionTable:
    """Open sessions by visit."""

    def __init__(self) -> None:
        """Make an empty table."""
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

    def apply(self, change: Change) -> None:
        """Do again what an update did."""
        rows = change.rows
        _, slots = self._chains(self._firsts(rows.visits))
        self._replace(rows, slots)
        if change.ended is not None:
            self._end_until(change.ended)

    def update(
        self, visits: Sequence[str], owners: Numbers, times: Numbers, watermark: int | None, gap: int
    ) -> tuple[SessionResults, Change]:
        """Let the events of a batch reach the open sessions, then close what the watermark has passed.

        Args:
            visits: The visits with events, each once.
            owners: The visit of every event, as its place among the visits.
            times: The times of the events, in any order.
            watermark: Events at or before it will not come any more after this update; None for no watermark yet.
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
        gone = _Part(before, self._start[slots], self._end[slots], joined.replaced)
        still = ~is_finished
        rows = SessionColumns(
            visits,
            np.bincount(joined.owner[still], minlength=len(visits)),
            *(joined.start[still], joined.end[still], joined.pages[still]),
        )
        self._replace(rows, slots)
        ended = self._end_until(limit) if limit is not None else _nothing()
        told = _told(names, joined, is_finished, gone)
        return _both(told, ended), Change(rows, limit)

    def _firsts(self, visits: Sequence[str]) -> Numbers:
        return np.fromiter(map(self._first.get, visits, repeat(-1)), np.int64, len(visits))

    def _chains(self, firsts: Numbers) -> tuple[Numbers, Numbers]:
        """Return the slots that begin at each of `firsts` (-1 for none), and the place of their first among these."""
        owners = np.flatnonzero(firsts >= 0)
        slots = firsts[owners]
        found = [(owners, slots)]
        while len(slots):
            following = self._next[slots]
            more = following >= 0
            owners, slots = owners[more], following[more]
            found.append((owners, slots))
        owners = np.concatenate([one for one, _ in found])
        slots = np.concatenate([one for _, one in found])
        if len(found) > 2:  # some have more than one
            order = np.argsort(owners, kind="stable")
            owners, slots = owners[order], slots[order]
        return owners, slots

    def _replace(self, rows: SessionColumns, old: Numbers) -> None:
        """Put `rows` in the place of all that their visits had, which is in the slots `old`."""
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
        """Return `count` slots, the old ones among them; those that are too many become free."""
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
        none = np.zeros(size, dtype=np.int64)
        self._start, self._pages, self._next = (
            np.concatenate([one, none]) for one in (self._start, self._pages, self._next)
        )
        self._end = np.concatenate([self._end, np.full(size, _FREE, dtype=np.int64)])
        self._free = [*range(2 * size - 1, size - 1, -1), *self._free]

    def _release(self, slots: Numbers) -> None:
        self._end[slots] = _FREE
        self._visit[slots] = None
        self._free.extend(slots.tolist())

    def _end_until(self, limit: int) -> SessionResults:
        """Take out the sessions that ended at `limit` or before, and tell that they are finished."""
        slots = np.flatnonzero(self._end <= limit)
        if not len(slots):
            return _nothing()
        slots = slots[np.argsort(self._start[slots], kind="stable")]  # a visit's earliest is first, as in its chain
        visits = self._visit[slots]
        for visit, following in zip(visits.tolist(), self._next[slots].tolist(), strict=True):
            if following < 0:
                del self._first[visit]
            else:
                self._first[visit] = following
        told = SessionResults(
            visits,
            *(self._start[slots], self._end[slots], self._pages[slots]),
            is_finished=np.ones(len(slots), dtype=np.bool_),
            withdrawn=np.zeros(len(slots), dtype=np.bool_),
        )
        self._release(slots)
        return told


@dataclass(frozen=True)
class _Part:
    """Sessions as they were told before, and which of them are there no more."""

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
    replaced: Flags  # of the sessions before the batch: no session begins where they began


def _join(owner: Numbers, start: Numbers, end: Numbers, pages: Numbers, old: int, gap: int) -> _Joined:
    """Join what is at most `gap` apart in every visit; the first `old` parts are sessions, all others are events."""
    count = len(owner)
    if not count:
        none, no = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        return _Joined(none, none, none, none, no, no)
    order = np.lexsort((start, owner))
    owner, start, pages = owner[order], start[order], pages[order]
    reached = _reached(owner, end[order])
    begins = np.ones(count, dtype=np.bool_)
    begins[1:] = (owner[1:] != owner[:-1]) | (start[1:] - reached[:-1] > gap)
    firsts = np.flatnonzero(begins)
    sizes = np.diff(firsts, append=count)
    is_old = order < old
    olds = np.add.reduceat(is_old.astype(np.int64), firsts)
    number = np.cumsum(begins) - 1
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
    # A number that grows from owner to owner and, within one, with the rank: its maximum so far never looks back.
    highest = np.maximum.accumulate(owner * len(end) + rank)
    found: Numbers = end[by_end[highest % len(end)]]
    return found


def _told(names: Texts, joined: _Joined, is_finished: Flags, before: _Part) -> SessionResults:
    """Return what is withdrawn, then what has changed or is finished."""
    gone = before.replaced
    news = joined.changed | is_finished
    withdrawn = int(gone.sum())
    rest = int(news.sum())
    return SessionResults(
        visits=np.concatenate([names[before.owner[gone]], names[joined.owner[news]]]),
        start=np.concatenate([before.start[gone], joined.start[news]]),
        end=np.concatenate([before.end[gone], joined.end[news]]),
        pages=np.concatenate([np.zeros(withdrawn, dtype=np.int64), joined.pages[news]]),
        is_finished=np.concatenate([np.zeros(withdrawn, dtype=np.bool_), is_finished[news]]),
        withdrawn=np.concatenate([np.ones(withdrawn, dtype=np.bool_), np.zeros(rest, dtype=np.bool_)]),
    )


def _texts(values: Sequence[str]) -> Texts:
    found: Texts = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _nothing() -> SessionResults:
    none, no = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
    return SessionResults(np.empty(0, dtype=object), none, none, none, no, no)


def _both(one: SessionResults, other: SessionResults) -> SessionResults:
    if not len(other.start):
        return one

    def joined(name: str) -> Any:
        return np.concatenate([getattr(one, name), getattr(other, name)])

    return SessionResults(*(joined(name) for name in ("visits", "start", "end", "pages", "is_finished", "withdrawn")))
