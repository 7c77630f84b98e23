"""Whether Spark can read the log of a file source, as it does at every start."""

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.format import logs
from respool.storage.folder import is_denied, reason


class SourceLogs:
    """The logs of the file sources; each log file is read on first use, once."""

    def __init__(self, checkpoint: CheckpointSnapshot) -> None:
        """Keep the checkpoint; nothing is read yet."""
        self._checkpoint = checkpoint
        self._known: dict[str, str | None] = {}
        self.denied: set[str] = set()

    def newest(self, source: str) -> int:
        """Return the newest entry of a source's log; -1 when the log is empty."""
        return max(self._entries(source).values(), default=-1)

    def wrong(self, source: str, last: int) -> tuple[str, str] | None:
        """Return a log file that Spark could not read if `last` was the newest entry, and why; None if it could."""
        folder = f"sources/{source}"
        names = {name for name, number in self._entries(source).items() if number <= last}
        for name in logs.expected_files(names, last):
            path = f"{folder}/{name}"
            if name not in names:
                return path, "is missing" if name.endswith(".compact") else f"is missing, and so is {name}.compact"
            why = self._read(path)
            if why is not None:
                return path, why
        return None

    def _entries(self, source: str) -> dict[str, int]:
        return logs.numbers_by_name(self._checkpoint.folders.get(f"sources/{source}", ()))

    def _read(self, path: str) -> str | None:
        if path not in self._known:
            try:
                logs.log_entries(path, logs.decode(path, self._checkpoint.files.read(path)))
                self._known[path] = None
            except (CheckpointError, OSError) as error:
                self._known[path] = f"cannot be read: {reason(error)}" if is_denied(error) else reason(error)
                if is_denied(error):
                    self.denied.add(path)
        return self._known[path]
