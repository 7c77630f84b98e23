"""The Spark session of a call, and where its notes go."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from respool.operations.context import OnNote, note
from respool.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def note_of(on_note: OnNote | None) -> OnNote:
    """Return a function that logs a message, and passes it to a caller's function."""
    return partial(note, on_note=on_note)


@contextmanager
def session(
    settings: Settings, spark: "SparkSession | None", on_note: OnNote, why: str = ""
) -> "Iterator[SparkSession]":
    """Yield the session of the caller, which stays open, or a session that lasts as long as the `with` block.

    Args:
        settings: Spark's master and its settings.
        spark: The caller's session.
        on_note: Called before Spark is started.
        why: What it is started for.
    """
    from respool.spark.session import spark_session

    if spark is not None:
        yield spark
        return
    on_note(f"Starting Spark ({settings.master}) {why}{' ' * bool(why)}…")
    with spark_session(settings) as started:
        yield started
