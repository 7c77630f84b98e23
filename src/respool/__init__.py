"""respool runs a Spark Structured Streaming pipeline, and runs it again."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from respool._version import __version__

if TYPE_CHECKING:
    from respool.archive.sink import archive_pipeline
    from respool.checkpoint.journal.steps import Journal
    from respool.checkpoint.state.reader import StateRows
    from respool.checkpoint.summary import CheckpointSummary
    from respool.decoders.json import JsonDecoder
    from respool.errors import (
        BatchUnavailableError,
        BrokerError,
        BrokerUnreachable,
        ChangeRefusedError,
        CheckpointChangedError,
        CheckpointError,
        CheckpointInUseError,
        CheckpointNotFoundError,
        DamagedFileError,
        DiffError,
        FileError,
        ForeignJournalError,
        MachineError,
        PipelineError,
        QueryError,
        Refusal,
        ReprocessError,
        RespoolError,
        SettingsError,
        TopicError,
        UnfinishedChangeError,
        UnknownFormatVersionError,
        UnreadableFileError,
        UsageError,
    )
    from respool.operations.check import Finding, check
    from respool.operations.checkpoint import Checkpoint, CheckpointReport, CheckpointStatus, PurgeResult
    from respool.operations.plans import InstallPlan, ResumePlan, RewindPlan, UndoPlan
    from respool.operations.savepoints import Savepoint, SavepointReport, Savepoints
    from respool.operations.state import StateChoices, StateQuery
    from respool.pipeline.definition import Pipeline
    from respool.pipeline.results import ArrivalDependent, Sessions, Windows
    from respool.settings import Settings
    from respool.sinks.console import ConsoleSink, FunctionSink
    from respool.sinks.delta import DeltaSink
    from respool.sinks.kafka import KafkaSink

__all__ = [
    "ArrivalDependent",
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
    "ConsoleSink",
    "DamagedFileError",
    "DeltaSink",
    "DiffError",
    "FileError",
    "Finding",
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
    "ReprocessError",
    "RespoolError",
    "ResumePlan",
    "RewindPlan",
    "Savepoint",
    "SavepointReport",
    "Savepoints",
    "Sessions",
    "Settings",
    "SettingsError",
    "StateChoices",
    "StateQuery",
    "StateRows",
    "TopicError",
    "UndoPlan",
    "UnfinishedChangeError",
    "UnknownFormatVersionError",
    "UnreadableFileError",
    "UsageError",
    "Windows",
    "__version__",
    "archive_pipeline",
    "check",
]

_MODULES = {
    "ArrivalDependent": "pipeline.results",
    "BatchUnavailableError": "errors",
    "BrokerError": "errors",
    "BrokerUnreachable": "errors",
    "ChangeRefusedError": "errors",
    "Checkpoint": "operations.checkpoint",
    "CheckpointChangedError": "errors",
    "CheckpointError": "errors",
    "CheckpointInUseError": "errors",
    "CheckpointNotFoundError": "errors",
    "CheckpointReport": "operations.checkpoint",
    "CheckpointStatus": "operations.checkpoint",
    "CheckpointSummary": "checkpoint.summary",
    "ConsoleSink": "sinks.console",
    "DamagedFileError": "errors",
    "DeltaSink": "sinks.delta",
    "DiffError": "errors",
    "FileError": "errors",
    "Finding": "operations.check",
    "ForeignJournalError": "errors",
    "FunctionSink": "sinks.console",
    "InstallPlan": "operations.plans",
    "Journal": "checkpoint.journal.steps",
    "JsonDecoder": "decoders.json",
    "KafkaSink": "sinks.kafka",
    "MachineError": "errors",
    "Pipeline": "pipeline.definition",
    "PipelineError": "errors",
    "PurgeResult": "operations.checkpoint",
    "QueryError": "errors",
    "Refusal": "errors",
    "ReprocessError": "errors",
    "RespoolError": "errors",
    "ResumePlan": "operations.plans",
    "RewindPlan": "operations.plans",
    "Savepoint": "operations.savepoints",
    "SavepointReport": "operations.savepoints",
    "Savepoints": "operations.savepoints",
    "Sessions": "pipeline.results",
    "Settings": "settings",
    "SettingsError": "errors",
    "StateChoices": "operations.state",
    "StateQuery": "operations.state",
    "StateRows": "checkpoint.state.reader",
    "TopicError": "errors",
    "UndoPlan": "operations.plans",
    "UnfinishedChangeError": "errors",
    "UnknownFormatVersionError": "errors",
    "UnreadableFileError": "errors",
    "UsageError": "errors",
    "Windows": "pipeline.results",
    "archive_pipeline": "archive.sink",
    "check": "operations.check",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: commands that need no pipeline start sooner."""
    if name in _MODULES:
        return getattr(import_module(f"respool.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'respool' has no attribute {name!r}")
