"""What a user can import from respool, and that the examples in its docstrings work."""

import doctest
import inspect
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import respool
from respool import errors
from respool.checkpoint.journal import apply
from respool.errors import CheckpointError
from respool.settings import Settings
from respool.storage.local import LocalWriter
from support import checkpoints

_PUBLIC = {
    "Archive",
    "ArchiveContents",
    "ArchiveReport",
    "ArrivalDependent",
    "AuditReport",
    "BatchProgress",
    "BatchUnavailableError",
    "BrokerError",
    "BrokerUnreachable",
    "ChangeRefusedError",
    "Checkpoint",
    "CheckpointChangedError",
    "CheckpointError",
    "CheckpointInUseError",
    "CheckpointNotFoundError",
    "CheckpointReport",
    "CheckpointStatus",
    "CheckpointSummary",
    "CompactionResult",
    "ConsoleSink",
    "Cutoff",
    "DamagedFileError",
    "DeltaSink",
    "DiffError",
    "DiffReport",
    "FileError",
    "DefinitionFinding",
    "ForeignJournalError",
    "FunctionSink",
    "InstallPlan",
    "Journal",
    "JsonDecoder",
    "KafkaSink",
    "MachineError",
    "Pipeline",
    "PipelineError",
    "PurgeResult",
    "QueryError",
    "Refusal",
    "RepairResult",
    "ReprocessError",
    "ReprocessPlan",
    "ReprocessPreview",
    "ReprocessRun",
    "RespoolError",
    "ResumePlan",
    "RewindPlan",
    "Runner",
    "Savepoint",
    "SavepointReport",
    "Savepoints",
    "Sessions",
    "Settings",
    "SettingsError",
    "StateChoices",
    "StateQuery",
    "StateRows",
    "StoreError",
    "TopicError",
    "UndoPlan",
    "UnfinishedChangeError",
    "UnknownFormatVersionError",
    "UnreadableFileError",
    "UsageError",
    "Windows",
    "__version__",
    "archive_pipeline",
    "audit",
    "check",
    "diff",
    "find_pipeline",
    "load_settings",
    "plan_reprocess",
    "preview",
    "reprocess",
    "run",
    "start",
}


def test_the_public_names_are_these() -> None:
    assert set(respool.__all__) == _PUBLIC
    assert len(respool.__all__) == len(_PUBLIC)


def test_every_public_name_can_be_imported() -> None:
    for name in respool.__all__:
        assert getattr(respool, name) is not None
    from respool import JsonDecoder, Pipeline
    from respool.decoders.json import JsonDecoder as Original

    assert JsonDecoder is Original
    assert Pipeline.__module__ == "respool.pipeline.definition"


def test_every_error_is_public_and_says_when_it_is_raised() -> None:
    classes = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    public = {name for name, kind in classes.items() if issubclass(kind, Exception)} | {"Refusal"}
    assert public <= set(respool.__all__)
    for name in public:
        assert getattr(respool, name) is classes[name]
        assert classes[name].__doc__


def test_the_public_names_are_exactly_those_that_can_be_imported_lazily() -> None:
    assert sorted(respool.__all__) == sorted({*respool._MODULES, "__version__"})


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Pipelines'"):
        respool.Pipelines  # noqa: B018


