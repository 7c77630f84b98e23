"""`make bench` runs; its figures are not tested, but a wrong result must never become a figure."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks import run as bench
from benchmarks.environments import NotAvailable, Place, ready
from benchmarks.fleet import row_of
from benchmarks.goals import goals
from benchmarks.measure import Mark, Measured, Sample, cpu_at, memory_growth, run, steady, steady_cpu, warm_up
from benchmarks.results import Results, Run, run_of, spread
from benchmarks.truth import Notes, SessionResult, Truth, minute_of, wrong_sessions, wrong_windows
from respool.visits.generator import VisitsPlan, generate

REWIND = Path(__file__).parents[2] / "benchmarks" / "rewind.py"


def test_the_benchmark_of_rewinds_runs_on_few_batches() -> None:
    words = [sys.executable, str(REWIND), "--batches", "60", "--partitions", "2", "--runs", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    rows = json.loads(done.stdout.splitlines()[-1])
    assert [(row["command"], row["batches"]) for row in rows] == [("show", 60), ("plan", 60)]
    assert all(row["median_s"] > 0 for row in rows)


def _marks(*pairs: tuple[int, float]) -> list[Mark]:
    return [Mark(events, seconds) for events, seconds in pairs]


class TestSteadyRate:
    def test_counts_from_the_first_mark_after_the_warm_up_to_the_last(self) -> None:
        marks = _marks((200_000, 10), (400_000, 12), (1_400_000, 20), (2_000_000, 28))
        assert steady(marks, 2_000_000) == 1_600_000 / 16
        assert steady(_marks((200_000, 10), (600_000, 12), (2_000_000, 19)), 2_000_000) == 200_000

    def test_a_small_run_warms_up_for_a_fifth_of_its_events(self) -> None:
        assert warm_up(3_000) == 600
        assert warm_up(2_000_000) == 400_000
        assert steady(_marks((300, 1), (600, 2), (3_000, 4)), 3_000) == 1_200

    @pytest.mark.parametrize("marks", [[], _marks((2_000_000, 30)), _marks((100, 1), (200, 2))])
    def test_no_steady_rate_without_two_marks_after_the_warm_up(self, marks: list[Mark]) -> None:
        assert steady(marks, 2_000_000) is None

    def test_its_cpu_time_is_taken_from_the_samples_around(self) -> None:
        samples = [Sample(0, 0, 1), Sample(10, 20, 1), Sample(20, 30, 1)]
        assert [cpu_at(samples, at) for at in (0, 5, 10, 15, 99)] == [0, 10, 20, 25, 30]
        measured = _measured(_marks((1_000_000, 10), (3_000_000, 20)), samples=tuple(samples))
        assert steady_cpu(measured, 3_000_000) == 5

    def test_growth_of_memory_is_measured_between_the_second_and_the_last_quarter(self) -> None:
        samples = tuple(Sample(second, 0, 100 + second) for second in range(101))
        marks = _marks(*((second * 10, float(second)) for second in range(1, 101)))
        assert memory_growth(_measured(marks, samples=samples), 1_000) == (100 + 87.5) / (100 + 37.5)
        assert memory_growth(_measured(marks), 1_000) is None


def _measured(
    marks: Sequence[Mark], *, in_time: bool = True, code: int = 0, log: Path = Path(), samples: tuple[Sample, ...] = ()
) -> Measured:
    return Measured(tuple(marks), in_time, code, 30.0, 2_000_000, 3_000_000, 0.5, 1.0, 0.0, log, samples=samples)


class TestProcessTree:
    def test_a_run_is_measured_with_the_children_that_outlive_their_parents(self, tmp_path: Path) -> None:
        child = "import time\nwhile time.process_time() < 0.5: pass\nprint('{\"events\": 7}', flush=True)"
        words = f"import os, subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', {child!r}]); "
        words += "os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT); time.sleep(1.5)"  # it stays uncollected
        measured = run([sys.executable, "-c", words], tmp_path / "run", 120, None)
        assert measured.in_time
        assert measured.code == 0
        assert measured.events == 7
        assert 0.5 <= measured.cpu_s < 2
        assert measured.pss > 1_000_000

    def test_the_time_of_a_child_that_nobody_waited_for_is_not_forgotten_when_it_ends(self, tmp_path: Path) -> None:
        child = "import time\nwhile time.process_time() < 1.5: pass"
        words = "import signal, subprocess, sys, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        words += (
            f"subprocess.Popen([sys.executable, '-c', {child!r}]).wait(); time.sleep(2)"  # the wait collects nothing
        )
        measured = run([sys.executable, "-c", words], tmp_path / "run", 120, None)
        used = [sample.cpu_s for sample in measured.samples]
        assert used == sorted(used)
        assert used[-1] >= 0.4

    def test_a_run_that_takes_too_long_is_ended_with_all_its_children(self, tmp_path: Path) -> None:
        child = "import time\nprint('{\"rows\": 3}', flush=True)\nprint('no JSON', flush=True)\ntime.sleep(60)"
        words = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
        measured = run([sys.executable, "-c", words], tmp_path / "run", 6, None)
        assert not measured.in_time
        assert measured.events == 3
        reported = run_of("counts", "an-engine", 10, measured, None)
        assert (reported.status, reported.why) == ("stopped", "after 3 of 10 events")

    def test_a_run_that_fails_says_why(self, tmp_path: Path) -> None:
        measured = run([sys.executable, "-c", "raise ValueError('no broker')"], tmp_path / "run", 30, None)
        reported = run_of("counts", "an-engine", 10, measured, None)
        assert (reported.status, reported.why) == ("failed", "ValueError: no broker")


@pytest.fixture(scope="module")
def truth() -> Truth:
    """The expected results of a few visits."""
    notes = Notes()
    for message in generate(VisitsPlan(count=2_000, visits=50, pages_per_visit=4)):
        assert message.key is not None
        assert message.value is not None
        notes.add(message.key, message.value)
    return notes.truth()


class TestTruth:
    def test_all_events_are_in_windows_hours_and_sessions(self, truth: Truth) -> None:
        assert truth.events == 2_000
        assert sum(truth.windows.values()) == sum(truth.hours.values()) == 2_000
        assert sum(pages for _, pages in truth.sessions.values()) == 2_000
        assert all(start % 10 == 0 for start in truth.windows)

    def test_times_are_read_in_any_usual_form(self) -> None:
        texts = ("2024-01-01T01:20:00.000Z", "2024-01-01 01:20:00", "2024-01-01T01:20:00+00:00")
        assert {minute_of(text) for text in texts} == {20}
        with pytest.raises(ValueError, match="whole minute"):
            minute_of("2024-01-01T01:20:30")

    def test_the_last_count_of_a_window_holds(self, truth: Truth) -> None:
        right = list(truth.windows.items())
        assert wrong_windows(truth, [(right[0][0], 1), *right], None) is None
        assert "has the count 1," in str(wrong_windows(truth, [*right, (right[0][0], 1)], None))
        assert "has the count 5, expected 0" in str(wrong_windows(truth, [*right, (9_990, 5)], None))

    def test_windows_that_cannot_be_over_may_be_missing(self, truth: Truth) -> None:
        over = {start: count for start, count in truth.windows.items() if start + 10 <= truth.newest - 10}
        assert wrong_windows(truth, over.items(), 10) is None
        assert "windows are missing" in str(wrong_windows(truth, over.items(), None))
        del over[0]
        assert wrong_windows(truth, over.items(), 10) == f"1 of {len(over) + 1} windows are missing"

    def test_sessions_may_be_deleted_but_not_changed_once_finished(self, truth: Truth) -> None:
        right = [
            SessionResult(visit, start, end, pages, True) for (visit, start), (end, pages) in truth.sessions.items()
        ]
        first = right[0]
        moved = [
            SessionResult(first.visit, first.start + 1, first.end, 1),
            SessionResult(first.visit, first.start + 1, None, None),
        ]
        early = SessionResult(first.visit, first.start, first.start, 1)
        assert wrong_sessions(truth, [*moved, early, *right], early=True, delay=15) is None
        assert "after it was finished" in str(wrong_sessions(truth, [*right, early], early=True, delay=15))
        assert "no session" in str(wrong_sessions(truth, [*right, moved[0]], early=True, delay=15))

    def test_each_engine_is_held_to_what_it_promises(self, truth: Truth) -> None:
        right = [SessionResult(visit, start, end, pages) for (visit, start), (end, pages) in truth.sessions.items()]
        assert wrong_sessions(truth, right, early=True, delay=None) is None
        assert "not published as finished" in str(wrong_sessions(truth, right, early=True, delay=15))
        assert "are missing" in str(wrong_sessions(truth, right[1:], early=True, delay=None))
        assert wrong_sessions(truth, [], early=False, delay=None) is None
        wrong = [SessionResult(right[0].visit, right[0].start, right[0].end, 99)]
        assert "99" in str(wrong_sessions(truth, wrong, early=False, delay=None))


def _results() -> Results:
    machine = {"at": "today", "cores": 2, "model": "a processor", "memory_gb": 24.0, "load": 0.1}
    results = Results(machine, {"events": 2_000_000, "runs": 3})
    for name, title, recovers in (
        ("respool", "respool", True),
        ("pyspark", "plain PySpark", True),
        ("bare", "a <loop>", False),
    ):
        properties: dict[str, Any] = {"title": title, "recovers": recovers, "runs_on": "it", "not_run": ""}
        results.engines[name] = {**properties, "promises": {"counts": "all of them"}}
    results.engines["flink"] = {
        **results.engines["pyspark"],
        "title": "Flink",
        "not_run": "mvn is not installed on this machine",
    }
    rates = {"respool": (90, 100, 140), "pyspark": (40, 50, 60), "bare": (300, 300, 300)}
    for name, values in rates.items():
        results.runs += [_run(name, 1_000.0 * value) for value in values]
    return results


def _run(engine: str, rate: float, status: str = "right", why: str = "") -> Run:
    return Run("counts", engine, status, why, 2_000_000, rate, 20, 30, 12, 900, 1_000, 0.5, 2, 1)


class TestReport:
    def test_figures_are_medians_with_their_range(self) -> None:
        assert spread([]) is None
        figure = spread([3.0, 1.0, 2.0])
        assert figure is not None
        assert figure.text(1) == "2.0 (1.0–3.0)"

    def test_it_says_what_was_measured_and_what_was_not(self, tmp_path: Path) -> None:
        text = report.write(_results(), tmp_path)
        assert "100.0 (90.0–140.0)" in text
        assert "2.00 ×" in text
        assert "**not met**" not in text
        assert "- Flink: mvn is not installed on this machine" in text
        assert json.loads((tmp_path / "report.json").read_text())["runs"][0]["engine"] == "respool"
        drawn = ElementTree.fromstring((tmp_path / "report.svg").read_text())
        assert "a <loop>" in [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]

    def test_its_tables_take_the_place_of_older_ones_in_the_docs(self, tmp_path: Path) -> None:
        page = tmp_path / "performance.md"
        page.write_text("# Title\n\n<!-- figures -->\nolder figures\n<!-- end of figures -->\n\nmore\n")
        report.write(_results(), tmp_path)
        report.publish(tmp_path, tmp_path)
        text = page.read_text()
        assert text.startswith("# Title\n")
        assert text.endswith("<!-- end of figures -->\n\nmore\n")
        assert "### counts" in text
        assert "100.0 (90.0–140.0)" in text
        assert "older figures" not in text
        page.write_text("no marks")
        with pytest.raises(SystemExit, match="has no place for figures"):
            report.publish(tmp_path, tmp_path)
        assert page.read_text() == "no marks"

    def test_a_wrong_result_has_no_figure(self) -> None:
        results = _results()
        results.runs.append(_run("pyspark", 1e9, "wrong", "a window is missing"))
        assert results.figure("counts", "pyspark", "steady") is None
        assert "| plain PySpark | – " in report.markdown(results)
        assert "wrong: a window is missing" in report.markdown(results)

    def test_goals_are_ratios_of_medians_and_the_floor_is_no_rival(self) -> None:
        assert [(goal.job, goal.measured, goal.met) for goal in goals(_results())] == [
            ("counts", "2.00 ×", True),
            ("counts", "2.00 × the fastest other, plain PySpark", True),
        ]

    def test_a_run_that_was_stopped_too_early_is_held_to_its_fastest_batch(self) -> None:
        results = _results()
        results.runs = [run for run in results.runs if run.engine != "pyspark"]
        marks = ((200_000, 100.0), (400_000, 150.0), (500_000, 200.0))
        results.runs.append(replace(_run("pyspark", 0.0, "stopped"), steady=None, marks=marks))
        goal = next(goal for goal in goals(results) if "plain PySpark" in goal.target)
        own = results.figure("counts", "respool", "steady")
        assert own is not None
        assert goal.measured == f"{own.median / 4_000:.2f} × that of its fastest batch"

    def test_decoders_have_a_table(self) -> None:
        results = _results()
        row = {"format": "avro", "rate": 290_400, "bytes": 76, "records": 1_000_000}
        results.decoders = [{**row, "median_s": 3.44, "least_s": 3.4, "most_s": 3.5}]
        assert "| avro   | 76             | 290                | 3.44 (3.40–3.50) | 1,000,000 |" in report.markdown(
            results
        )

    def test_goals_of_the_other_jobs(self) -> None:
        results = _results()
        results.runs.clear()
        for factor, cpu, memory in ((1, 10.0, 1.4), (16, 12.0, 1.01)):
            row = {"job": "sessions", "status": "right", "factor": factor}
            results.growth.append({**row, "cpu_s_per_million": cpu, "memory_growth": memory})
        ways = (("reprocess", 1, 2.0), ("reprocess", 100, 2.2), ("walk-through", 1, 1.0), ("walk-through", 100, 55.0))
        results.reprocess = [{"way": way, "days": days, "median_s": seconds} for way, days, seconds in ways]
        results.rewind = [
            {"command": "show", "batches": batches, "median_s": seconds}
            for batches, seconds in ((1_000, 0.3), (100_000, 1.2))
        ]
        results.store = [
            {"command": "show", "times_least": 1.05, "times_faster": 2.0},
            {"command": "rewind", "times_least": 2.75, "times_faster": 8.0},
        ]
        first = "first batch of counts"
        times = {"respool": 5.0, "pyspark": 8.0}
        results.start = [{"what": first, "engine": name, "median_s": seconds} for name, seconds in times.items()]
        rates = {"json, flat text": 400_000, "json, nested and typed": 300_000, "avro": 290_000}
        seconds = {"median_s": 1.0, "least_s": 0.9, "most_s": 1.1}
        results.decoders = [
            {"format": name, "rate": rate, "bytes": 250, "records": 1_000_000, **seconds}
            for name, rate in rates.items()
        ]
        assert [(goal.job, goal.measured, goal.met) for goal in goals(results)] == [
            ("growth", "1.20 ×", False),
            ("growth", "1.01 ×", True),
            ("reprocess", "1.10 ×", True),
            ("reprocess", "25.0 ×", True),
            ("rewind", "1.20 s", False),
            ("rewind", "4.0 × the time", True),
            ("store", "1.05 ×", True),
            ("store", "2.75 ×", False),
            ("store", "8.0 ×", True),
            ("start", "0.62 × its time", True),
            ("decoders", "0.75 ×", True),
            ("decoders", "0.97 ×", False),
        ]


def test_nothing_is_downloaded_offline(tmp_path: Path) -> None:
    with pytest.raises(NotAvailable, match="--offline"):
        ready(Place(tmp_path, offline=True), "bytewax")
    assert ready(Place(tmp_path, offline=True), "bare", optional=True) == "the environment of the benchmark"


def test_a_report_is_measured_in_parts(tmp_path: Path) -> None:
    out = tmp_path / "report"
    with pytest.raises(SystemExit, match=r"no report in .* to add to"):
        bench.main(["--add", "--only", "rewind", "--out", str(out)])
    small = ["--engines", "respool", "--batches", "60", "--partitions", "2", "--runs", "1"]
    small += ["--folder", str(tmp_path), "--out", str(out)]
    bench.main(["--only", "rewind", *small])
    before = json.loads((out / "report.json").read_text())
    again = Results.from_json(before)
    assert again.to_json() == {**before, "runs": again.to_json()["runs"]}
    with pytest.raises(SystemExit, match=r"has --events 2000000\. Use the same value"):
        bench.main(["--add", "--only", "rewind", *small, "--events", "10"])
    bench.main(["--add", "--only", "rewind", *small])
    after = json.loads((out / "report.json").read_text())
    assert [(row["command"], row["batches"]) for row in after["rewind"]] == [("show", 60), ("plan", 60)]


class TestScale:
    def test_a_fleet_is_measured_from_its_last_first_batch_on(self) -> None:
        samples = tuple(
            Sample(second, second if second < 40 else 40 + (second - 40) / 10, 5e8) for second in range(101)
        )
        marks = _marks((1_000, 30), (2_000, 40))
        row = row_of(2, _measured(marks, in_time=False, samples=samples))
        assert (row["status"], row["first_s"], row["first_cpu_s"], row["memory_mb"]) == ("right", 40, 40, 500)
        assert row["idle_cpu_ms"] == 500  # 0.1 CPU seconds a second, of two pipelines, for 10 seconds
        assert row_of(3, _measured(marks, samples=samples))["status"] == "failed"

    def test_a_table_has_medians_of_usable_runs_and_what_went_wrong(self) -> None:
        results = Results({}, {"events": 10, "runs": 1})
        row = {"job": "counts", "where": "local[2]", "partitions": None, "why": "", "batch_s": 0.5}
        results.cluster = [
            {**row, "status": "right", "steady": 2_000.0},
            {**row, "status": "right", "steady": 4_000.0, "batch_s": 0.7},
            {**row, "status": "wrong", "steady": 9e9, "why": "a window is missing"},
            {**row, "partitions": 200, "status": "stopped", "steady": None, "why": "after 5", "batch_s": 30.0},
        ]
        text = " ".join(report.markdown(replace(results, machine=_MACHINE)).split())
        assert "| counts | local[2] | chosen | 3.0 (2.0–4.0) | 0.60 (0.50–0.70) | wrong: a window is missing |" in text
        assert "| counts | local[2] | 200 | – | 30.00 | stopped: after 5 |" in text


_MACHINE = {"at": "now", "cores": 2, "model": "a machine", "memory_gb": 1, "load": 0}
