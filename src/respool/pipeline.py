"""A pipeline: a named source → decode → transform → sink, as data."""

import hashlib
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from respool.decode import JsonDecoder, decode, decode_events
from respool.errors import PipelineError, RespoolError, SettingsError, did_you_mean
from respool.parameters import Parameter, parameters_of
from respool.results import Results, Sessions, Windows
from respool.settings import check_timezone
from respool.sinks import RejectedSink, Sink
from respool.span import parse_duration, spark_interval
from respool.sql import literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputMode = Literal["append", "update", "complete"]
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
    output_mode: OutputMode = "append"
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


def rejected(topic: str, decoders: Mapping[JsonDecoder, Sequence[str]]) -> Pipeline:
    """Return the companion of pipelines that read `topic`: it keeps the records that one of their decoders rejects.

    Each record is kept once, however many decoders reject it.

    Args:
        topic: The topic.
        decoders: The decoders, each with the names of its pipelines.
    """
    digests = sorted(_digest(f"{one.schema}\n{one.event_time}") for one in decoders)
    return Pipeline(
        name=f"rejected-{topic}-{digests[0] if len(digests) == 1 else _digest(' '.join(digests))}",
        topic=topic,
        transform=lambda records: _rejected_by_any(records, decoders),
        sink=RejectedSink(f"{topic}-rejected"),
        summary=f"Keeps the records of {topic} that do not decode",
    )


def _rejected_by_any(records: "DataFrame", decoders: Mapping[JsonDecoder, Sequence[str]]) -> "DataFrame":
    """Return the rejected records: `rejected` has the reasons; `rejected_by` the pipelines, of several decoders."""
    if len(decoders) == 1:
        [decoder] = decoders
        return decode(records, decoder).where("rejected IS NOT NULL")
    rows, columns = records, records.columns
    reasons = [f"_respool_reason_{number}" for number in range(len(decoders))]
    for reason, decoder in zip(reasons, decoders, strict=True):
        rows = decode(rows, decoder).withColumnRenamed("rejected", reason).drop("event")
    names = (
        f"CASE WHEN {reason} IS NOT NULL THEN {literal(', '.join(sorted(names)))} END"
        for reason, names in zip(reasons, decoders.values(), strict=True)
    )
    return rows.where(f"coalesce({', '.join(reasons)}) IS NOT NULL").selectExpr(
        *map(quoted, columns),
        f"array_join(array_distinct(array_compact(array({', '.join(reasons)}))), '; ') AS rejected",
        f"concat_ws(', ', {', '.join(names)}) AS rejected_by",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


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
    for one in known.values():
        if one.is_required and one.name not in values:
            raise PipelineError(
                f"The pipeline {name} needs a value for its parameter '{one.name}'. Set it with --set "
                f'{one.name}=VALUE, or in [pipelines."{name}"] of respool.toml.'
            )
    made = _call(found, {key: known[key].read(value) for key, value in values.items()}, name)
    if not isinstance(made, Pipeline):
        raise PipelineError(
            f"{name} is a {type(made).__name__}; expected a respool.Pipeline, or a function that makes one."
        )
    return made


def section_values(names: Sequence[str], sections: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return the parameters that respool.toml sets for each pipeline.

    The section of a pipeline is `[pipelines.NAME]` with its name in a command, such as "shop:orders", or with the name
    that the Pipeline has itself.

    Args:
        names: The pipelines of a command.
        sections: The tables under `pipelines` in respool.toml.

    Raises:
        SettingsError: A section is not of any pipeline.
    """
    values: dict[str, dict[str, object]] = {}
    used = set(names)
    for name in names:
        values[name] = dict(sections.get(name, {}))
        own = _own_name(name, values[name]) if set(sections) - used - set(BUILT_IN) else name
        if own != name and own not in BUILT_IN and own in sections:
            values[name] = {**sections[own], **values[name]}
            used.add(own)
    for section in sections:
        if section not in used and section not in BUILT_IN and ":" not in section:
            raise SettingsError(
                f"[pipelines.{section}] in respool.toml is not of a pipeline."
                f"{did_you_mean(section, [*BUILT_IN, *names])} The pipelines are: {', '.join(BUILT_IN)}. For a "
                "pipeline of your own write its module and object: "
                f'[pipelines."my_app.pipelines:{section}"].'
            )
    return values


def _own_name(name: str, values: Mapping[str, object]) -> str:
    """Return the name that a pipeline has itself; as far as it can be made without more parameters."""
    try:
        found = _load(name)
        return found.name if isinstance(found, Pipeline) else find(name, values).name
    except RespoolError:  # reported when it is made with all its parameters
        return name.rpartition(":")[2]


def parameters(name: str) -> list[Parameter]:
    """Return the parameters of a pipeline: the keyword arguments of the function that makes it."""
    found = _load(name)
    return parameters_of(found, name) if callable(found) and not isinstance(found, Pipeline) else []


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
