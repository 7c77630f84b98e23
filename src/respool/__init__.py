"""respool runs a Spark Structured Streaming pipeline, and runs it again."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from respool._version import __version__

if TYPE_CHECKING:
    from respool.archive.sink import archive_pipeline
    from respool.decoders.json import JsonDecoder
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
    from respool.operations.check import Finding, check
    from respool.pipeline.definition import Pipeline
    from respool.pipeline.results import ArrivalDependent, Sessions, Windows
    from respool.sinks.console import ConsoleSink, FunctionSink
    from respool.sinks.delta import DeltaSink
    from respool.sinks.kafka import KafkaSink

__all__ = [
    "ArrivalDependent",
    "BatchUnavailableError",
    "BrokerError",
    "BrokerUnreachable",
    "ChangeRefusedError",
    "CheckpointError",
    "CheckpointInUseError",
    "CheckpointNotFoundError",
    "ConsoleSink",
    "DamagedFileError",
    "DeltaSink",
    "DiffError",
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
    "ReprocessError",
    "RespoolError",
    "Sessions",
    "SettingsError",
    "TopicError",
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
    "BatchUnavailableError": "errors",
    "BrokerError": "errors",
    "BrokerUnreachable": "errors",
    "ArrivalDependent": "pipeline.results",
    "ChangeRefusedError": "errors",
    "CheckpointError": "errors",
    "CheckpointInUseError": "errors",
    "CheckpointNotFoundError": "errors",
    "ConsoleSink": "sinks.console",
    "DamagedFileError": "errors",
    "DeltaSink": "sinks.delta",
    "DiffError": "errors",
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
    "ReprocessError": "errors",
    "RespoolError": "errors",
    "Sessions": "pipeline.results",
    "SettingsError": "errors",
    "TopicError": "errors",
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
