"""Runs of `respool reprocess` as they are kept: which run a command starts, and which it resumes."""

import json
import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from respool.archive.table import Size
from respool.errors import ReprocessError
from respool.pipeline.results import Windows
from respool.reprocessing.plan import ReprocessPlan, ReprocessRequest
from respool.reprocessing.runs import ReprocessManifest, ReprocessTask, Runs
from respool.sinks.protocol import folder_identity, kafka_identity
from respool.times import Span
from respool.visits.counts import visit_counts

SEVEN = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
TO = kafka_identity("visits_counter")
DERIVED = "visit-counts-20250904T070000Z-20250904T080000Z-v3"


def plan_for(start: datetime = SEVEN, *, version: int = 3, window: str = "10 minutes") -> ReprocessPlan:
    """The plan of an hour in three slices."""
    asked = Span(start, start + timedelta(hours=1))
    request = ReprocessRequest(visit_counts(window=window), asked, slice=timedelta(minutes=20))
    slices = Windows(window).slices(asked, request.slice)
    return ReprocessPlan(request, asked, tuple(slices), "/archive", version, Size(1, 10), Size(9, 90), None, True)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_the_name_of_a_run_says_what_it_computes(runs: Runs, tmp_path: Path) -> None:
    begun = runs.begin(plan_for(), TO, None)
    assert begun == ReprocessManifest(DERIVED, ReprocessTask.of(plan_for(), TO), version=3, slices=3)
    assert (begun.task.pipeline, begun.task.to, begun.task.slice) == ("visit-counts", TO, 1200.0)
    paris = timezone(timedelta(hours=2))
    assert runs.begin(plan_for(SEVEN.astimezone(paris)), TO, None) == begun
    assert list(tmp_path.iterdir()) == []  # nothing is written yet


def test_a_written_manifest_is_read_unchanged(runs: Runs, tmp_path: Path) -> None:
    begun = runs.begin(plan_for(), TO, "mine")
    later = begun.after(6, 0).after(5, 2)
    assert (later.done, later.results, later.withdrawn, later.complete) == (2, 11, 2, False)
    for manifest in (begun, later, replace(later, complete=True)):
        runs.write(manifest)
        assert runs.read("mine") == manifest
    assert [file.name for file in (tmp_path / "reprocess" / "mine").iterdir()] == ["run.json"]
    assert runs.read("other") is None


def test_a_stopped_run_resumes(runs: Runs) -> None:
    stopped = runs.begin(plan_for(), TO, None).after(6, 0)
    runs.write(stopped)
    # The archive has grown meanwhile; the run reads the version with which it began.
    assert runs.begin(plan_for(version=8), TO, None) == stopped
    assert runs.begin(plan_for(version=8), TO, DERIVED) == stopped


def test_a_named_run_resumes_without_its_name(runs: Runs) -> None:
    stopped = runs.begin(plan_for(), TO, "mine").after(6, 0)
    runs.write(stopped)
    assert runs.begin(plan_for(), TO, None) == stopped


def test_a_complete_run_starts_over(runs: Runs) -> None:
    begun = runs.begin(plan_for(), TO, None)
    runs.write(replace(begun.after(1, 0).after(1, 0).after(1, 0), complete=True))
    assert runs.begin(plan_for(), TO, None) == begun
    assert runs.begin(plan_for(), TO, DERIVED) == begun
    assert runs.begin(plan_for(version=8), TO, None).version == 8


@pytest.mark.parametrize(
    "other",
    [plan_for(SEVEN + timedelta(hours=1)), plan_for(window="5 minutes")],
    ids=["another span", "other windows"],
)
def test_a_run_of_another_task_is_not_gone_on_with(runs: Runs, other: ReprocessPlan) -> None:
    runs.write(runs.begin(plan_for(), TO, None).after(6, 0))
    begun = runs.begin(other, TO, None)
    assert (begun.done, begun.task) == (0, ReprocessTask.of(other, TO))


