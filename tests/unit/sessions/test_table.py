"""Tables of open sessions against the pure rules, and their log in a state: kept tables, rewinds, packed events."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.sessions import log as log_module
from respool.sessions import rules
from respool.sessions.log import BucketHead, KeptTables, SessionLog, decode, encode, replay
from respool.sessions.packing import bucket_keys, pack, unpack
from respool.sessions.table import SessionChange, SessionColumns, SessionResults, SessionTable

GAP = 5
VISITS = "abcdef"
Event = tuple[str, int]
Open = dict[str, tuple[rules.Session, ...]]


def columns(events: Sequence[Event]) -> tuple[list[str], Any, Any]:
    visits = list(dict.fromkeys(visit for visit, _ in events))
    owners = np.array([visits.index(visit) for visit, _ in events], dtype=np.int64)
    return visits, owners, np.array([time for _, time in events], dtype=np.int64)


def by_the_rules(before: Open, events: Sequence[Event], watermark: int | None) -> tuple[Open, list[tuple[Any, ...]]]:
    after: Open = {}
    rows = []
    for visit in {*before, *(visit for visit, _ in events)}:
        times = [time for owner, time in events if owner == visit]
        outcome = rules.update(before.get(visit, ()), times, watermark, GAP)
        if outcome.open:
            after[visit] = outcome.open
        for result in outcome.results:
            session = result.session
            rows.append((visit, session.start, session.end, session.pages, result.is_finished, result.withdrawn))
    return after, sorted(rows)


def results(given: SessionResults) -> list[tuple[Any, ...]]:
    parts = (given.visits, given.start, given.end, given.pages, given.is_finished, given.withdrawn)
    return sorted(zip(*(part.tolist() for part in parts), strict=True))


def opened(rows: SessionColumns) -> Open:
    sessions = iter([rules.Session(*row) for row in zip(rows.start, rows.end, rows.pages, strict=True)])
    return {
        visit: tuple(next(sessions) for _ in range(count))
        for visit, count in zip(rows.visits, rows.counts.tolist(), strict=True)
    }


batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(VISITS), st.integers(-3, 30)), max_size=12),
        st.integers(0, 8),  # how far the watermark goes
    ),
    max_size=8,
)


def in_time(given_batches: Any) -> Iterator[tuple[list[Event], int | None]]:
    """Yield batches and their watermarks; no event is late by the watermark of the batch before."""
    before, now = None, None
    for events, step in given_batches:
        yield [(visit, time) for visit, time in events if before is None or time > before], now
        before = now
        now = step if now is None else now + step


@given(batches)
def test_a_table_follows_the_rules_and_its_copy_follows_the_table(given_batches: Any) -> None:
    table, copy, expected = SessionTable(), SessionTable(), cast(Open, {})
    for events, watermark in in_time(given_batches):
        given, change = table.update(*columns(events), watermark, GAP)
        expected, said = by_the_rules(expected, events, watermark)
        assert results(given) == said
        copy.apply(decode(encode(change)))
        for each in (table, copy):
            assert opened(each.rows()) == expected
            assert len(each) == sum(map(len, expected.values()))


def test_a_table_grows_beyond_its_initial_size_and_shrinks() -> None:
    table = SessionTable()
    visits = [f"visit {number}" for number in range(5000)]
    owners = np.arange(5000)
    table.update(visits, owners, owners * 2, None, GAP)
    given, _ = table.update(visits[::2], owners[:2500], owners[::2] * 2 + 1, None, GAP)
    assert len(table) == 5000
    assert set(given.pages.tolist()) == {2}
    given, change = table.update([], owners[:0], owners[:0], 10_000 + GAP, GAP)
    assert len(table) == len(opened(table.rows())) == 0
    assert len(given.start) == 5000
    assert given.is_finished.all()
    assert change.ended == 10_000


class Map:
    """A map of the state, as a processor sees it."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}

    def getValue(self, key: Any) -> Any:
        return self.values.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self.values[key] = value

    def removeKey(self, key: Any) -> None:
        del self.values[key]


class Handle:
    """The state of a bucket, and what it was after every update."""

    def __init__(self) -> None:
        self.map = Map()

    def getMapState(self, name: str, key: str, value: str) -> Map:
        return self.map


def bucket(handle: Handle, kept: KeptTables, buckets: int = 4) -> SessionLog:
    return SessionLog(cast(Any, handle), buckets, kept)


def update(log: SessionLog, events: Sequence[Event], watermark: int | None) -> list[tuple[Any, ...]]:
    head = log.head() or BucketHead(4)
    table = log.load(head)
    given, change = table.update(*columns(events), watermark, GAP)
    log.append(head, table, change, given, watermark or 0)
    return results(given)


def stored(handle: Handle) -> Open:
    return opened(replay((*key, value[0]) for key, value in handle.map.values.items()))


