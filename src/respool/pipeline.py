"""A pipeline: a named source → decode → transform → sink, as data."""

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from respool.decode import JsonDecoder, decode, decode_events
from respool.errors import PipelineError, RespoolError, did_you_mean
from respool.results import Results, Sessions, Windows
from respool.settings import check_timezone
from respool.sinks import RejectedSink, Sink
from respool.span import parse_duration, spark_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The pipelines that come with respool. Each name leads to a function whose keyword arguments are the parameters.
BUILT_IN: Mapping[str, str] = {
    "visit-counts": "respool.visits.counts:visit_counts",
    "visits-archive": "respool.visits.archive:visits_archive",
    "browser-visits-archive": "respool.visits.archive:browser_visits_archive",
    "visit-windows": "respool.visits.counts:visit_windows",
    "sessions": "respool.visits.sessions:sessions",
    "browser-stats-stateless": "respool.visits.browsers:browser_stats_stateless",
    "browser-stats-stateful": "respool.visits.browsers:browser_stats_stateful",
    "micro-batch": "respool.visits.micro_batch:micro_batch",
}


@dataclass(frozen=True)
class Parameter:
    """What can be set in a pipeline with `--set NAME=VALUE` or in respool.toml.

    Attributes:
        pipeline: The pipeline's name.
        name: Its own.
        default: What it is when it is not set.
        kind: Its type.
    """

    pipeline: str
    name: str
    default: object
    kind: object

    def read(self, value: object) -> object:
        """Return the value of this parameter from text, or from what a settings file gave."""
        if self.kind is int or self.kind == int | None:
            try:
                return int(str(value))
            except ValueError:
                raise self._unreadable(value, "a whole number") from None
        if self.kind is bool:
            if str(value).lower() not in ("true", "false"):
                raise self._unreadable(value, "true or false")
            return str(value).lower() == "true"
        if not isinstance(value, str) or not value:
            raise self._unreadable(value, "text")
        return value

    def _unreadable(self, value: object, expected: str) -> PipelineError:
        return PipelineError(f"The parameter {self.name} of {self.pipeline} is {value!r}; expected {expected}.")


@dataclass(frozen=True)
class Pipeline:
    """A named way from records to results, the same for a stream and for a batch.

    Attributes:
        name: Letters, digits, dots, dashes and underscores; the name of its checkpoint too.
        topic: The Kafka topic it reads.
        transform: Events in, results out, with no notion of stream or batch. Without a decoder it gets the records.
        sink: Where the results go.
        decode: How records become events; None for a pipeline of raw records.
        summary: What it does, in a line.
        watermark: How late an event may come, such as `10 minutes`; None for no watermark.
        output_mode: Spark's output mode.
        trigger: The time from batch to batch, such as `20 seconds`; None to start one as soon as the last is done.
        max_offsets_per_trigger: How many records a batch takes at most; None for all there are.
        timezone: The zone in which event times without a zone are read, and results are rendered.
        spark: Spark settings of its own session.
        stateless: The transform sees one batch at a time, and nothing is kept from batch to batch.
        results: How results relate to event time, so that a span of them can be computed again; None if nothing is
            known.
        archive: The archive of its topic, a Delta table's path or URL; None for `<topic>_table`.
        fixed: Parameters that its state is laid out by: a checkpoint keeps their values, and refuses others.
    """

    name: str
    topic: str
    transform: "Callable[[DataFrame], DataFrame]"
    sink: Sink
    decode: JsonDecoder | None = None
    summary: str = ""
    watermark: str | None = None
    output_mode: Literal["append", "update", "complete"] = "append"
    trigger: str | None = None
    max_offsets_per_trigger: int | None = None
    timezone: str = "UTC"
    spark: Mapping[str, str] = field(default_factory=dict)
    stateless: bool = False
    results: Results | None = None
    archive: str | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what could only fail later."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise PipelineError(
                f"'{self.name}' is no name for a pipeline. Use letters, digits, dots, dashes and underscores."
            )
        if self.watermark and self.stateless:
            raise PipelineError(f"The pipeline {self.name} is stateless: a watermark would do nothing. Leave it out.")
        if self.watermark and self.decode is None:
            raise PipelineError(f"The pipeline {self.name} has a watermark but no decoder. Give it one, or neither.")
        check_timezone(self.timezone)
        if self.watermark is not None:
            spark_interval(self.watermark)
        if self.trigger is not None:
            parse_duration(self.trigger)
        if isinstance(self.results, Windows | Sessions) and (self.decode is None or self.stateless):
            kind = "has no decoder" if self.decode is None else "is stateless"
            raise PipelineError(
                f"The pipeline {self.name} {kind}: its results cannot be windows or sessions of event time. "
                "Leave `results` out, or give it a decoder and a state."
            )

    @property
    def is_companion(self) -> bool:
        """Whether it keeps the rejected records of other pipelines."""
        return isinstance(self.sink, RejectedSink)

    def stream(self, records: "DataFrame") -> "DataFrame":
        """Return the streaming part of the pipeline; `each_batch` completes every batch of it.

        Rejected records are counted for the batch line.
        """
        if self.decode is None:
            return records if self.stateless else self.transform(records)
        rows = decode_events(records, self.decode, "respool")
        if self.watermark:
            rows = rows.withWatermark(self.decode.event_time, spark_interval(self.watermark))
        return rows if self.stateless else self.transform(rows)

    def each_batch(self, rows: "DataFrame") -> "DataFrame":
        """Return the results of one batch of `stream`."""
        return self.transform(rows) if self.stateless else rows

    def describe(self) -> dict[str, str]:
        """Return what it reads, does and writes, for `respool pipelines`."""
        return {
            "pipeline": self.name,
            "reads": f"Kafka topic {self.topic}",
            "does": self.summary,
            "writes": self.sink.describe(),
        }


