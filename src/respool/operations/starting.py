"""What operations have in common: the Spark session of a call, and where their notes go."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from respool.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnNote = Callable[[str], None]  # called with a sentence about what happens
OnProgress = Callable[[int, int], None]  # called with how many are done, of how many
logger = logging.getLogger("respool")


def note_of(on_note: OnNote | None) -> OnNote:
    """Return a caller's function for notes; by default, they are logged."""
    return on_note or logger.info


@contextmanager
def session(settings: Settings, spark: "SparkSession | None", note: OnNote, why: str = "") -> "Iterator[SparkSession]":
    """Yield the session of the caller, which stays open, or one that is started for the length of a `with` block.

    Args:
        settings: Spark's master and its settings.
        spark: The caller's session.
        note: Called before Spark is started.
        why: What it is started for.
    """
    from respool.spark.session import spark_session

    if spark is not None:
        yield spark
        return
    note(f"Starting Spark ({settings.master}) {why}{' ' * bool(why)}…")
    with spark_session(settings) as started:
        yield started