def test_a_name_belongs_to_one_task(runs: Runs) -> None:
    runs.write(runs.begin(plan_for(), TO, "mine").after(1, 0))
    with pytest.raises(ReprocessError, match="its to is Kafka topic visits_counter, here it is folder /out"):
        runs.begin(plan_for(), folder_identity("/out"), "mine")
    with pytest.raises(ReprocessError, match=r"mine computes visit-counts, 2025-09-04T07.*Choose another --run-id"):
        runs.begin(plan_for(SEVEN + timedelta(hours=1)), TO, "mine")
    with pytest.raises(ReprocessError, match="its results is windows of 10 minutes, here it is windows of 5 minutes"):
        runs.begin(plan_for(window="5 minutes"), TO, "mine")


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "../mine", "with space", "-x", "é", "a" * 201, "mine\n"])
def test_a_name_that_is_no_folder_is_refused(runs: Runs, tmp_path: Path, name: str) -> None:
    with pytest.raises(ReprocessError, match="Invalid run id"):
        runs.begin(plan_for(), TO, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"run": "mine"}', '{"run": "mine", "task": {"pipeline": "visit-counts"}}']
)
def test_a_damaged_run_is_reported(runs: Runs, tmp_path: Path, text: str) -> None:
    file = tmp_path / "reprocess" / "mine" / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    for name in ("mine", None):
        with pytest.raises(ReprocessError, match=rf"{file} is damaged. Move the folder away"):
            runs.begin(plan_for(), TO, name)
    file.unlink()  # stopped before its first word: only what is left of the lock is there
    assert runs.begin(plan_for(), TO, None).run == DERIVED


def test_a_run_is_held_by_one_process_at_a_time(runs: Runs, tmp_path: Path) -> None:
    with runs.hold("mine"):
        with (
            pytest.raises(ReprocessError, match=f"The run mine is running in process {os.getpid()}"),
            runs.hold("mine"),
        ):
            pytest.fail("held twice")
        with runs.hold("other"):
            pass
    with runs.hold("mine"):
        runs.write(runs.begin(plan_for(), TO, "mine").after(1, 0))
    assert runs.begin(plan_for(), TO, None).run == "mine"


OLD_RUN = {
    "run": "mine",
    "task": {
        "pipeline": "visit-counts",
        "start": "2025-09-04T07:00:00+00:00",
        "end": "2025-09-04T08:00:00+00:00",
        "slice": 1200.0,
        "table": "/archive",
        "to": "Kafka topic visits_counter",
        "results": "windows of 10 minutes",
        "timezone": "UTC",
    },
    "version": 3,
    "slices": 3,
    "done": 1,
    "results": 6,
    "withdrawn": 0,
    "complete": False,
}


def test_a_run_that_an_earlier_version_wrote_is_resumed_and_written_in_the_new_format(
    runs: Runs, tmp_path: Path
) -> None:
    file = tmp_path / "reprocess" / "mine" / "run.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(OLD_RUN, indent=1))
    resumed = runs.begin(plan_for(), TO, None)
    assert (resumed.run, resumed.done, resumed.results) == ("mine", 1, 6)
    with pytest.raises(ReprocessError, match="its to is Kafka topic visits_counter, here it is folder /out"):
        runs.begin(plan_for(), folder_identity("/out"), "mine")
    with pytest.raises(ReprocessError, match="its results is windows of 10 minutes, here it is windows of 5 minutes"):
        runs.begin(plan_for(window="5 minutes"), TO, "mine")
    runs.write(resumed)
    assert json.loads(file.read_text())["format"] == 2
    assert runs.read("mine") == resumed


def test_a_run_is_resumed_when_its_window_is_spelled_in_another_way(runs: Runs) -> None:
    runs.write(runs.begin(plan_for(window="10 minutes"), TO, "mine").after(6, 0))
    for window in ("10m", "600s"):
        assert runs.begin(plan_for(window=window), TO, None).run == "mine"


def test_a_run_of_a_newer_respool_is_refused(runs: Runs, tmp_path: Path) -> None:
    runs.write(runs.begin(plan_for(), TO, "mine"))
    file = tmp_path / "reprocess" / "mine" / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 3}))
    with pytest.raises(ReprocessError, match="it has format 3; this respool supports 2"):
        runs.begin(plan_for(), TO, "mine")
