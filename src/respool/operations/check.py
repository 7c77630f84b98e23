"""What can be refused without Spark, Kafka and Java: mistakes in respool.toml and in the definitions of pipelines."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from respool.decoders import json
from respool.errors import PipelineError, RespoolError
from respool.kafka.cluster import KafkaCluster, check_embedded
from respool.operations.context import settings_of
from respool.pipeline.definition import OutputMode, Pipeline
from respool.pipeline.registry import BUILT_IN, find_pipeline, section_values
from respool.pipeline.results import Sessions, Windows
from respool.settings import CONFIG_FILE, Settings
from respool.sinks.protocol import Sink
from respool.text import did_you_mean

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class DefinitionFinding:
    """The result of checking one thing.

    >>> respool.check("visit-counts", settings=respool.Settings())[1]
    DefinitionFinding(subject='visit-counts', level='ok', message='')

    Attributes:
        subject: `respool.toml`, or the name of a pipeline as it was given.
        level: `ok`; `wrong`: it cannot run; `doubtful`: it may run, but looks like a mistake.
        message: The problem, and how to correct it; empty for `ok`.
    """

    subject: str
    level: Literal["ok", "doubtful", "wrong"] = "ok"
    message: str = ""


def check(*pipelines: str, settings: Settings | None = None) -> list[DefinitionFinding]:
    """Check the settings and pipelines as far as that needs neither Spark nor Kafka.

    >>> [finding.level for finding in respool.check("visit-counts", settings=respool.Settings())]
    ['ok', 'ok']

    Args:
        pipelines: Names of built-in pipelines, or module:object; by default those that have a section in respool.toml.
        settings: The settings; by default those of respool.toml and of the environment.

    Returns:
        All findings of each subject; a single finding of level `ok` for a subject without problems.
    """
    try:
        settings = settings_of(settings)
        check_settings(settings)
    except RespoolError as error:
        return [DefinitionFinding(CONFIG_FILE, "wrong", str(error))]
    names = list(dict.fromkeys(pipelines or settings.pipelines))
    findings: list[DefinitionFinding] = []
    try:
        values = section_values(names if pipelines else list(filter(_is_name, names)), settings.pipelines)
    except RespoolError as error:
        findings.append(DefinitionFinding(CONFIG_FILE, "wrong", str(error)))
        names = list(filter(_is_name, names))
        values = {name: dict(settings.pipelines.get(name, {})) for name in names}
    else:
        findings.append(DefinitionFinding(CONFIG_FILE))
    for name in names:
        findings += _check_by_name(name, values[name])
    return findings


def require_sound(pipelines: Sequence[Pipeline], settings: Settings, *, jvm: bool = True) -> None:
    """Raise the first problem of settings and pipelines, before anything is started.

    Args:
        pipelines: The pipelines.
        settings: The settings.
        jvm: They are for something that needs a JVM: Spark Connect is refused.
    """
    check_settings(settings, jvm=jvm)
    for pipeline in pipelines:
        if problem := next(_problems(pipeline), None):
            raise PipelineError(problem)


def check_settings(settings: Settings, *, jvm: bool = True) -> None:
    """Raise SettingsError for settings that no run could use."""
    from respool.spark import connect

    if jvm:
        connect.refuse(settings)
    servers = settings.bootstrap_servers or settings.kafka.get("bootstrap.servers")
    if servers:
        kafka = KafkaCluster(
            servers, {name: value for name, value in settings.kafka.items() if name != "bootstrap.servers"}
        )
        kafka.for_client()
        kafka.for_spark()
    else:
        check_embedded(settings.kafka)


def _is_name(section: str) -> bool:
    return section in BUILT_IN or ":" in section


def _check_by_name(name: str, values: dict[str, object]) -> list[DefinitionFinding]:
    try:
        pipeline = find_pipeline(name, values)
    except RespoolError as error:
        return [DefinitionFinding(name, "wrong", str(error))]
    wrong = [DefinitionFinding(name, "wrong", problem) for problem in _problems(pipeline)]
    doubtful = [] if wrong else [DefinitionFinding(name, "doubtful", doubt) for doubt in _doubts(pipeline)]
    return [*wrong, *doubtful] or [DefinitionFinding(name)]


def _problems(pipeline: Pipeline) -> Iterator[str]:
    """Yield what is wrong with a pipeline, and would be reported by Spark or Kafka only after a while."""
    sink: Any = pipeline.sink
    topics = {"reads": pipeline.topic, "writes to": getattr(sink, "topic", None)}
    for does, topic in topics.items():
        if topic is not None and (not _TOPIC.fullmatch(topic) or topic in (".", "..")):
            yield (
                f"The pipeline {pipeline.name} {does} the topic '{topic}', which is not a name of a Kafka topic: "
                "expected up to 249 letters, digits, dots, dashes and underscores. Correct it."
            )
    if not isinstance(sink, Sink):
        yield (
            f"The pipeline {pipeline.name} writes to a {type(sink).__name__}, which is not a sink: it lacks one of the "
            "methods describe, replay_note, prepare and write. Use KafkaSink, DeltaSink, FunctionSink or ConsoleSink."
        )
    if not callable(pipeline.transform):
        yield f"The transform of the pipeline {pipeline.name} is not a function. Give it one from events to results."
    fields: list[str] | None = None
    try:
        for decoder in (pipeline.decode, getattr(sink, "decoder", None)):
            if decoder is not None:
                fields = json.check(decoder)
    except PipelineError as error:
        yield f"The pipeline {pipeline.name}: {error}"
    yield from _mode_problems(pipeline)
    yield from _key_problems(pipeline, fields if pipeline.decode is not None else None)


def _mode_problems(pipeline: Pipeline) -> Iterator[str]:
    mode = pipeline.output_mode
    if mode not in get_args(OutputMode):
        yield (
            f"The output mode of the pipeline {pipeline.name} is '{mode}'."
            f"{did_you_mean(str(mode), list(get_args(OutputMode)))} Expected append, update or complete."
        )
    if mode == "complete" and pipeline.stateless:
        yield (
            f"The pipeline {pipeline.name} is stateless, and its output mode is 'complete', which needs an "
            "aggregation. Use append."
        )
    if mode == "append" and pipeline.watermark is None and isinstance(pipeline.results, Windows | Sessions):
        yield (
            f"The pipeline {pipeline.name} has {pipeline.results.describe()} in the output mode 'append' and no "
            "watermark: no result would ever be complete. Give it a watermark, or use the output mode 'update'."
        )


def _key_problems(pipeline: Pipeline, fields: list[str] | None) -> Iterator[str]:
    key: tuple[str, ...] = getattr(pipeline.sink, "key", ())
    if isinstance(key, str) or not all(isinstance(name, str) and name for name in key):
        yield (
            f"The key of the sink of {pipeline.name} is {key!r}; expected a tuple of names of columns, such as "
            "('window', 'shop')."
        )
        return
    if len(set(key)) < len(key):
        yield f"The key of the sink of {pipeline.name} has a column twice: {', '.join(key)}. Leave one of them out."
    withdrawn = getattr(pipeline.sink, "withdrawn", None)
    if withdrawn in key:
        yield (
            f"The key of the sink of {pipeline.name} has the column {withdrawn}, which is not sent: it says that a "
            "result is withdrawn. Leave it out of the key."
        )
    if fields is None:
        return
    if isinstance(pipeline.results, Sessions):
        for name in pipeline.results.key:
            if name not in fields:
                yield (
                    f"The sessions of {pipeline.name} are by the column '{name}', which is not a field of its events"
                    f" ({', '.join(fields)}).{did_you_mean(name, fields)} Correct the key of Sessions."
                )


def _doubts(pipeline: Pipeline) -> Iterator[str]:
    """Yield what looks like a mistake; only Spark knows which columns a transform returns."""
    if pipeline.decode is None:
        return
    columns = [*json.check(pipeline.decode), *_declared(pipeline)]
    for name in getattr(pipeline.sink, "key", ()):
        near = did_you_mean(name, columns)
        if name not in columns and near:
            yield (
                f"The key of the sink of {pipeline.name} has the column '{name}', which is neither a field of "
                f"its events nor declared by its results.{near} Correct it, unless the transform makes a column of "
                "that name."
            )


def _declared(pipeline: Pipeline) -> Iterable[str]:
    """Return the columns of results that a pipeline declares."""
    if isinstance(pipeline.results, Windows):
        return (pipeline.results.column,)
    if isinstance(pipeline.results, Sessions):
        return (*pipeline.results.key, pipeline.results.start, pipeline.results.end)
    return ()
