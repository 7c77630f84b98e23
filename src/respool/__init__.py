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
    from respool.decoders.avro import AvroDecoder
    from respool.decoders.csv import CsvDecoder
    from respool.decoders.function import FunctionDecoder
    from respool.decoders.json import JsonDecoder
    from respool.decoders.protobuf import ProtobufDecoder
    from respool.decoders.protocol import KAFKA_TIMESTAMP, Decoded, Decoder
    from respool.decoders.registry import SchemaRegistry
    from respool.decoders.text import RawDecoder, TextDecoder
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
        RegistryUnreachable,
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
    from respool.pipeline.inputs import Input
    from respool.pipeline.job import find_job
    from respool.pipeline.results import ArrivalDependent, Events, Sessions, Windows
    from respool.reprocessing.audit_report import AuditReport
    from respool.reprocessing.plan import ReprocessPlan
    from respool.running.attach import Attachment, attach
    from respool.running.progress import BatchProgress
    from respool.running.runner import Runner
    from respool.settings import Settings
    from respool.sinks.avro import AvroFormat
    from respool.sinks.console import ConsoleSink, FunctionSink
    from respool.sinks.delta import DeltaSink
    from respool.sinks.files import FileSink
    from respool.sinks.kafka import KafkaSink
    from respool.sinks.postgres.sink import JdbcSink
    from respool.sources.kafka import KafkaSource
    from respool.sources.spark import RateSource, SparkSource
    from respool.sources.tables import DeltaSource, FileSource

__all__ = [
    "KAFKA_TIMESTAMP",
    "Archive",
    "ArchiveContents",
    "ArchiveReport",
    "ArrivalDependent",
    "Attachment",
    "AuditReport",
    "AvroDecoder",
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
    "CsvDecoder",
    "Cutoff",
    "DamagedFileError",
    "Decoded",
    "Decoder",
    "DefinitionFinding",
    "DeltaSink",
    "DeltaSource",
    "DiffError",
    "DiffReport",
    "Events",
    "FileError",
    "FileSink",
    "FileSource",
    "ForeignJournalError",
    "FunctionDecoder",
    "FunctionSink",
    "Input",
    "InstallPlan",
    "JdbcSink",
    "Journal",
    "JsonDecoder",
    "KafkaSink",
    "KafkaSource",
    "MachineError",
    "Pipeline",
    "PipelineError",
    "ProtobufDecoder",
    "PurgeResult",
    "QueryError",
    "RateSource",
    "RawDecoder",
    "Refusal",
    "RegistryUnreachable",
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
    "SchemaRegistry",
    "Sessions",
    "Settings",
    "SettingsError",
    "SinkError",
    "SinkUnreachable",
    "SparkSource",
    "StateChoices",
    "StateQuery",
    "StateRows",
    "StoreError",
    "TextDecoder",
    "TopicError",
    "UndoPlan",
    "UnfinishedChangeError",
    "UnknownFormatVersionError",
    "UnreadableFileError",
    "UsageError",
    "Windows",
    "__version__",
    "archive_pipeline",
    "attach",
    "audit",
    "check",
    "diff",
    "find_job",
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
    "Attachment": "running.attach",
    "AuditReport": "reprocessing.audit_report",
    "AvroFormat": "sinks.avro",
    "AvroDecoder": "decoders.avro",
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
    "CheckpointReport": "operations.checkpoint_results",
    "CheckpointStatus": "operations.checkpoint_results",
    "CheckpointSummary": "checkpoint.summary",
    "CompactionResult": "operations.archive",
    "ConsoleSink": "sinks.console",
    "CsvDecoder": "decoders.csv",
    "Cutoff": "comparing.model",
    "DamagedFileError": "errors",
    "Decoded": "decoders.protocol",
    "Decoder": "decoders.protocol",
    "DefinitionFinding": "operations.check",
    "DeltaSink": "sinks.delta",
    "DeltaSource": "sources.tables",
    "DiffError": "errors",
    "DiffReport": "comparing.report",
    "Events": "pipeline.results",
    "FileError": "errors",
    "FileSource": "sources.tables",
    "ForeignJournalError": "errors",
    "FileSink": "sinks.files",
    "FunctionDecoder": "decoders.function",
    "FunctionSink": "sinks.console",
    "Input": "pipeline.inputs",
    "InstallPlan": "operations.plans",
    "Journal": "checkpoint.journal.steps",
    "JsonDecoder": "decoders.json",
    "JdbcSink": "sinks.postgres.sink",
    "KAFKA_TIMESTAMP": "decoders.protocol",
    "KafkaSink": "sinks.kafka",
    "KafkaSource": "sources.kafka",
    "MachineError": "errors",
    "Pipeline": "pipeline.definition",
    "PipelineError": "errors",
    "ProtobufDecoder": "decoders.protobuf",
    "PurgeResult": "operations.checkpoint_results",
    "QueryError": "errors",
    "RateSource": "sources.spark",
    "RawDecoder": "decoders.text",
    "Refusal": "errors",
    "RegistryUnreachable": "errors",
    "RepairResult": "operations.archive",
    "ReprocessError": "errors",
    "ReprocessPlan": "reprocessing.plan",
    "ReprocessPreview": "operations.reprocess",
    "ReprocessRun": "operations.reprocess",
    "RespoolError": "errors",
    "ResumePlan": "operations.plans",
    "RewindPlan": "operations.plans",
    "Runner": "running.runner",
    "Savepoint": "operations.savepoints",
    "SavepointReport": "operations.savepoints",
    "Savepoints": "operations.savepoints",
    "SchemaRegistry": "decoders.registry",
    "Sessions": "pipeline.results",
    "Settings": "settings",
    "SettingsError": "errors",
    "SinkError": "errors",
    "SinkUnreachable": "errors",
    "SparkSource": "sources.spark",
    "StateChoices": "operations.checkpoint_results",
    "StateQuery": "operations.checkpoint_results",
    "StateRows": "checkpoint.state.reader",
    "StoreError": "errors",
    "TextDecoder": "decoders.text",
    "TopicError": "errors",
    "UndoPlan": "operations.plans",
    "UnfinishedChangeError": "errors",
    "UnknownFormatVersionError": "errors",
    "UnreadableFileError": "errors",
    "UsageError": "errors",
    "Windows": "pipeline.results",
    "archive_pipeline": "archive.sink",
    "attach": "running.attach",
    "audit": "operations.reprocess",
    "check": "operations.check",
    "diff": "operations.diff",
    "find_job": "pipeline.job",
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
