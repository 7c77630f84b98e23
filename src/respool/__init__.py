"""respool runs a Spark Structured Streaming pipeline, and runs it again."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from respool.decode import JsonDecoder
    from respool.errors import RespoolError
    from respool.pipeline import Pipeline
    from respool.sinks import ConsoleSink, FunctionSink, KafkaSink

__version__ = "0.1.0"
__all__ = ["ConsoleSink", "FunctionSink", "JsonDecoder", "KafkaSink", "Pipeline", "RespoolError", "__version__"]

_MODULES = {
    "ConsoleSink": "sinks",
    "FunctionSink": "sinks",
    "JsonDecoder": "decode",
    "KafkaSink": "sinks",
    "Pipeline": "pipeline",
    "RespoolError": "errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: commands that need no pipeline start sooner."""
    if name in _MODULES:
        return getattr(import_module(f"respool.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'respool' has no attribute {name!r}")
