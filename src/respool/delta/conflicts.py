"""Commits of Spark to a Delta table that other writers can make fail."""

import time
from collections.abc import Callable
from typing import TypeVar

from respool.spark.failures import is_delta_conflict

T = TypeVar("T")

_ATTEMPTS = 20
_LONGEST = 5.0  # seconds between attempts


def retry_on_conflict(
    write: Callable[[], T], attempts: int = _ATTEMPTS, on_conflict: Callable[[], object] = lambda: None
) -> T:
    """Write to a table, again when another writer, live or reprocessing, has changed the same files meanwhile.

    Args:
        write: Makes one commit; it raises Delta's own error when the commit conflicts with another.
        attempts: How often it is called at most; after that, its error is raised.
        on_conflict: Called before each further attempt.
    """
    for attempt in range(attempts - 1):
        try:
            return write()
        except Exception as error:
            if not is_delta_conflict(error):
                raise
        on_conflict()
        time.sleep(min(0.1 * 2**attempt, _LONGEST))
    return write()
