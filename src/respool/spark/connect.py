"""Spark Connect: which server is named, a session on it, and what differs from a session with a JVM.

What reads a checkpoint's state, compares outputs or computes a span again needs no JVM of this process, and so also
runs on a server. A live query needs it: that JVM holds the checkpoint with this process, and ends batches cleanly.
"""

import atexit
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from respool.errors import MachineError, SettingsError
from respool.settings import Settings
from respool.spark import internals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = "sc://"
_PORT = 15002  # Spark Connect's own default
_PATIENCE = 10.0  # seconds for the server to accept a connection; its client alone would try for ten minutes
_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
# Clones of sessions, with the id of the session that they come from. A clone that is still open when Python ends keeps
# the process from ending: its channel waits for a thread that has ended already.
_clones: "WeakKeyDictionary[Any, str]" = WeakKeyDictionary()


def server_of(settings: Settings) -> str | None:
    """Return the address of the Spark Connect server that the settings or SPARK_REMOTE name; None if there is none."""
    named = (settings.master, settings.spark.get("spark.remote", ""), os.environ.get("SPARK_REMOTE", ""))
    return next((address for address in named if address.startswith(_SCHEME)), None)


def shown(address: str) -> str:
    """Return an address without its parameters, which may hold a token."""
    return f"{_SCHEME}{urlsplit(address.split(';')[0]).netloc.rpartition('@')[2]}"


def refuse(settings: Settings) -> None:
    """Raise SettingsError when a command that needs a JVM of its own would get a client of Spark Connect.

    Args:
        settings: Spark's master and its settings.
    """
    if settings.master.startswith(_SCHEME):
        raise SettingsError(
            f"The master {shown(settings.master)} is a Spark Connect server; this command needs a JVM of its own, "
            "which holds the checkpoint with it. Name a cluster, such as --master spark://host:7077, or local[*]."
        )
    variables = {name: os.environ.get(name, "") for name in _VARIABLES}
    variables["SPARK_API_MODE"] = os.environ.get("SPARK_API_MODE", "").lower().replace("classic", "")
    variables["SPARK_CONNECT_MODE"] = os.environ.get("SPARK_CONNECT_MODE", "").replace("0", "")
    if name := next((name for name, value in variables.items() if value), None):
        raise SettingsError(
            f"The variable {name} is set, for Spark Connect; respool starts its own Spark here and needs its JVM. "
            f"Run this again without it: env -u {name} respool …"
        )
    if "spark.remote" in settings.spark or settings.spark.get("spark.api.mode", "classic") != "classic":
        raise SettingsError(
            "The [spark] table asks for Spark Connect (spark.remote or spark.api.mode); respool starts its "
            "own Spark here and needs its JVM. Remove it; name a cluster with --master."
        )


@contextmanager
def connect_session(address: str) -> "Iterator[SparkSession]":
    """Open a session on a Spark Connect server for the length of a `with` block.

    Args:
        address: The server, as `sc://host:port`.

    Raises:
        MachineError: Nothing listens there, or a package is missing.
    """
    from pyspark.errors import PySparkImportError
    from pyspark.sql import SparkSession

    before = {name: os.environ.get(name) for name in _VARIABLES}
    _require_listening(address)
    os.environ.pop("SPARK_REMOTE", None)  # pyspark refuses a second address
    try:
        builder = SparkSession.builder.remote(address).config("spark.sql.session.timeZone", "UTC")
        try:
            session = builder.create()
        except PySparkImportError as error:
            raise MachineError(
                f"Spark Connect needs packages that are not installed: {error}. Install them: pip install "
                "'respool[connect]'."
            ) from error
        try:
            yield session
        finally:
            _close_clones(session)
            session.stop()
    finally:
        internals.forget_options(builder)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def is_connect(spark: "SparkSession") -> bool:
    """Return whether a session is on a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def require_jvm(spark: "SparkSession") -> None:
    """Raise SettingsError for a session without a JVM."""
    if is_connect(spark):
        raise SettingsError(
            "The session is on a Spark Connect server; this needs a session with a JVM of its own. Leave `spark` out, "
            "or make the session without `remote`."
        )


def separate_session(spark: "SparkSession") -> "SparkSession":
    """Return a session with settings of its own, in the same application."""
    if is_connect(spark):
        connected: Any = spark
        clone: SparkSession = connected.cloneSession()
        _clones[clone] = _clones.get(connected, connected.session_id)
        return clone
    return spark.newSession()


@atexit.register
def _close_clones(session: "SparkSession | None" = None) -> None:
    """Close the clones of a session; all clones when the process ends."""
    origin = None if session is None else getattr(session, "session_id", "")
    for clone in [clone for clone, source in _clones.items() if origin in (None, source)]:
        with suppress(Exception):  # the server may be gone
            clone.client.release_session()
        with suppress(Exception):
            clone.client.close()
        _clones.pop(clone, None)


def _require_listening(address: str) -> None:
    place = urlsplit(shown(address))
    try:
        host, port = place.hostname or "", place.port or _PORT
        with socket.create_connection((host, port), _PATIENCE):
            return
    except (OSError, ValueError) as error:
        raise MachineError(
            f"No Spark Connect server answers at {shown(address)}: {getattr(error, 'strerror', None) or error}. Start "
            "it, or correct the address in --master or SPARK_REMOTE."
        ) from error
