"""A Delta table's log, commit by commit, and commits that conflict with other writers.

delta-rs counts versions down from the newest when it lists a table's history, and so misnumbers all commits before a
commit without commitInfo. Nor does it show which batch a commit holds. Hence the files themselves are read.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from respool.errors import CheckpointError, DamagedFileError
from respool.locations import absolute, local_path
from respool.spark.failures import is_delta_conflict
from respool.storage.folder import read_error
from respool.storage.object_store import delta_options
from respool.storage.open import open_reader
from respool.untrusted import LONG, Fields, Malformed, decimal, parse_json, whole_number

if TYPE_CHECKING:
    from deltalake import DeltaTable


MARK = "respool"  # the key in commitInfo of respool's own commits
_CHUNK = 32  # commits read at a time
_HARMLESS = frozenset({"OPTIMIZE", "REORG", "VACUUM START", "VACUUM END"})  # operations that change no row
_EMPTY = -1  # the version of a table before its first


T = TypeVar("T")

_ATTEMPTS = 20
_LONGEST = 5.0  # seconds between attempts


@dataclass(frozen=True)
class Commit:
    """A version of a table.

    Attributes:
        version: Its number.
        operation: The operation, as Delta names it.
        batches: The batches that it holds, by the app id that wrote them.
        goes_back: The version whose rows it has, for a RESTORE; -1 when it left no row.
        mark: The identity of a commit that respool made.
    """

    version: int
    operation: str
    batches: Mapping[str, int]
    goes_back: int | None
    mark: str | None

    @property
    def harmless(self) -> bool:
        """Whether it changed no row."""
        return self.operation in _HARMLESS

    @property
    def begins(self) -> bool:
        """Whether the table had no row before it, or has none after it."""
        return self.version == 0 or self.goes_back == _EMPTY

    def __str__(self) -> str:
        """Return it as text, for messages."""
        return f"version {self.version} ({self.operation})"


class DeltaLog:
    """Reads a table's commits, many at a time."""

    def __init__(self, table: str) -> None:
        """Open the table's folder or URL."""
        self._files = open_reader(table)
        self._commits: dict[int, Commit | None] = {}

    def commit(self, version: int) -> Commit | None:
        """Return a version; None when the log no longer has it."""
        if version not in self._commits:
            paths = {
                f"_delta_log/{number:020}.json": number for number in range(max(0, version - _CHUNK + 1), version + 1)
            }
            for path, data in self._files.read_many(list(paths)).items():
                if isinstance(data, Exception) and not isinstance(data, FileNotFoundError):
                    raise read_error(f"{self._files.root}/{path}", data) from data
                self._commits[paths[path]] = (
                    None if isinstance(data, Exception) else self._parse(path, paths[path], data)
                )
        return self._commits[version]

    def _parse(self, path: str, version: int, data: bytes) -> Commit:
        try:
            return parse(version, data)
        except Malformed as error:
            remedy = "It is unknown which batches the table has; restore the file from a copy. Nothing was changed."
            raise DamagedFileError(f"{self._files.root}/{path}", str(error), remedy) from error

    def lineage(self, version: int) -> Iterator[Commit]:
        """Yield the commits that made a version, the newest first, without those that a RESTORE undid.

        It ends with the table's first commit, with a commit that left no row, or where the log was cleaned.
        """
        while version >= 0 and (commit := self.commit(version)) is not None:
            yield commit
            version = version - 1 if commit.goes_back is None else commit.goes_back


def parse(version: int, data: bytes) -> Commit:
    """Return a version from the bytes of its file; raise Malformed when they are not a commit."""
    info = Fields({})
    batches: dict[str, int] = {}
    for line in data.splitlines():
        if line.strip() and not line.startswith((b'{"add"', b'{"remove"')):  # most lines, and long ones
            action = Fields(parse_json(line), "an action")
            info = action.nested("commitInfo") if "commitInfo" in action else info
            if "txn" in action:
                batch = action.nested("txn")
                batches[batch.text("appId")] = batch.whole("version", least=-LONG)
    operation, mark = info.optional_line("operation") or "unknown operation", info.optional_text(MARK)
    goes_back = _restored(info, version) if operation == "RESTORE" else None
    if goes_back is None and mark is not None:
        goes_back = _EMPTY if operation == "DELETE" else version - 1
    # A restore records a batch too, but holds none.
    return Commit(version, operation, {} if mark else batches, goes_back, mark)


def _restored(info: Fields, version: int) -> int | None:
    """Return the version that a RESTORE restored; None when it names a time instead."""
    parameters = info.nested("operationParameters") if "operationParameters" in info else Fields({})
    if "version" not in parameters:
        return None
    to = parameters.any("version")
    if isinstance(to, str):
        return decimal(to, "the version of a RESTORE", most=version - 1)
    return whole_number(to, "the version of a RESTORE", most=version - 1)


def open_table(location: str, version: int | None = None) -> "DeltaTable":
    """Open a table by delta-rs; raise CheckpointError when that cannot be done."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    path, location = local_path(location), absolute(location)
    if path is None:  # when the store is out of reach, the message of its own library is clearer
        open_reader(location).facts([f"_delta_log/{0:020}.json"])
    try:
        return DeltaTable(
            str(path or location), version=version, storage_options=None if path else delta_options(location)
        )
    except TableNotFoundError as error:
        raise CheckpointError(
            f"{location} is not a Delta table: {delta_message(error)}. Name the folder or URL that has its _delta_log."
        ) from error
    except Exception as error:  # a store raises OSErrors, a log DeltaErrors, and there are others
        where = location if version is None else f"Version {version} of {location}"
        raise CheckpointError(f"{where} cannot be read as a Delta table: {delta_message(error)}") from error


def delta_message(error: BaseException) -> str:
    """Return the message of delta-rs in one line; it draws a tree of causes and can add a stack trace."""
    text = re.split(r"\n\s+0: ", re.sub(r"\x1b\[\d+m", "", str(error)))[0]
    causes = [" ".join(cause.split()) for cause in text.split("↳")]
    message = re.search("<Message>(.*?)</Message>", causes[-1])
    last = message[1] if message else causes[-1]
    whole = last if len(causes) == 1 else f"{causes[0].removeprefix('Kernel error -> ')}: {last}"
    return (whole if len(whole) < 300 else f"{whole[:300]} …").rstrip(".")


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