_ERRORS = tuple(
    kind
    for kind in map(vars(errors).get, sorted(_PUBLIC))
    if isinstance(kind, type) and (issubclass(kind, Exception) or kind is errors.Refusal)
)
_EXAMPLES = (
    *_ERRORS,
    respool.CheckpointSummary,
    respool.DefinitionFinding,
    respool.Journal,
    respool.Settings,
    respool.StateRows,
    respool.ArrivalDependent,
    respool.Checkpoint,
    respool.CheckpointReport,
    respool.CheckpointStatus,
    respool.ConsoleSink,
    respool.DeltaSink,
    respool.FunctionSink,
    respool.InstallPlan,
    respool.JsonDecoder,
    respool.KafkaSink,
    respool.Pipeline,
    respool.PurgeResult,
    respool.ResumePlan,
    respool.RewindPlan,
    respool.Savepoint,
    respool.SavepointReport,
    respool.Savepoints,
    respool.Sessions,
    respool.StateChoices,
    respool.StateQuery,
    respool.UndoPlan,
    respool.Windows,
)
# Executed by tests/unit/operations/test_python_api.py, and by tests/kafka/operations/test_python_api.py.
_EXECUTED_THERE = {
    *("Archive", "ArchiveContents", "ArchiveReport", "AuditReport", "BatchProgress", "CompactionResult", "Cutoff"),
    *("DiffReport", "RepairResult", "ReprocessPlan", "ReprocessPreview", "ReprocessRun", "Runner", "archive_pipeline"),
    *("audit", "check", "diff", "find_pipeline", "load_settings", "plan_reprocess", "preview", "reprocess", "run"),
    "start",
}
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def _examples() -> Iterator[doctest.DocTest]:
    for kind in _EXAMPLES:
        for example in doctest.DocTestFinder(recurse=True).find(kind, kind.__name__, globs={}):
            if example.examples:
                yield example


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the examples use: a checkpoint of 14 batches, a savepoint of it, an interrupted rewind."""
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=tmp_path / "home", savepoints=str(tmp_path / "savepoints"))
    checkpoint = respool.Checkpoint(checkpoints.unpack(tmp_path, "kafka").rename(tmp_path / "query"), settings=settings)
    savepoints = respool.Savepoints(settings=settings)
    savepoint = savepoints.create(checkpoint, "monday")
    return {
        "respool": respool,
        "timedelta": timedelta,
        "folder": tmp_path,
        "checkpoint": checkpoint,
        "savepoints": savepoints,
        "savepoint": savepoint,
        "interrupted": _interrupted(tmp_path, settings),
    }


def _interrupted(folder: Path, settings: Settings) -> respool.Checkpoint:
    """Return a checkpoint whose rewind by two batches was interrupted half-way."""
    root = checkpoints.unpack(folder, "kafka").rename(folder / "interrupted")
    checkpoint = respool.Checkpoint(root, settings=settings)
    plan = checkpoint.plan_rewind(last=2)
    blocked = root / plan.journal.moves[5].target
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    with pytest.raises(CheckpointError, match="both"):
        apply.apply(plan.journal, LocalWriter(root))
    blocked.unlink()
    return checkpoint


@pytest.mark.parametrize("example", list(_examples()), ids=lambda example: example.name)
def test_the_example_of_a_public_name_works(example: doctest.DocTest, names: dict[str, Any]) -> None:
    example.globs = dict(names)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=_FLAGS).run(example, out=output.append)
    assert result.attempted
    assert not result.failed, "".join(output)


def test_every_public_name_has_an_example_that_is_executed() -> None:
    assert {kind.__name__ for kind in _EXAMPLES} | _EXECUTED_THERE == _PUBLIC - {"__version__"}
    executed = {example.name.partition(".")[0] for example in _examples()}
    assert executed == {kind.__name__ for kind in _EXAMPLES}


@pytest.mark.parametrize("kind", [respool.Checkpoint, respool.Savepoints, respool.Savepoint])
def test_every_public_method_has_an_example(kind: type) -> None:
    for name, member in vars(kind).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            assert ">>> " in str(member.__doc__), name


@pytest.mark.parametrize(
    "expression",
    [
        "checkpoint",
        "checkpoint.status()",
        "checkpoint.summary()",
        "respool.find_pipeline('visit-counts')",
        "checkpoint.verify()",
        "checkpoint.plan_rewind(last=2)",
        "checkpoint.rewind(last=2)",
        "checkpoint.purge()",
        "checkpoint.state_choices()",
        "checkpoint.state_query()",
        "checkpoint.plan_restore(savepoint)",
        "interrupted.plan_rewind(last=2)",
        "interrupted.plan_undo()",
        "savepoints",
        "savepoint",
        "savepoint.verify()",
    ],
)
def test_a_public_object_is_shown_in_one_line(expression: str, names: dict[str, Any]) -> None:
    text = repr(eval(expression, names))
    assert "\n" not in text
    assert len(text) < 250
    assert " object at 0x" not in text


def test_no_package_hides_a_public_function() -> None:
    packages = {module.name for module in iter_modules(respool.__path__)}
    assert not packages & set(respool.__all__)