@settings(max_examples=200)
@given(
    batches, st.lists(st.sampled_from(("one worker", "another", "none", "failed", "rewound")), min_size=8, max_size=8)
)
def test_a_bucket_is_right_whichever_worker_has_it(given_batches: Any, luck: list[str]) -> None:
    workers = {"one worker": KeptTables(), "another": KeptTables()}
    handle, expected = Handle(), cast(Open, {})
    for (events, watermark), chance in zip(in_time(given_batches), luck, strict=False):
        kept = workers.get(chance, KeptTables())
        if chance in ("failed", "rewound"):  # the update is done, and the state is as if it were not
            kept = workers["one worker"]
            before = dict(handle.map.values)
            update(bucket(handle, kept), [*events, ("f", 29)], watermark)
            handle.map.values = before
        said = update(bucket(handle, kept), events, watermark)
        expected, wanted = by_the_rules(expected, events, watermark)
        assert said == wanted
        assert stored(handle) == expected


def test_an_update_writes_what_it_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, kept = Handle(), KeptTables()
    many = [(f"visit {number}", 100) for number in range(2000)]
    update(bucket(handle, kept), many, None)
    whole = len(handle.map.values[1, True][0])
    for number in range(2, 60):
        update(bucket(handle, kept), [("visit 7", 100 + number)], None)
        assert len(handle.map.values[number, False][0]) < whole / 20
    for number in range(60, 80):  # now and then the table is written whole, and the changes before it go
        update(bucket(handle, kept), [("visit 7", 200 + number)], None)
    numbers = sorted(handle.map.values)
    assert [number for number, is_whole in numbers if is_whole] == [66]
    assert numbers[1][0] == 66 - 8 + 1
    decoded: list[bytes] = []

    def watched(content: bytes) -> SessionChange:
        decoded.append(content)
        return decode(content)

    monkeypatch.setattr(log_module, "decode", watched)
    update(bucket(handle, kept), [("visit 7", 300)], None)
    assert decoded == []  # the worker has the table
    update(bucket(handle, KeptTables()), [("visit 7", 301)], None)
    assert len(decoded) == 1 + 80 - 66
    decoded.clear()
    update(bucket(handle, kept), [("visit 7", 302)], None)
    assert len(decoded) == 1  # the one change that another worker made


def test_a_worker_keeps_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_MOST_SESSIONS", 10)
    kept, tables = KeptTables(), [SessionTable() for _ in range(3)]
    for token, table in enumerate(tables):
        table.update(*columns([(f"{number}", 0) for number in range(4)]), None, GAP)
        kept.keep(token, table)
    assert kept.take(0) is None
    assert kept.take(1) is tables[1]


def test_another_number_of_buckets_is_refused() -> None:
    handle = Handle()
    update(bucket(handle, KeptTables()), [("a", 1)], None)
    with pytest.raises(ValueError, match=r"4 buckets, the pipeline 8.* --set buckets=4"):
        bucket(handle, KeptTables(), buckets=8).head()


def test_a_change_without_rows_keeps_the_time() -> None:
    none = np.zeros(0, dtype=np.int64)
    change = decode(encode(SessionChange(SessionColumns([], none, none, none, none), -7)))
    assert (change.ended, list(change.rows.visits)) == (-7, [])


events_of_tasks = st.lists(
    st.lists(st.tuples(st.text(max_size=3), st.integers(-(2**62), 2**62)), max_size=20), min_size=1, max_size=4
)


@given(events_of_tasks, st.integers(1, 5))
def test_packed_events_are_unpacked_unchanged(tasks: list[list[Event]], buckets: int) -> None:
    keys = bucket_keys(buckets)
    packed: dict[int, list[bytes]] = {key: [] for key in keys}
    seen: list[int] = []
    for events in tasks:
        table = pa.table(
            {
                "visit_id": pa.array([visit for visit, _ in events], pa.string()),
                "at": pa.array([time for _, time in events], pa.int64()),
                "bucket": pa.array([len(visit) % buckets for visit, _ in events], pa.int32()),
            }
        )
        for batch in pack(table.to_batches(max_chunksize=7), buckets):
            for row in batch.to_pylist():
                seen.append(row["bucket"])
                packed[row["bucket"]] += [row["events"]] if row["events"] else []
    assert sorted(seen) == sorted(keys * len(tasks))
    for number, parts in enumerate(packed.values()):
        unpacked = unpack(parts)
        events = [
            (unpacked.visits[owner], time) for owner, time in zip(unpacked.owners, unpacked.times.tolist(), strict=True)
        ]
        assert sorted(events) == sorted(event for task in tasks for event in task if len(event[0]) % buckets == number)
        assert len(set(unpacked.visits)) == len(unpacked.visits)
        later = unpacked.after(0)
        kept = [(later.visits[owner], time) for owner, time in zip(later.owners, later.times.tolist(), strict=True)]
        assert sorted(kept) == sorted(event for event in events if event[1] > 0)
        assert {visit for visit, _ in kept} == set(later.visits)
