"""The examples of the public functions that need neither Spark nor Kafka."""

import doctest
import inspect
import pkgutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import respool
from support.archive import write_hours
from support.examples import examples_of, run_example

WITHOUT_SPARK = (
    respool.Archive,
    respool.ArchiveContents,
    respool.ArchiveReport,
    respool.BatchProgress,
    respool.CompactionResult,
    respool.Cutoff,
    respool.RepairResult,
    respool.ReprocessPlan,
    respool.archive_pipeline,
    respool.check,
    respool.find_pipeline,
    respool.load_settings,
    respool.plan_reprocess,
)
WITH_SPARK = (  # executed by tests/kafka/operations/test_python_api.py
    respool.AuditReport,
    respool.DiffReport,
    respool.ReprocessPreview,
    respool.ReprocessRun,
    respool.Runner,
    respool.audit,
    respool.diff,
    respool.preview,
    respool.reprocess,
    respool.run,
    respool.start,
)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the examples use, and an archive of 100 visits, one each minute."""
    monkeypatch.chdir(tmp_path)
    times = [datetime(2025, 9, 4, 7, tzinfo=timezone.utc) + timedelta(minutes=number) for number in range(100)]
    events = [(time, {"visit_id": "v", "event_time": time.isoformat(), "page": "p"}) for time in times]
    write_hours(tmp_path / ".respool" / "archive" / "visits_table", "visits", events)
    return {"respool": respool, "pipeline": respool.find_pipeline("visit-counts")}


@pytest.mark.parametrize("example", examples_of(*WITHOUT_SPARK), ids=lambda example: example.name)
def test_the_example_works(example: doctest.DocTest, names: dict[str, Any]) -> None:
    run_example(example, names)


def test_no_package_has_the_name_of_a_public_function() -> None:
    """Importing a package sets it as an attribute of respool, in place of the function."""
    packages = {module.name for module in pkgutil.iter_modules(respool.__path__)}
    assert packages & set(respool.__all__) == set()


@pytest.mark.parametrize("item", [*WITHOUT_SPARK, *WITH_SPARK], ids=lambda item: item.__name__)
def test_every_public_name_has_an_example(item: Any) -> None:
    assert ">>> " in str(item.__doc__)


def test_every_public_method_of_an_archive_has_an_example() -> None:
    for name, member in vars(respool.Archive).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            assert ">>> " in str(member.__doc__), name


@pytest.mark.parametrize(
    "expression",
    [
        "respool.Archive('visits_table')",
        "respool.Archive('visits_table').contents()",
        "respool.Archive('visits_table').verify(compare_with_kafka=False)",
        "respool.Archive('visits_table').repair(compare_with_kafka=False)",
        "respool.Archive('visits_table').compact()",
        "respool.plan_reprocess(pipeline, '2025-09-04T07:00Z', '2025-09-04T08:00Z')",
        "respool.check('visit-counts')",
    ],
)
def test_a_public_object_is_shown_in_one_line(expression: str, names: dict[str, Any]) -> None:
    text = repr(eval(expression, names))
    assert "\n" not in text
    assert " object at 0x" not in text


def test_the_library_does_not_print(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    archive = respool.Archive("visits_table")
    archive.verify()
    archive.repair(compare_with_kafka=False)
    archive.compact()
    assert capsys.readouterr() == ("", "")


def test_a_time_is_a_datetime_or_text_in_the_zone_of_the_pipeline(names: dict[str, Any]) -> None:
    aware = datetime(2025, 9, 4, 7, tzinfo=timezone.utc)
    for start in (aware, aware.replace(tzinfo=None), "2025-09-04T07:00", "2025-09-04T09:00+02:00"):
        plan = respool.plan_reprocess(names["pipeline"], start, "2025-09-04T08:00Z")
        assert plan.request.asked.start == aware


def test_unknown_settings_and_contradicting_arguments_are_refused(names: dict[str, Any]) -> None:
    with pytest.raises(respool.SettingsError, match=r"Unknown setting 'maste'\. Did you mean 'master'"):
        respool.load_settings(maste="local")
    with pytest.raises(respool.UsageError, match="at least one pipeline"):
        respool.run()
    with pytest.raises(respool.UsageError, match="named twice"):
        respool.start(names["pipeline"], names["pipeline"])
