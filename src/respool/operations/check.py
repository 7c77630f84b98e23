"""What can be refused without Spark, Kafka and Java: mistakes in respool.toml and in the definitions of pipelines."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from respool import settings
from respool.decoders import json
from respool.errors import PipelineError, RespoolError
from respool.kafka.cluster import KafkaCluster, check_embedded
from respool.pipeline.definition import OutputMode, Pipeline
from respool.pipeline.registry import BUILT_IN, find_pipeline, section_values
from respool.pipeline.results import Sessions, Windows
from respool.settings import CONFIG_FILE, Settings
from respool.sinks.protocol import Sink
from respool.text import did_you_mean

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class Finding:
    """The result of checking one thing.

    Attributes:
        subject: `respool.toml`, or the name of a pipeline as it was given.
        level: `ok`; `wrong`: it cannot run; `doubtful`: it may run, but looks like a mistake.
        message: What was found, and how to correct it; empty for `ok`.
    """

    subject: str
    level: Literal["ok", "doubtful", "wrong"] = "ok"
    message: str = ""


def check(*pipelines: str, settings_: Settings | None = None) -> list[Finding]:
    """Check the settings and pipelines as far as that needs neither Spark nor Kafka.

    Args:
        pipelines: Names of built-in pipelines, or module:object; without any, those that respool.toml has a section of.
        settings_: The settings; by default those of respool.toml and of the environment.

    Returns:
        All findings of each subject; one that is `ok` for a subject without any.
    """
    try:
        found = settings.load() if settings_ is None else settings_
        check_settings(found)
    except RespoolError as error:
        return [Finding(CONFIG_FILE, "wrong", str(error))]
    names = list(dict.fromkeys(pipelines or found.pipelines))
    findings: list[Finding] = []
    try:
        values = section_values(names if pipelines else [one for one in names if _is_name(one)], found.pipelines)
    except RespoolError as error:
        findings.append(Finding(CONFIG_FILE, "wrong", str(error)))
        names = [one for one in names if _is_name(one)]
        values = {name: dict(found.pipelines.get(name, {})) for name in names}
    else:
        findings.append(Finding(CONFIG_FILE))
    for name in names:
        findings += _check_by_name(name, values[name])
    return findings


def require_sound(pipelines: Sequence[Pipeline], found: Settings) -> None:
    """Raise the first problem of settings and pipelines, before anything is started.

    Args:
        pipelines: The pipelines of a command.
        found: The settings.
    """
    check_settings(found)
    for pipeline in pipelines:
        if problem := next(_problems(pipeline), None):
            raise PipelineError(problem)


def check_settings(found: Settings) -> None:
    """Raise SettingsError for settings that no run could use."""
    from respool.spark.session import refuse_connect

    refuse_connect(found.spark)
    servers = found.bootstrap_servers or found.kafka.get("bootstrap.servers")
    if servers:
        kafka = KafkaCluster(
            servers, {name: value for name, value in found.kafka.items() if name != "bootstrap.servers"}
        )
        kafka.for_client()
        kafka.for_spark()
    else:
        check_embedded(found.kafka)


def _is_name(section: str) -> bool:
    return section in BUILT_IN or ":" in section


def _check_by_name(name: str, values: dict[str, object]) -> list[Finding]:
    try:
        one = find_pipeline(name, values)
    except RespoolError as error:
        return [Finding(name, "wrong", str(error))]
    wrong = [Finding(name, "wrong", problem) for problem in _problems(one)]
    doubtful = [] if wrong else [Finding(name, "doubtful", doubt) for doubt in _doubts(one)]
    return [*wrong, *doubtful] or [Finding(name)]


def _problems(one: Pipeline) -> Iterator[str]:
    """Yield what is wrong with a pipeline, and would be reported by Spark or Kafka only after a while."""
    sink: Any = one.sink
    topics = {"reads": one.topic, "writes to": getattr(sink, "topic", None)}
    for does, topic in topics.items():
        if topic is not None and (not _TOPIC.fullmatch(topic) or topic in (".", "..")):
            yield (
                f"The pipeline {one.name} {does} the topic '{topic}', which is not a name of a Kafka topic: expected "
                "up to 249 letters, digits, dots, dashes and underscores. Correct it."
            )
    if not isinstance(sink, Sink):
        yield (
            f"The pipeline {one.name} writes to a {type(sink).__name__}, which is not a sink: it lacks one of the "
            "methods describe, replay_note, prepare and write. Use KafkaSink, DeltaSink, FunctionSink or ConsoleSink."
        )
    if not callable(one.transform):
        yield f"The transform of the pipeline {one.name} is not a function. Give it one from events to results."
    fields: list[str] | None = None
    try:
        for decoder in (one.decode, getattr(sink, "decoder", None)):
            if decoder is not None:
                fields = json.check(decoder)
    except PipelineError as error:
        yield f"The pipeline {one.name}: {error}"
    yield from _mode_problems(one)
    yield from _key_problems(one, fields if one.decode is not None else None)


def _mode_problems(one: Pipeline) -> Iterator[str]:
    if one.output_mode not in get_args(OutputMode):
        yield (
            f"The output mode of the pipeline {one.name} is '{one.output_mode}'."
            f"{did_you_mean(str(one.output_mode), list(get_args(OutputMode)))} Expected append, update or complete."
        )
    if one.output_mode == "complete" and one.stateless:
        yield (
            f"The pipeline {one.name} is stateless, and its output mode is 'complete', which needs an aggregation. Use "
            "append."
        )
    if one.output_mode == "append" and one.watermark is None and isinstance(one.results, Windows | Sessions):
        yield (
            f"The pipeline {one.name} has {one.results.describe()} in the output mode 'append' and no watermark: no "
            "result would ever be complete. Give it a watermark, or use the output mode 'update'."
        )


def _key_problems(one: Pipeline, fields: list[str] | None) -> Iterator[str]:
    key: tuple[str, ...] = getattr(one.sink, "key", ())
    if isinstance(key, str) or not all(isinstance(name, str) and name for name in key):
        yield (
            f"The key of the sink of {one.name} is {key!r}; expected a tuple of names of columns, such as "
            "('window', 'shop')."
        )
        return
    if len(set(key)) < len(key):
        yield f"The key of the sink of {one.name} has a column twice: {', '.join(key)}. Leave one of them out."
    if getattr(one.sink, "withdrawn", None) in key:
        yield (
            f"The key of the sink of {one.name} has the column {one.sink.withdrawn}, which is not sent: it says that "  # type: ignore[attr-defined]
            "a result is withdrawn. Leave it out of the key."
        )
    if fields is None:
        return
    if isinstance(one.results, Sessions):
        for name in one.results.key:
            if name not in fields:
                yield (
                    f"The sessions of {one.name} are by the column '{name}', which is not a field of its events"
                    f" ({', '.join(fields)}).{did_you_mean(name, fields)} Correct the key of Sessions."
                )


def _doubts(one: Pipeline) -> Iterator[str]:
    """Yield what looks like a mistake; only Spark knows which columns a transform returns."""
    if one.decode is None:
        return
    known = [*json.check(one.decode), *_declared(one)]
    for name in getattr(one.sink, "key", ()):
        near = did_you_mean(name, known)
        if name not in known and near:
            yield (
                f"The key of the sink of {one.name} has the column '{name}', which is neither a field of its events "
                f"nor declared by its results.{near} Correct it, unless the transform makes a column of that name."
            )


def _declared(one: Pipeline) -> Iterable[str]:
    """Return the columns of results that a pipeline declares."""
    if isinstance(one.results, Windows):
        return (one.results.column,)
    if isinstance(one.results, Sessions):
        return (*one.results.key, one.results.start, one.results.end)
    return ()
