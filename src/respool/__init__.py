"""Rewind, fork, audit and reprocess Spark Structured Streaming queries, and run pipelines of your own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from respool._version import __version__

if TYPE_CHECKING:
    from respool.archive.model import ArchiveContents
    from respool.archive.sink import archive_pipeline
    from respool.checkpoint.journal.steps import Journal
    from respool.checkpoint.state.reader import StateRows
    from respool.checkpoint.summary import CheckpointSummary
    from respool.comparing.model import Cutoff
    from respool.comparing.report import DiffReport
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
        StoreError,
        TopicError,
        UnfinishedChangeError,
        UnknownFormatVersionError,
        UnreadableFileError,
        UsageError,
    )
    from respool.operations.archive import Archive, ArchiveReport, CompactionResult, RepairResult
    from respool.operations.check import DefinitionFinding, check
    from respool.operations.checkpoint import Checkpoint
    from respool.operations.checkpoint_results import (
        CheckpointReport,
        CheckpointStatus,
        PurgeResult,
        StateChoices,
        StateQuery,
    )
    from respool.operations.diff import diff
    from respool.operations.plans import InstallPlan, ResumePlan, RewindPlan, UndoPlan
    from respool.operations.reprocess import ReprocessPreview, ReprocessRun, audit, plan_reprocess, preview, reprocess
    from respool.operations.run import find_pipeline, load_settings, run, start
    from respool.operations.savepoints import Savepoint, SavepointReport, Savepoints
    from respool.pipeline.definition import Pipeline
    from respool.pipeline.results import ArrivalDependent, Sessions, Windows
    from respool.reprocessing.audit_report import AuditReport
    from respool.reprocessing.plan import ReprocessPlan
    from respool.running.progress import BatchProgress
    from respool.running.runner import Runner
    from respool.settings import Settings
    from respool.sinks.avro import AvroFormat
    from respool.sinks.console import ConsoleSink, FunctionSink
    from respool.sinks.delta import DeltaSink
    from respool.sinks.files import FileSink
    from respool.sinks.kafka import KafkaSink
    from respool.sinks.postgres.sink import JdbcSink

__all__ = [
    "Archive",
    "ArchiveContents",
    "ArchiveReport",
    "ArrivalDependent",
    "AuditReport",
    "AvroFormat",
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
    "DefinitionFinding",
    "DeltaSink",
    "DiffError",
    "DiffReport",
    "FileError",
    "FileSink",
    "ForeignJournalError",
    "FunctionSink",
    "InstallPlan",
    "JdbcSink",
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
    "SinkError",
    "SinkUnreachable",
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
]

_MODULES = {
    "Archive": "operations.archive",
    "ArchiveContents": "archive.model",
    "ArchiveReport": "operations.archive",
    "ArrivalDependent": "pipeline.results",
    "AuditReport": "reprocessing.audit_report",
    "AvroFormat": "sinks.avro",
    "BatchProgress": "running.progress",
    "BatchUnavailableError": "errors",
    "BrokerError": "errors",
    "BrokerUnreachable": "errors",
    "ChangeRefusedError": "errors",
    "Checkpoint": "operations.checkpoint",
    "CheckpointChangedError": "errors",
    "CheckpointError": "errors",
    "CheckpointInUseError": "errors",
    "CheckpointNotFoundError": "errors",
    "CompactionResult": "operations.archive",
    "CheckpointReport": "operations.checkpoint_results",
    "CheckpointStatus": "operations.checkpoint_results",
    "CheckpointSummary": "checkpoint.summary",
    "ConsoleSink": "sinks.console",
    "Cutoff": "comparing.model",
    "DamagedFileError": "errors",
    "DeltaSink": "sinks.delta",
    "DiffError": "errors",
    "DiffReport": "comparing.report",
    "FileError": "errors",
    "DefinitionFinding": "operations.check",
    "ForeignJournalError": "errors",
    "FileSink": "sinks.files",
    "FunctionSink": "sinks.console",
    "InstallPlan": "operations.plans",
    "Journal": "checkpoint.journal.steps",
    "JsonDecoder": "decoders.json",
    "JdbcSink": "sinks.postgres.sink",
    "KafkaSink": "sinks.kafka",
    "MachineError": "errors",
    "Pipeline": "pipeline.definition",
    "PipelineError": "errors",
    "PurgeResult": "operations.checkpoint_results",
    "QueryError": "errors",
    "Refusal": "errors",
    "RepairResult": "operations.archive",
    "ReprocessError": "errors",
    "ReprocessPlan": "reprocessing.plan",
    "ReprocessPreview": "operations.reprocess",
    "ReprocessRun": "operations.reprocess",
    "RespoolError": "errors",
    "Runner": "running.runner",
    "ResumePlan": "operations.plans",
    "RewindPlan": "operations.plans",
    "Savepoint": "operations.savepoints",
    "SavepointReport": "operations.savepoints",
    "Savepoints": "operations.savepoints",
    "Sessions": "pipeline.results",
    "Settings": "settings",
    "SettingsError": "errors",
    "SinkError": "errors",
    "SinkUnreachable": "errors",
    "StateChoices": "operations.checkpoint_results",
    "StateQuery": "operations.checkpoint_results",
    "StateRows": "checkpoint.state.reader",
    "StoreError": "errors",
    "TopicError": "errors",
    "UndoPlan": "operations.plans",
    "UnfinishedChangeError": "errors",
    "UnknownFormatVersionError": "errors",
    "UnreadableFileError": "errors",
    "UsageError": "errors",
    "Windows": "pipeline.results",
    "archive_pipeline": "archive.sink",
    "audit": "operations.reprocess",
    "check": "operations.check",
    "diff": "operations.diff",
    "find_pipeline": "operations.run",
    "load_settings": "operations.run",
    "plan_reprocess": "operations.reprocess",
    "preview": "operations.reprocess",
    "reprocess": "operations.reprocess",
    "run": "operations.run",
    "start": "operations.run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: commands that need no pipeline start sooner."""
    if name in _MODULES:
        return getattr(import_module(f"respool.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'respool' has no attribute {name!r}")
