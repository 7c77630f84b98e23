"""respool runs a Spark Structured Streaming pipeline, and runs it again."""

__version__ = "0.1.0"
