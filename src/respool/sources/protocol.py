"""What a source is: something that Spark reads as a stream and, for some sources, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from respool.errors import PipelineError, SettingsError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.locations import under
from respool.settings import Settings
from respool.text import did_you_mean
from respool.times import parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class ReadContext:
    """What a source needs to be read, besides its own fields.

    Attributes:
        kafka: The cluster of Kafka sources.
        settings: Where tables are that a source names by a relative path.
        limit: The most records of a batch, for sources that count records; None for no limit.
        headers: Read the headers of Kafka records; without, they are null.
    """

    kafka: KafkaCluster
    settings: Settings
    limit: int | None = None
    headers: bool = True


@runtime_checkable
class Source(Protocol):
    """A place that a pipeline reads from."""

    def describe(self) -> str:
        """Return a few words for `respool pipelines` and for messages."""
        ...

    def identity(self) -> Identity:
        """Return the identity of this place, without secrets."""
        ...

    def stream(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return its rows as a stream. A checkpoint overrides where the stream starts."""
        ...


@runtime_checkable
class TableSource(Source, Protocol):
    """A source that can be read as a whole, too, as the static side of a join."""

    def table_rows(self, spark: "SparkSession", read: ReadContext) -> "DataFrame":
        """Return all its rows."""
        ...


def table_location(table: str, settings: Settings) -> str:
    """Return the path or URL of a Delta table; a relative path is that of a DeltaSink."""
    return under(settings.result_store, table)


def check_options(source: str, options: Mapping[str, str], fields: Mapping[str, str]) -> None:
    """Raise PipelineError for options that a source sets from its own fields, or that are not text.

    Args:
        source: The name of the class.
        options: The options.
        fields: The field of the class that stands for an option, by the option's name in lower case.
    """
    for name, value in options.items():
        if name.lower() in fields:
            raise PipelineError(f"options of {source} has '{name}'. Set it by {fields[name.lower()]}.")
        if not isinstance(name, str) or not isinstance(value, str):
            raise PipelineError(
                f"options of {source} has {name!r}: {value!r}; expected names and values as text. Put it in quotes."
            )


def check_choice(field: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise PipelineError when a field has none of the values that it may have."""
    if value not in choices:
        raise PipelineError(
            f"{field} is {value!r}; expected {' or '.join(choices)}.{did_you_mean(str(value), list(choices))} "
            "Correct it."
        )


def parse_start(text: str, expected: str) -> datetime:
    """Return the time at which a new query starts; raise PipelineError, which names what a source accepts."""
    try:
        return parse_time(text, timezone.utc)
    except SettingsError as error:
        raise PipelineError(f"starting is '{text}'; expected {expected}. Correct it.") from error
