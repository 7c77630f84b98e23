"""The chaos harness: the expected results, the injected faults, and the detected differences."""

import json
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest

from chaos import checks, report, run, truth
from chaos.checks import Figures
from chaos.events import DISORDER, START, Event, closing_events, events
from chaos.report import Report
from chaos.schedule import GROUPS, KINDS, ONE_GROUP, OPERATIONS, PROCESS, schedule
from chaos.timeline import Timeline
from chaos.truth import Published

MINUTE = 60_000_000
STEP = timedelta(seconds=0.4)


def event(visit: str, minute: float, number: int = 0) -> Event:
    return Event(number, visit, int(minute * MINUTE), b"{}")


def window(start: int, count: int) -> Published:
    text = truth.time_text(start * MINUTE)
    key = json.dumps({"window": {"start": text}}).encode()
    return Published(key, json.dumps({"window": {"start": text}, "count": count}).encode(), 0, 0)


def session(
    visit: str, start: int, end: int, pages: int, *, is_finished: bool = True, withdrawn: bool = False, offset: int = 0
) -> Published:
    times = {"session_start": truth.time_text(start * MINUTE), "session_end": truth.time_text(end * MINUTE)}
    value = {"visit_id": visit, **times, "visited_pages": pages, "is_finished": is_finished}
    key = f"{visit} {start}".encode()
    return Published(key, None if withdrawn else json.dumps(value).encode(), 0, offset)


class TestEvents:
    def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(self) -> None:
        first, again, other = (list(islice(events(seed, STEP), 500)) for seed in (7, 7, 8))
        assert first == again
        assert first != other

    def test_event_ids_are_unique_and_event_times_follow_the_clock(self) -> None:
        made = list(islice(events(7, STEP), 5000))
        assert len({checks.event_id(event.value) for event in made}) == 5000
        for event in made:
            if event.time is not None:
                clock = (START + event.number * STEP).timestamp() * 1e6
                assert clock - DISORDER.total_seconds() * 1e6 - 1000 <= event.time <= clock

    def test_some_records_do_not_decode_and_some_visits_have_two_sessions(self) -> None:
        made = list(islice(events(7, STEP), 100_000))
        assert any(event.time is None for event in made)
        visits = [visit for visit, _ in truth.truth_of(made).sessions]
        assert len(visits) > len(set(visits))

    def test_values_carry_the_event_time(self) -> None:
        made = next(event for event in events(7, STEP) if event.time is not None)
        assert truth.microseconds(json.loads(made.value)["event_time"]) == made.time

    def test_closing_events_are_later_than_all_others_by_more_than_every_delay(self) -> None:
        made = list(islice(events(7, STEP), 100))
        newest = max(event.time for event in made if event.time is not None)
        closing = closing_events(100, STEP)
        assert all(event.time is not None and event.time > newest + 60 * MINUTE for event in closing)
        assert len({event.number for event in (*made, *closing)}) == 108


