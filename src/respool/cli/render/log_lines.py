"""One JSON object for each line of a run on standard error, for programs that collect logs: `--log-format json`.

Everything that reaches standard error becomes an object: notes and batches, the records of `logging`, lines of Spark's
JVM and its workers, errors of the command line, and whatever else a library prints.
"""

import atexit
import io
import json
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TextIO

from respool.text import printable_json

_REQUIRED = {"time", "level", "logger", "message"}


def wanted(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether a command line or the environment asks for JSON lines, before either is parsed.

    Errors of the command line itself are lines, too. respool.toml can ask for them as well, from when it is read.
    """
    if next((word for word in arguments if not word.startswith("-")), None) != "run":
        return False
    chosen = environ.get("RESPOOL_LOG_FORMAT")
    for word, following in zip(arguments, (*arguments[1:], None), strict=True):
        if word == "--log-format":
            chosen = following
        elif word.startswith("--log-format="):
            chosen = word.partition("=")[2]
    return chosen == "json"


def use_json_lines() -> None:
    """From now on, print every line of this process as a JSON object; a second call changes nothing."""
    if isinstance(sys.stderr, JsonLines):
        return
    lines = JsonLines(sys.stderr)
    sys.stderr = lines
    atexit.register(lines.end)
    logging.captureWarnings(True)
    logging.getLogger().addHandler(_Handler(lines))
    logging.getLogger("respool").setLevel(logging.INFO)


def json_lines() -> "JsonLines | None":
    """Return standard error if every line on it is a JSON object; None if lines are text."""
    return sys.stderr if isinstance(sys.stderr, JsonLines) else None


class JsonLines(io.TextIOBase):
    """A stream whose lines are JSON objects with time, level, logger and message; text becomes the message."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, stream: TextIO) -> None:
        """Print to this stream."""
        super().__init__()
        self._stream = stream
        self._lock = threading.RLock()
        self._parts: dict[int, str] = {}  # by thread: the text since its last end of line
        self.buffer = _Bytes(self)

    def emit(
        self, level: str, logger: str, message: str, fields: Mapping[str, Any] | None = None, time: float | None = None
    ) -> None:
        """Print an object; `time` is in seconds since 1970, and now by default."""
        moment = datetime.now(timezone.utc) if time is None else datetime.fromtimestamp(time, timezone.utc)
        # The fields come last and replace nothing.
        line = {"time": _iso(moment), "level": level, "logger": logger, "message": message}
        line = {**line, **{name: value for name, value in (fields or {}).items() if name not in line}}
        self._print(printable_json(json.dumps(line, default=_plain, ensure_ascii=False)))

    def copy(self, line: str) -> None:
        """Print a line of the JVM: as it is if it is such an object already, otherwise as a message."""
        try:
            value = json.loads(line) if line.startswith("{") else None
        except ValueError:
            value = None
        if isinstance(value, dict) and value.keys() >= _REQUIRED:
            self._print(printable_json(json.dumps(value, ensure_ascii=False)))
        elif line.strip():
            self.emit("info", "spark", line.rstrip())

    def write(self, text: str) -> int:
        """Print the lines that end in this text."""
        if not isinstance(text, str):
            raise TypeError(f"write() expects text, not {type(text).__name__}")
        thread = threading.get_ident()
        with self._lock:
            *lines, rest = (self._parts.pop(thread, "") + text).split("\n")
            if rest:
                self._parts[thread] = rest
        for line in lines:
            if line.strip():
                self.emit("error", "stderr", line.rstrip())
        return len(text)

    def end(self) -> None:
        """Print lines that were not ended."""
        while self._parts:
            self.emit("error", "stderr", self._parts.popitem()[1].rstrip())

    def flush(self) -> None:
        """Flush what was printed."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Return False: nothing is drawn."""
        return False

    def fileno(self) -> int:
        """Return the number of the file, for child processes."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    def _print(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        with self._lock:
            self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            self._stream.flush()


class _Bytes(io.RawIOBase):
    """The binary side of JsonLines, to which the output of the JVM is copied."""

    def __init__(self, lines: JsonLines) -> None:
        super().__init__()
        self._lines = lines

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        for line in bytes(data).decode("utf-8", "replace").splitlines():
            self._lines.copy(line)
        return len(data)


class _Handler(logging.Handler):
    """Prints log records as JSON lines."""

    def __init__(self, lines: JsonLines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            fields["exception"] = logging.Formatter().formatException(record.exc_info)
        self._lines.emit(record.levelname.lower(), record.name, record.getMessage(), fields, record.created)


_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def _iso(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str:
    return _iso(value) if isinstance(value, datetime) else str(value)
