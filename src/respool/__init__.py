"""respool runs a Spark Structured Streaming pipeline, and runs it again."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from respool.archive.pipelines import archive_of
    from respool.checking import Finding, check
    from respool.decode import JsonDecoder
    from respool.delta_sink import DeltaSink
    from respool.errors import RespoolError
    from respool.pipeline import Pipeline
    from respool.results import ByArrival, Sessions, Windows
    from respool.sinks import ConsoleSink, FunctionSink, KafkaSink

__version__ = "0.1.0"
__all__ = [
    "ByArrival",
    "ConsoleSink",
    "DeltaSink",
    "Finding",
    "FunctionSink",
    "JsonDecoder",
    "KafkaSink",
    "Pipeline",
    "RespoolError",
    "Sessions",
    "Windows",
    "__version__",
    "archive_of",
    "check",
]

_MODULES = {
    "ByArrival": "results",
    "ConsoleSink": "sinks",
    "DeltaSink": "delta_sink",
    "Finding": "checking",
    "FunctionSink": "sinks",
    "JsonDecoder": "decode",
    "KafkaSink": "sinks",
    "Pipeline": "pipeline",
    "RespoolError": "errors",
    "Sessions": "results",
    "Windows": "results",
    "archive_of": "archive.pipelines",
    "check": "checking",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: commands that need no pipeline start sooner."""
    if name in _MODULES:
        return getattr(import_module(f"respool.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'respool' has no attribute {name!r}")