class TestTruth:
    def test_windows_are_half_open(self) -> None:
        expected = truth.truth_of([event("a", 0), event("b", 9.99), event("c", 10), event("d", 25)])
        assert expected.windows == {0: 2, 10 * MINUTE: 1, 20 * MINUTE: 1}

    def test_a_session_ends_with_a_pause_longer_than_the_gap(self) -> None:
        expected = truth.truth_of([event("a", 20.1), event("a", 0), event("a", 10), event("b", 5)])
        assert expected.sessions == {
            ("a", 0): (10 * MINUTE, 2),
            ("a", int(20.1 * MINUTE)): (int(20.1 * MINUTE), 1),
            ("b", 5 * MINUTE): (5 * MINUTE, 1),
        }

    def test_records_that_do_not_decode_have_no_result(self) -> None:
        assert truth.truth_of([Event(0, "a", None, b"")]) == truth.Truth({}, {})

    def test_the_newest_record_of_a_key_counts_and_a_tombstone_removes_it(self) -> None:
        early, late = session("a", 0, 1, 1, is_finished=False), session("a", 0, 2, 2)
        gone = session("b", 0, 1, 1)
        records = [early, gone, late, session("b", 0, 1, 0, withdrawn=True)]
        assert truth.upsert(records) == {b"a 0": late}

    def test_correct_windows_are_not_wrong(self) -> None:
        expected = truth.truth_of([event("a", 0), event("a", 15), event("closing-0", 200)])
        published = truth.windows_of(truth.upsert([window(0, 1), window(10, 1)]))
        assert truth.wrong_windows(expected, published, closing=200 * MINUTE) == []

    @pytest.mark.parametrize(
        ("published", "what"),
        [([window(0, 2), window(10, 1)], "published 2 events, expected 1"), ([window(0, 1)], "not published")],
    )
    def test_wrong_and_missing_windows_are_named(self, published: list[Published], what: str) -> None:
        expected = truth.truth_of([event("a", 0), event("a", 15), event("closing-0", 200)])
        wrong = truth.wrong_windows(expected, truth.windows_of(truth.upsert(published)), closing=200 * MINUTE)
        assert len(wrong) == 1
        assert what in wrong[0]

    @pytest.mark.parametrize(
        ("published", "what"),
        [
            ([session("a", 0, 5, 3)], "with 3 events, expected"),
            ([session("a", 0, 5, 2, is_finished=False)], "published as open"),
            ([session("a", 0, 5, 2), session("b", 0, 0, 1)], "no such session"),
            ([], "not published"),
        ],
    )
    def test_wrong_sessions_are_named(self, published: list[Published], what: str) -> None:
        expected = truth.truth_of([event("a", 0), event("a", 5)])
        wrong, stale = truth.wrong_sessions(expected, truth.sessions_of(truth.upsert(published)))
        assert len(wrong) == 1
        assert what in wrong[0]
        assert stale == []

    def test_an_early_result_without_a_session_is_reported_apart(self) -> None:
        expected = truth.truth_of([event("a", 0), event("a", 5)])
        published = [session("a", 0, 5, 2), session("a", 5, 5, 1, is_finished=False, offset=9)]
        wrong, stale = truth.wrong_sessions(expected, truth.sessions_of(truth.upsert(published)))
        assert wrong == []
        assert [(key, result.record.offset) for key, result in stale] == [(("a", 5 * MINUTE), 9)]

    def test_many_differences_are_counted(self) -> None:
        assert truth.shortened([str(number) for number in range(9)])[-1] == "… and 4 more"


class TestArchive:
    records = (Published(b"", b'{"event_id": "1"}', 0, 0), Published(b"", b'{"event_id": "2"}', 1, 0))
    rows = ((0, 0, b'{"event_id": "1"}'), (1, 0, b'{"event_id": "2"}'))

    def test_a_complete_archive_is_not_wrong(self) -> None:
        assert checks.archived_once(self.records, self.rows) == []

    @pytest.mark.parametrize(
        ("rows", "what"),
        [
            (rows[:1], "not archived: partition 1, offset 0"),
            ((*rows, rows[0]), "archived 2 times: partition 0, offset 0"),
            ((*rows, (1, 1, b'{"event_id": "3"}')), "not in the topic: partition 1, offset 1"),
            ((rows[0], (1, 0, b'{"event_id": "9"}')), "archived with another value: partition 1, offset 0"),
            ((rows[0], (1, 0, rows[0][2])), "event 1 archived 2 times"),
        ],
    )
    def test_what_is_wrong_is_named(self, rows: list[tuple[int, int, bytes]], what: str) -> None:
        assert what in checks.archived_once(self.records, rows)

    def test_acknowledged_records_must_be_in_the_topic_once(self) -> None:
        sent = [Event(0, "a", 0, b"x"), Event(1, "a", 0, b"y")]
        assert checks.produced_once(sent, [Published(b"", b"x", 0, 0), Published(b"", b"y", 0, 1)]) == []
        wrong = checks.produced_once(sent, [Published(b"", b"x", 0, 0), Published(b"", b"x", 0, 1)])
        assert wrong == ["acknowledged, but not in the topic: y", "in the topic more than once: x"]


