"""respool runs a Spark Structured Streaming pipeline, and runs it again."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from respool.archive.pipelines import archive_of
    from respool.checking import Finding, check
    from respool.decode import JsonDecoder
    from respool.delta_sink import DeltaSink
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
    from respool.pipeline import Pipeline
    from respool.results import ByArrival, Sessions, Windows
    from respool.sinks import ConsoleSink, FunctionSink, KafkaSink

__version__ = "0.1.0"
__all__ = [
    "BatchUnavailableError",
    "BrokerError",
    "BrokerUnreachable",
    "ByArrival",
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
    "archive_of",
    "check",
]

_MODULES = {
    "BatchUnavailableError": "errors",
    "BrokerError": "errors",
    "BrokerUnreachable": "errors",
    "ByArrival": "results",
    "ChangeRefusedError": "errors",
    "CheckpointError": "errors",
    "CheckpointInUseError": "errors",
    "CheckpointNotFoundError": "errors",
    "ConsoleSink": "sinks",
    "DamagedFileError": "errors",
    "DeltaSink": "delta_sink",
    "DiffError": "errors",
    "FileError": "errors",
    "Finding": "checking",
    "FunctionSink": "sinks",
    "JsonDecoder": "decode",
    "KafkaSink": "sinks",
    "MachineError": "errors",
    "Pipeline": "pipeline",
    "PipelineError": "errors",
    "QueryError": "errors",
    "Refusal": "errors",
    "ReprocessError": "errors",
    "RespoolError": "errors",
    "Sessions": "results",
    "SettingsError": "errors",
    "TopicError": "errors",
    "UnfinishedChangeError": "errors",
    "UnknownFormatVersionError": "errors",
    "UnreadableFileError": "errors",
    "UsageError": "errors",
    "Windows": "results",
    "archive_of": "archive.pipelines",
    "check": "checking",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: commands that need no pipeline start sooner."""
    if name in _MODULES:
        return getattr(import_module(f"respool.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'respool' has no attribute {name!r}")
