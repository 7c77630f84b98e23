"""Spark's JVM: start it, connect pyspark to it, and end it.

The JVM runs in a session of its own: a signal to the process group, as Ctrl-C in a terminal, systemd, `timeout` and
containers send it, reaches Python alone, which stops the queries first. The JVM ends when its standard input is closed,
which the system does if this process is killed.
"""

import contextlib
import logging
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from respool.errors import MachineError, RespoolError
from respool.local.java import find_java
from respool.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HURRY = 5.0  # seconds that an interrupted JVM has to end
_NOTICE = 2.0  # seconds in which the end of a killed JVM shows
# What the JVM and pyspark print at their start, of no use to anybody.
_NOISE = (
    b"WARNING: Using incubator modules",
    b"Picked up JAVA_TOOL_OPTIONS",
    b"NOTE: Picked up JDK_JAVA_OPTIONS",
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)


class Jvm:
    """Spark's JVM, a process of ours.

    Attributes:
        session: The session that has to be stopped before the JVM ends.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", settings: Settings) -> None:
        """Copy the output of the process from now on."""
        self.session: SparkSession | None = None
        self._process = process
        self._settings = settings
        self._muted = False
        assert process.stderr is not None
        threading.Thread(target=self._copy_output, args=(process.stderr,), name="jvm-stderr", daemon=True).start()

    def connect(self, answer: Path) -> None:
        """Wait until the JVM listens, and let pyspark use it; `answer` is the file where it writes how."""
        from pyspark import SparkContext
        from pyspark.java_gateway import launch_gateway

        while not answer.is_file():
            if self._process.poll() is not None:
                raise MachineError(
                    f"Spark's JVM did not start. See what it said above, and {self._settings.logs / 'spark.log'}. "
                    "Check Java and the [spark] table of respool.toml with: respool doctor."
                )
            time.sleep(0.05)
        port, secret = _parse_answer(answer.read_bytes())
        # Told where a JVM listens, pyspark starts none.
        with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        gateway.proc = self._process
        SparkContext._ensure_initialized(gateway=gateway)

    def serve(self, session: "SparkSession") -> None:
        """Keep the session that has to be stopped before the JVM ends."""
        self.session = session
        # Python workers report to pyspark through the JVM. The server prints a stack trace when that connection is
        # lost, which says nothing of use: whoever called the JVM is told of its end.
        server: Any = session.sparkContext._accumulatorServer
        server.handle_error = _ignore_lost_connection(server.handle_error)

    def has_ended(self, error: BaseException) -> bool:
        """Return whether an error is the consequence of the JVM's end."""
        if _is_lost_connection(error):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_NOTICE)
        elif isinstance(error, RespoolError):
            return False
        return self._process.poll() is not None

    def explain_end(self) -> MachineError:
        """Return what to report when the JVM has ended before it should."""
        code = self._process.poll() or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        short = " The system does this when memory runs out." if code == -signal.SIGKILL else ""
        return MachineError(
            f"Spark's JVM (process {self._process.pid}) {how}.{short} Run this again: a pipeline continues from its "
            f"last committed batch. Spark's log is {self._settings.logs / 'spark.log'}."
        )

    def mute(self) -> None:
        """Drop what is still printed by the JVM and its Python workers, which lose their connections now."""
        self._muted = True

    def stop(self, patience: float) -> None:
        """Stop Spark, and wait for the end of the JVM."""
        if self._process.poll() is not None:
            return

        def stop() -> None:
            from pyspark import SparkContext

            # It may have been killed meanwhile.
            with contextlib.suppress(Exception):
                if self.session is not None:
                    self.session.stop()
            with contextlib.suppress(Exception):
                gateway: Any = SparkContext._gateway
                gateway.shutdown()

        # In a thread of its own: a connection whose thread was interrupted in a call gives wrong answers from then on.
        end = time.monotonic() + patience
        thread = threading.Thread(target=stop, name="jvm-stop", daemon=True)
        thread.start()
        thread.join(patience)
        self._close_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(end - time.monotonic(), 0.0))

    def end(self) -> None:
        """End the JVM if it still runs, with all that it has started."""
        self._close_input()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_HURRY)

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _copy_output(self, lines: IO[bytes]) -> None:
        """Copy what the JVM and the tasks print to our standard error, but for the noise."""
        with lines:
            noise = False
            for line in lines:
                noise = line.startswith(_NOISE) or (noise and line == b"\n")  # pyspark's have an empty line behind them
                if not noise and not self._muted:
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()


@contextmanager
def running_jvm(conf: Mapping[str, str], settings: Settings, patience: float) -> Iterator[Jvm]:
    """Run the JVM that pyspark uses for the length of a `with` block.

    Args:
        conf: Spark's settings.
        settings: Where Spark's log is.
        patience: How many seconds the JVM has to end on its own.

    Raises:
        MachineError: It did not start, or was killed meanwhile.
    """
    from pyspark.find_spark_home import _find_spark_home

    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    # py4j logs every lost connection with its stack trace, by its own logger and by the root.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM process", RuntimeWarning)
    with tempfile.TemporaryDirectory(prefix="respool-") as folder:
        # The settings travel in a private file, as command lines are public.
        properties, answer = Path(folder) / "spark.conf", Path(folder) / "gateway"
        properties.write_text("".join(f"{name}={_escape(value)}\n" for name, value in conf.items()), encoding="utf-8")
        home: str = _find_spark_home()
        process = subprocess.Popen(
            [os.path.join(home, "bin", "spark-submit"), "--properties-file", str(properties), "pyspark-shell"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)},
            start_new_session=True,
        )
        jvm = Jvm(process, settings)
        try:
            jvm.connect(answer)
        except BaseException:
            jvm.end()
            raise
    try:
        yield jvm
        jvm.stop(patience)
    except Exception as error:
        if jvm.has_ended(error):
            jvm.mute()
            raise jvm.explain_end() from error
        jvm.stop(patience)
        raise
    except BaseException:
        jvm.mute()
        raise
    finally:
        jvm.end()
        _forget()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def _ignore_lost_connection(handle: Callable[..., None]) -> Callable[..., None]:
    """Return how a server handles an error of a request: as before, but for a connection that is lost."""

    def handle_others(*request: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            handle(*request)

    return handle_others


def _is_lost_connection(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, says that the JVM does not answer."""
    from py4j.protocol import Py4JError, Py4JJavaError

    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, Py4JError | ConnectionError | EOFError) and not isinstance(error, Py4JJavaError):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _parse_answer(data: bytes) -> tuple[int, str]:
    """Return the port and the secret of the JVM: two numbers of four bytes, then a text of the second's length."""
    port, length = struct.unpack_from("!ii", data)
    return port, data[8 : 8 + length].decode()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set variables of the environment, which were not set before, for the length of a `with` block."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]


def _forget() -> None:
    """Let pyspark forget a JVM that has ended, whether it could be stopped or not."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