def rejected(topic: str, decoder: JsonDecoder) -> Pipeline:
    """Return the companion of all pipelines that read `topic` with `decoder`: it keeps the rejected records."""
    digest = hashlib.sha256(f"{decoder.schema}\n{decoder.event_time}".encode()).hexdigest()[:8]
    return Pipeline(
        name=f"rejected-{topic}-{digest}",
        topic=topic,
        transform=lambda records: decode(records, decoder).where("rejected IS NOT NULL"),
        sink=RejectedSink(f"{topic}-rejected"),
        summary=f"Keeps the records of {topic} that do not decode",
    )


def find(name: str, values: Mapping[str, object] | None = None) -> Pipeline:
    """Return a pipeline by its name, or by `module:object` from a module that can be imported.

    Args:
        name: One of BUILT_IN, or `module:object`: a Pipeline, or a function that makes one.
        values: Parameters that differ from their defaults, as text or as what they are.
    """
    found = _load(name)
    values = values or {}
    if isinstance(found, Pipeline):
        if values:
            raise PipelineError(
                f"{name} is a Pipeline without parameters; found {', '.join(values)}. To have some, make it a function "
                "with keyword arguments that returns a Pipeline."
            )
        return found
    known = {one.name: one for one in parameters(name)}
    for key in values:
        if key not in known:
            raise PipelineError(
                f"The pipeline {name} has no parameter '{key}'.{did_you_mean(key, list(known))} "
                f"Its parameters are: {', '.join(known) or 'none'}."
            )
    made = _call(found, {key: known[key].read(value) for key, value in values.items()}, name)
    if not isinstance(made, Pipeline):
        raise PipelineError(
            f"{name} is a {type(made).__name__}; expected a respool.Pipeline, or a function that makes one."
        )
    return made


def parameters(name: str) -> list[Parameter]:
    """Return the parameters of a pipeline: the keyword arguments of the function that makes it."""
    found = _load(name)
    if isinstance(found, Pipeline) or not callable(found):
        return []
    try:
        arguments = inspect.signature(found, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise PipelineError(f"{name} cannot be called to make a pipeline: {error}.") from error
    return [Parameter(name, one.name, one.default, one.annotation) for one in arguments]


def _load(name: str) -> object:
    target = BUILT_IN.get(name, name)
    module_name, _, attribute = target.partition(":")
    if not (module_name and attribute):
        known = ", ".join(BUILT_IN)
        raise PipelineError(
            f"There is no pipeline '{name}'.{did_you_mean(name, list(BUILT_IN))} The pipelines are: {known}. "
            "One of your own is named module:object, such as my_app.pipelines:orders."
        )
    module = _import(module_name, name)
    found: object = getattr(module, attribute, None)
    if found is None:
        raise PipelineError(f"The module {module_name} has no '{attribute}'. Check the name behind the colon.")
    return found


def _call(make: object, values: Mapping[str, object], name: str) -> object:
    if not callable(make):
        return make
    try:
        return make(**values)
    except RespoolError:
        raise
    except Exception as error:
        raise PipelineError(f"{name}() does not make a pipeline: {type(error).__name__}: {error}") from error


def _import(module_name: str, name: str) -> object:
    # As `python -m` does: a module in the working folder can be named. Python workers get the same path from Spark.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise PipelineError(
                f"The module {module_name} of {name} cannot be found. Run respool in its folder, or install it."
            ) from error
        raise PipelineError(f"The module {module_name} needs {error.name}, which is not installed.") from error
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:
        raise PipelineError(f"The module {module_name} cannot be imported: {type(error).__name__}: {error}") from error
