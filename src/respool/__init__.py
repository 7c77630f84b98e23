"""respool runs a Spark Structured Streaming pipeline, and runs it again."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from respool._version import __version__

if TYPE_CHECKING:
    from respool.archive.model import ArchiveContents
    from respool.archive.sink import archive_pipeline
    from respool.decoders.json import JsonDecoder
    from respool.diff.model import Cutoff
    from respool.diff.report import DiffReport
    from respool.errors import (
        BatchUnavailableError,
        BrokerError,
        BrokerUnreachable,
        ChangeRefusedError,
        CheckpointError,
        CheckpointInUseError,
        CheckpointNotFoundError,
        DamagedFileError,
        DiffError,
        FileError,
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
    from respool.operations.archive import Archive, ArchiveReport, CompactionResult, RepairResult
    from respool.operations.check import Finding, check
    from respool.operations.diff import diff
    from respool.operations.reprocess import ReprocessPreview, ReprocessRun, audit, plan_reprocess, preview, reprocess
    from respool.operations.run import find_pipeline, load_settings, run, start
    from respool.pipeline.definition import Pipeline
    from respool.pipeline.results import ArrivalDependent, Sessions, Windows
    from respool.reprocess.audit_report import AuditReport
    from respool.reprocess.plan import ReprocessPlan
    from respool.running.progress import BatchProgress
    from respool.running.runner import Runner
    from respool.settings import Settings
    from respool.sinks.console import ConsoleSink, FunctionSink
    from respool.sinks.delta import DeltaSink
    from respool.sinks.kafka import KafkaSink

__all__ = [
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
    "CheckpointError",
    "CheckpointInUseError",
    "CheckpointNotFoundError",
    "CompactionResult",
    "ConsoleSink",
    "Cutoff",
    "DamagedFileError",
    "DeltaSink",
    "DiffError",
    "DiffReport",
    "FileError",
    "Finding",
    "FunctionSink",
    "JsonDecoder",
    "KafkaSink",
    "MachineError",
    "Pipeline",
    "PipelineError",
    "QueryError",
    "Refusal",
    "RepairResult",
    "ReprocessError",
    "ReprocessPlan",
    "ReprocessPreview",
    "ReprocessRun",
    "RespoolError",
    "Runner",
    "Sessions",
    "Settings",
    "SettingsError",
    "TopicError",
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
    "AuditReport": "reprocess.audit_report",
    "BatchProgress": "running.progress",
    "BatchUnavailableError": "errors",
    "BrokerError": "errors",
    "BrokerUnreachable": "errors",
    "ChangeRefusedError": "errors",
    "CheckpointError": "errors",
    "CheckpointInUseError": "errors",
    "CheckpointNotFoundError": "errors",
    "CompactionResult": "operations.archive",
    "ConsoleSink": "sinks.console",
    "Cutoff": "diff.model",
    "DamagedFileError": "errors",
    "DeltaSink": "sinks.delta",
    "DiffError": "errors",
    "DiffReport": "diff.report",
    "FileError": "errors",
    "Finding": "operations.check",
    "FunctionSink": "sinks.console",
    "JsonDecoder": "decoders.json",
    "KafkaSink": "sinks.kafka",
    "MachineError": "errors",
    "Pipeline": "pipeline.definition",
    "PipelineError": "errors",
    "QueryError": "errors",
    "Refusal": "errors",
    "RepairResult": "operations.archive",
    "ReprocessError": "errors",
    "ReprocessPlan": "reprocess.plan",
    "ReprocessPreview": "operations.reprocess",
    "ReprocessRun": "operations.reprocess",
    "RespoolError": "errors",
    "Runner": "running.runner",
    "Sessions": "pipeline.results",
    "Settings": "settings",
    "SettingsError": "errors",
    "TopicError": "errors",
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
