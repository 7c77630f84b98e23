"""What can be refused without Spark, Kafka and Java: mistakes in respool.toml and in the definitions of pipelines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from respool.errors import RespoolError
from respool.kafka.cluster import KafkaCluster, check_embedded
from respool.operations.context import settings_of
from respool.pipeline.definition import Pipeline
from respool.pipeline.registry import BUILT_IN, find_pipeline, section_values
from respool.pipeline.results import Events, Sessions, Windows
from respool.settings import CONFIG_FILE, Settings
from respool.sinks.several import all_sinks
from respool.text import did_you_mean


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
    doubtful = [DefinitionFinding(name, "doubtful", doubt) for doubt in _doubts(pipeline)]
    return doubtful or [DefinitionFinding(name)]


def _doubts(pipeline: Pipeline) -> Iterator[str]:
    """Yield what looks like a mistake; only Spark knows which columns a transform returns."""
    fields = [name for each in pipeline.streams.values() for name in each.fields() or ()]
    columns = [*fields, *_declared(pipeline)]
    for name in (name for sink in all_sinks(pipeline.sink) for name in getattr(sink, "key", ())):
        near = did_you_mean(name, columns)
        if name not in columns and near:
            yield (
                f"The key of the sink of {pipeline.name} has the column '{name}', which is neither a field of "
                f"its events nor declared by its results.{near} Correct it, unless the transform makes a column of "
                "that name."
            )


def _declared(pipeline: Pipeline) -> Iterable[str]:
    """Return the columns of results that a pipeline declares."""
    if isinstance(pipeline.results, Windows | Events):
        return (pipeline.results.column,)
    if isinstance(pipeline.results, Sessions):
        return (*pipeline.results.key, pipeline.results.start, pipeline.results.end)
    return ()