class TestLeftovers:
    def test_a_clean_home_has_no_leftover_files(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoints" / "a" / "_respool" / "history").mkdir(parents=True)
        kept = tmp_path / "savepoints" / "s"
        (kept / "data-1").mkdir(parents=True)
        (kept / "manifest.json").write_text('{"data": "data-1"}')
        assert checks.leftover_files(tmp_path) == []

    @pytest.mark.parametrize(
        "path",
        [
            "checkpoints/a/_respool/staged/x/offsets/1",
            "checkpoints/a/_respool/pending.json",
            "checkpoints/a/_respool/history/.x.json.12.tmp",
            "savepoints/s/data-2/offsets/1",
            "broker/process.json",
        ],
    )
    def test_leftovers_are_reported(self, tmp_path: Path, path: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.touch()
        assert len(checks.leftover_files(tmp_path)) == 1

    def test_files_that_others_may_read_are_reported(self, tmp_path: Path) -> None:
        (tmp_path / "checkpoints").mkdir(mode=0o700)
        for name, mode in (("mine", 0o600), ("theirs", 0o640), ("everybody's", 0o602)):
            (tmp_path / "checkpoints" / name).touch()
            (tmp_path / "checkpoints" / name).chmod(mode)
        (tmp_path / "checkpoints" / "link").symlink_to(tmp_path)
        assert [path.name for path in checks.open_files(tmp_path)] == ["everybody's", "theirs"]


class TestSchedule:
    def test_it_is_a_function_of_the_seed_alone(self) -> None:
        first, again, other = (list(islice(schedule(seed, KINDS, GROUPS), 200)) for seed in (1, 1, 2))
        assert first == again
        assert first != other

    def test_the_order_in_which_kinds_are_named_does_not_matter(self) -> None:
        kinds = ["rewind", "kill-jvm", "kill-broker"]
        assert list(islice(schedule(1, kinds, GROUPS), 9)) == list(islice(schedule(1, kinds[::-1], GROUPS), 9))

    def test_every_kind_occurs_before_any_occurs_again(self) -> None:
        faults = list(islice(schedule(3, KINDS, GROUPS), 2 * len(KINDS)))
        assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
        assert {fault.kind for fault in faults[len(KINDS) :]} == set(KINDS)

    @pytest.mark.parametrize("groups", [GROUPS, ONE_GROUP])
    def test_targets_fit_their_kind(self, groups: dict[str, tuple[str, ...]]) -> None:
        for fault in islice(schedule(4, KINDS, groups), 300):
            assert fault.seconds > 0
            assert fault.delay > 0
            assert bool(fault.pipeline) == (fault.kind in OPERATIONS)
            assert bool(fault.group) == (fault.kind in (*PROCESS, *OPERATIONS))
            if fault.pipeline:
                assert fault.pipeline in groups[fault.group]
            if fault.kind in ("fork", "reprocess"):
                assert fault.pipeline != "visits-archive"
            if fault.kind == "kill-worker":
                assert "sessions" in groups[fault.group]


class TestReport:
    def report(self, *violations: str) -> Report:
        timeline = Timeline()
        timeline.add("kill-jvm", "sessions", outcome="done", number=1)
        for violation in violations:
            timeline.violate(violation)
        arguments = run.arguments(run.options(["--seed", "123", "--minutes", "5"]))
        return Report(123, 5, arguments, timeline, Figures(records=600), 60, 2, 0, "2026-11-18T00:00:00+00:00", "m")

    def test_a_violation_names_the_command_that_replays_it(self) -> None:
        text = self.report("a record is missing").text()
        assert "✗ a record is missing" in text
        assert 'make chaos ARGS="--seed 123 --minutes 5"' in text

    def test_without_violations_it_has_counts(self) -> None:
        text = self.report().text()
        assert "No violation." in text
        assert "kill-jvm      1 done" in text
        assert self.report().as_json()["faults"] == {"kill-jvm": {"done": 1}}

    def test_the_arguments_of_a_replay_are_complete(self) -> None:
        words = ["--seed", "1", "--minutes", "2", "--faults", "rewind,kill-jvm", "--max-faults", "3", "--rate", "100"]
        asked = run.options([*words, "--pace", "0.5", "--settled", "--one-process", "--json"])
        again = run.options(run.arguments(asked).split())
        assert {**vars(again), "json": True} == vars(asked)

    def test_figures_are_published_between_the_markers_only(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
        report.publish(self.report(), page)
        text = page.read_text()
        assert text.startswith(f"before\n{report.BEGIN}\n")
        assert text.endswith(f"{report.END}\nafter\n")
        assert "old" not in text
        assert "| `kill-jvm` | 1 | 0 |" in text
