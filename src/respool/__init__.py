"""respool runs a Spark Structured Streaming pipeline, and runs it again."""

__version__ = "0.1.0"

from respool.decode import JsonDecoder
from respool.errors import RespoolError
from respool.pipeline import Pipeline
from respool.sinks import ConsoleSink, FunctionSink, KafkaSink

__all__ = ["ConsoleSink", "FunctionSink", "JsonDecoder", "KafkaSink", "Pipeline", "RespoolError", "__version__"]
