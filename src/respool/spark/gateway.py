"""Spark's JVM: start it, connect pyspark to it, and end it.

The JVM runs in its own session: a signal to the process group, as Ctrl-C in a terminal, systemd, `timeout` and
containers send it, reaches Python alone, which stops the queries first. The JVM ends when its standard input is closed,
which the system does if this process is killed.
"""

import contextlib
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from respool.errors import MachineError, RespoolError
from respool.local.java import find_java
from respool.settings import Settings
from respool.spark import internals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HURRY = 5.0  # seconds that an interrupted JVM has to end
_NOTICE = 2.0  # seconds until the end of a killed JVM is visible
_TRACE = b"Traceback (most recent call last):"
_NOT_CONNECTED = b"pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET]"
# Lines that the JVM and pyspark print at their start and that are of no use.
_NOISE = (
    b"WARNING: Using incubator modules",
    b"Picked up JAVA_TOOL_OPTIONS",
    b"NOTE: Picked up JDK_JAVA_OPTIONS",
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)


class Jvm:
    """Spark's JVM, a child process.

    Attributes:
        session: The session that has to be stopped before the JVM ends.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", settings: Settings) -> None:
        """Start to copy the output of the process."""
        self.session: SparkSession | None = None
        self._process = process
        self._settings = settings
        self._muted = False
        assert process.stderr is not None
        threading.Thread(target=self._copy_output, args=(process.stderr,), name="jvm-stderr", daemon=True).start()

    def connect(self, answer: Path) -> None:
        """Wait until the JVM listens, and let pyspark use it; it writes its port and secret to `answer`."""
        while not answer.is_file():
            if self._process.poll() is not None:
                raise MachineError(
                    f"Spark's JVM did not start. See its output above, and {self._settings.logs / 'spark.log'}. "
                    "Check Java and the [spark] table of respool.toml with: respool doctor."
                )
            time.sleep(0.05)
        port, secret = _parse_answer(answer.read_bytes())
        internals.connect(self._process, port, secret)

    def serve(self, session: "SparkSession") -> None:
        """Keep the session that has to be stopped before the JVM ends."""
        self.session = session
        internals.silence_accumulator_server(session)

    def has_ended(self, error: BaseException) -> bool:
        """Return whether an error is the consequence of the JVM's end."""
        if internals.is_lost_connection(error):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_NOTICE)
        elif isinstance(error, RespoolError):
            return False
        return self._process.poll() is not None

    def explain_end(self) -> MachineError:
        """Return the error to raise when the JVM has ended too early."""
        code = self._process.poll() or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        short = " The system does this when memory runs out." if code == -signal.SIGKILL else ""
        return MachineError(
            f"Spark's JVM (process {self._process.pid}) {how}.{short} Run this again: a pipeline continues from its "
            f"last committed batch. Spark's log is {self._settings.logs / 'spark.log'}."
        )

    def mute(self) -> None:
        """Drop further output of the JVM and its Python workers, which lose their connections now."""
        self._muted = True

    def stop(self, patience: float) -> None:
        """Stop Spark, and wait for the end of the JVM."""
        if self._process.poll() is not None:
            return

        def stop() -> None:
            # It may have been killed meanwhile.
            with contextlib.suppress(Exception):
                if self.session is not None:
                    self.session.stop()
            with contextlib.suppress(Exception):
                internals.disconnect()

        # In a separate thread: a connection whose thread was interrupted in a call returns wrong answers from then on.
        end = time.monotonic() + patience
        thread = threading.Thread(target=stop, name="jvm-stop", daemon=True)
        thread.start()
        thread.join(patience)
        self._close_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(end - time.monotonic(), 0.0))

    def end(self) -> None:
        """End the JVM if it still runs, together with the processes that it has started."""
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
        """Copy the output of the JVM and the tasks to standard error, without the noise."""
        with lines:
            for line in without_noise(lines):
                if not self._muted:
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of the JVM and the tasks that say something to the user.

    A worker of pyspark that could not connect to the JVM in time prints a stack trace. The query fails for it, is
    restarted, and is reported: the stack trace is left out.
    """
    noise = False
    trace: list[bytes] = []
    for line in lines:
        if line.startswith(_TRACE):
            yield from trace
            trace = [line]
        elif trace:
            trace.append(line)
            if not line.startswith(b" "):  # the exception, after its frames
                if not line.startswith(_NOT_CONNECTED):
                    yield from trace
                trace = []
        else:
            noise = line.startswith(_NOISE) or (noise and line == b"\n")  # an empty line follows pyspark's
            if not noise:
                yield line
    yield from trace


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
    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    internals.silence_lost_connections()
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM process", RuntimeWarning)
    with tempfile.TemporaryDirectory(prefix="respool-") as folder:
        # The settings travel in a private file, as command lines are public.
        properties, answer = Path(folder) / "spark.conf", Path(folder) / "gateway"
        properties.write_text("".join(f"{name}={_escape(value)}\n" for name, value in conf.items()), encoding="utf-8")
        program = os.path.join(internals.spark_home(), "bin", "spark-submit")
        # The driver's own `python3`, for a cluster whose executors use that of their PATH.
        path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
        process = subprocess.Popen(
            [program, "--properties-file", str(properties), "pyspark-shell"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PATH": path, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)},
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
        internals.forget_jvm()


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _parse_answer(data: bytes) -> tuple[int, str]:
    """Return the port and the secret of the JVM: two numbers of four bytes, then a text of the second's length."""
    port, length = struct.unpack_from("!ii", data)
    return port, data[8 : 8 + length].decode()
