"""Hold a checkpoint, so that no two of respool's own processes run on it or change it at the same time.

On a local disk files are locked: see `local_lock`. An object store has no locks: there a small file, the lease, names
its holder by a token and is valid for a minute after it was written. The holder renews it every 15 seconds.

    _respool/lease.json   token, process, its JVM, host, and when it was renewed

- The lease is created only if it does not exist, atomically where the store supports that (`If-None-Match` on S3).
- A renewal and a takeover replace exactly the lease that was read, atomically on S3 (`If-Match`). Elsewhere it is read
  again just before it is written, and of two processes that take it over in the same second the last writer holds it.
- Before a renewal and before the release, the holder compares the token. With another token, without a lease, or when
  no renewal succeeded for 50 seconds, the lease is lost: `Lease.lost` has the reason, and the run must stop. This
  includes a process that was suspended and resumed.
- A lease whose holder ran on this machine and has ended, with its JVM, is invalid, whatever its age.
- For a takeover, the age of a lease is measured by the clock of the store. Where a store reports no times, and for
  messages, the clocks of the two machines are compared: they must not differ by more than 40 seconds.

Either way a run's JVM holds the checkpoint together with its Python process, which it may outlive.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from respool import process
from respool.errors import CheckpointError, StoreError
from respool.locations import OWN, local_path
from respool.storage import local_lock
from respool.storage.folder import FolderReader, FolderWriter
from respool.storage.local_lock import LocalLock, LockingJvm
from respool.storage.open import open_reader
from respool.storage.remote import RemoteWriter
from respool.untrusted import Fields, Malformed, parse_json

JVM_PATIENCE = 10.0  # seconds to wait for the JVM of a run that was killed

_LEASE = f"{OWN}/lease.json"
_SECONDS = 60.0  # how long a lease is valid after it was written
_RENEW = 15.0  # how often it is renewed
_RETRY = 3.0  # and how often after a failure
_MARGIN = 10.0  # how long before its end the holder gives it up, to stop in time
_SETTLE = 1.0  # how long to wait before reading who took it over last, where a takeover is not atomic
_MAX_BYTES = 2**16
_MAX_PID = 2**31 - 1

_given_up: set[str] = set()  # the tokens of this process whose lease may still be in a store that did not answer
_held: "set[Lease]" = set()  # by this process; a JVM that starts later holds them, too
_held_lock = threading.Lock()
_find_jvm: Callable[[], LockingJvm | None] | None = None


class Lease:
    """A checkpoint that is held until `close`.

    Attributes:
        warning: Why the checkpoint is not actually held; None when it is.
    """

    def __init__(self, checkpoint: str, lock: "LocalLock | _RemoteLease | None", warning: str | None = None) -> None:
        """Keep the lock or lease of the checkpoint."""
        self.checkpoint = checkpoint
        self.warning = warning
        self._lock = lock

    def __enter__(self) -> "Lease":
        """Return the lease."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the checkpoint."""
        self.close()

    @property
    def lost(self) -> str | None:
        """Why the checkpoint is no longer held although nobody closed the lease; None while it is held."""
        return self._lock.lost if isinstance(self._lock, _RemoteLease) else None

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Register a function that is called with the reason, in another thread, when the lease is lost."""
        if isinstance(self._lock, _RemoteLease):
            self._lock.on_lost(call)

    def require(self) -> None:
        """Raise CheckpointError when the lease is lost."""
        if self.lost is not None:
            raise CheckpointError(self.lost)

    def extend_to(self, jvm: LockingJvm) -> None:
        """Let the JVM of this process hold the checkpoint, too."""
        if self._lock is not None:
            self._lock.extend_to(jvm)

    def close(self) -> None:
        """Release the checkpoint."""
        with _held_lock:
            _held.discard(self)
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def hold(checkpoint: str, patience: float = 0.0) -> Lease | None:
    """Hold a checkpoint; return None when another process holds it. A missing local folder is created.

    The JVM of this process holds it, too: the running JVM, or the next that starts.

    Args:
        checkpoint: Its folder or URL.
        patience: How many seconds to wait while only the JVM of a run that was killed holds it.
    """
    if patience > 0:
        wait_for_jvm(checkpoint, patience)
    folder = local_path(checkpoint)
    lease = _hold_local(checkpoint, folder) if folder is not None else _hold_remote(checkpoint)
    if lease is None:
        return None
    with _held_lock:
        _held.add(lease)
    try:
        jvm = _jvm()
        if jvm is not None:
            lease.extend_to(jvm)
    except BaseException:
        lease.close()
        raise
    return lease


def register_jvm(find: "Callable[[], LockingJvm | None]") -> None:
    """Register the function that returns the JVM of this process, or None; `hold` calls it."""
    global _find_jvm
    _find_jvm = find


def extend_all(jvm: LockingJvm) -> None:
    """Let a JVM that has started hold every checkpoint that this process holds."""
    with _held_lock:
        held = list(_held)
    for lease in held:
        lease.extend_to(jvm)


def holder(checkpoint: str) -> str | None:
    """Return which process holds a checkpoint now, as text; None when no process does."""
    folder = local_path(checkpoint)
    if folder is not None:
        pid = local_lock.process_of(folder)
        if pid is not None:
            return f"process {pid}"
        jvm = local_lock.jvm_of(folder)
        return None if jvm is None else _stopping(jvm)
    note = _read(open_reader(checkpoint))
    if note is None or not note.counts():
        return None
    if note.is_here() and not note.process_lives():
        return _stopping(str(note.jvm))
    return f"process {note.process} on {note.host}"


def wait_for_jvm(checkpoint: str, patience: float = JVM_PATIENCE) -> None:
    """Wait, up to some seconds, for the end of the JVM of a run that was killed: it may still write the checkpoint."""
    end = time.monotonic() + patience
    with suppress(CheckpointError):  # an unreachable store is reported by the next operation that uses it
        while _held_by_jvm(checkpoint) and time.monotonic() < end:
            time.sleep(0.1)


def _held_by_jvm(checkpoint: str) -> bool:
    folder = local_path(checkpoint)
    if folder is not None:
        return local_lock.process_of(folder) is None and local_lock.jvm_of(folder) is not None
    note = _read(open_reader(checkpoint))
    return note is not None and note.counts() and note.is_here() and not note.process_lives()


def _stopping(jvm: str) -> str:
    return f"the JVM (process {jvm}) of a run that was killed; it ends within seconds; try again then"


def _jvm() -> LockingJvm | None:
    return _find_jvm() if _find_jvm is not None else None


def _hold_local(checkpoint: str, folder: Path) -> Lease | None:
    lock = local_lock.take(folder)
    return None if lock is None else Lease(checkpoint, lock)


def _hold_remote(checkpoint: str) -> Lease | None:
    try:
        lock = _RemoteLease.take(RemoteWriter(checkpoint))
    except StoreError:
        raise  # Spark uses the same credentials
    except CheckpointError as error:
        # Spark may well reach what this process cannot, such as a filesystem whose package is missing here.
        return Lease(checkpoint, None, f"{checkpoint} is not locked against a second run: {error}")
    return None if lock is None else Lease(checkpoint, lock)


@dataclass(frozen=True)
class _Note:
    """The content of lease.json.

    Attributes:
        token: Identifies the holder.
        process: The id of its process.
        host: The name of its machine.
        renewed: The time at which it was written, by the clock of that machine.
        machine: The id of the machine, on which the process ids are valid; empty when an older respool wrote it.
        started: When the process started.
        jvm: The id of its JVM, if it has one.
        jvm_started: When the JVM started.
    """

    token: str
    process: int
    host: str
    renewed: float
    machine: str = ""
    started: str = ""
    jvm: int | None = None
    jvm_started: str = ""

    @staticmethod
    def parse(data: bytes) -> "_Note | None":
        """Return the content of a lease; None when it cannot be parsed: then it is invalid."""
        try:
            fields = Fields(parse_json(data, _MAX_BYTES))
            return _Note(
                fields.text("token"),
                fields.whole("process", least=1, most=_MAX_PID),
                fields.line("host"),
                fields.number("renewed"),
                fields.optional_text("machine") or "",
                fields.optional_text("started") or "",
                fields.optional_whole("jvm", least=1, most=_MAX_PID),
                fields.optional_text("jvm_started") or "",
            )
        except Malformed:
            return None

    def is_here(self) -> bool:
        """Return whether the holder's processes run on this machine."""
        return bool(self.started) and self.machine == process.machine()

    def process_lives(self) -> bool:
        """Return whether the process still runs on this machine."""
        return process.start_time(self.process) == self.started

    def is_dead(self) -> bool:
        """Return whether the holder has given it up, or ended on this machine together with its JVM."""
        if self.token in _given_up:
            return True
        if not self.is_here() or self.process_lives():
            return False
        return self.jvm is None or process.start_time(self.jvm) != self.jvm_started

    def counts(self) -> bool:
        """Return whether the lease is valid now, by this machine's clock."""
        return not self.is_dead() and time.time() - self.renewed < _SECONDS


def _read(files: FolderReader) -> _Note | None:
    try:
        return _Note.parse(files.read(_LEASE))
    except FileNotFoundError:
        return None


class _RemoteLease:
    """A lease in an object store, renewed by a thread until `close`.

    Attributes:
        lost: Why it is lost; None while it is held.
    """

    def __init__(self, files: RemoteWriter) -> None:
        """Make a token; nothing is written yet."""
        self.lost: str | None = None
        self._files = files
        self._token = str(uuid4())
        self._jvm_pid: int | None = None
        self._jvm_started = ""
        self._renewed = _now()  # the time before the last read that was followed by a write
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._state = threading.Lock()
        self._calls: list[Callable[[str], None]] = []
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    @staticmethod
    def take(files: RemoteWriter) -> "_RemoteLease | None":
        """Take the lease; None when another process holds it."""
        lease = _RemoteLease(files)
        try:
            before = files.versioned(_LEASE)
        except FileNotFoundError:
            try:
                files.create(_LEASE, lease._note())
            except FileExistsError:
                return None
        else:
            note = _Note.parse(before.data)
            if note is not None and not note.is_dead() and _age(files, note) < _SECONDS:
                return None
            if not files.replace_version(_LEASE, before, lease._note()):
                return None  # it was renewed, or another process was faster
            if before.version is None:
                time.sleep(_SETTLE)
        note = _read(files)
        if note is None or note.token != lease._token:
            return None
        lease._thread.start()
        return lease

    def extend_to(self, jvm: LockingJvm) -> None:
        """Record the JVM in the lease, which stays valid while the JVM runs."""
        self._jvm_pid, self._jvm_started = jvm.pid, process.start_time(jvm.pid)
        try:
            self._renew()
        except CheckpointError as error:
            if self.lost is not None:
                raise
            raise CheckpointError(f"The lease {self._files.root}/{_LEASE} could not be renewed: {error}") from error

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Register a function that is called with the reason when the lease is lost."""
        with self._state:
            self._calls.append(call)
            lost = self.lost
        if lost is not None:
            call(lost)

    def close(self) -> None:
        """Delete the lease if this process still holds it."""
        self._ended.set()
        _given_up.add(self._token)
        if not self._writing.acquire(timeout=_MARGIN):
            return  # the store does not answer: the lease expires
        try:
            with suppress(CheckpointError):
                note = _read(self._files)
                if note is not None and note.token == self._token:
                    self._files.delete(_LEASE)
                _given_up.discard(self._token)
        finally:
            self._writing.release()

    def _keep(self) -> None:
        """Renew the lease until it is closed or lost."""
        pause = _RENEW
        while self.lost is None and not self._ended.wait(pause):
            before, errors = self._renewed, [""]

            def attempt(errors: list[str] = errors) -> None:
                try:
                    self._renew()
                except CheckpointError as error:
                    errors[0] = str(error)

            # In a separate thread: a store that does not answer must not block this thread.
            thread = threading.Thread(target=attempt, name="lease-renewal", daemon=True)
            thread.start()
            thread.join(max(_limit() - (_now() - before), _RETRY))
            pause = _RENEW if self._renewed > before else _RETRY
            if self._renewed == before and _now() - before > _limit() and not self._ended.is_set():
                self._lose(
                    f"could not be renewed for {_now() - before:.0f} s: {errors[0] or 'the store did not answer'}"
                )

    def _renew(self) -> None:
        """Renew the lease; raise CheckpointError when it is lost or cannot be written."""
        with self._writing:
            if self.lost is not None or self._ended.is_set():
                return
            now, before = _now(), self._renewed
            try:
                lease = self._files.versioned(_LEASE)
                note = _Note.parse(lease.data)
            except FileNotFoundError:
                note = None
            if note is None or note.token != self._token:
                self._lose(_taken(note))
                raise CheckpointError(self.lost or "")
            if not self._files.replace_version(_LEASE, lease, self._note()):
                self._lose(_taken(_read(self._files)))
                raise CheckpointError(self.lost or "")
            if _now() - before >= _SECONDS and _now() - now >= _SETTLE:
                # It expired before it was written, too long after it was read: another process may have taken it over.
                self._lose("expired while it was renewed, and may have been taken over")
                raise CheckpointError(self.lost or "")
            self._renewed = now

    def _lose(self, why: str) -> None:
        with self._state:
            if self.lost is None:
                self.lost = (
                    f"The lease of the checkpoint {self._files.root} is lost: it {why}. This process must not write "
                    f"there. Show who uses it with: respool checkpoint show {self._files.root}; then run this again."
                )
                calls = list(self._calls)
            else:
                calls = []
        for call in calls:
            call(self.lost)

    def _note(self) -> bytes:
        facts = {
            "token": self._token,
            "process": os.getpid(),
            "host": socket.gethostname(),
            "renewed": time.time(),
            "machine": process.machine(),
            "started": process.start_time(os.getpid()),
            "jvm": self._jvm_pid,
            "jvm_started": self._jvm_started,
        }
        return json.dumps(facts).encode()


def _taken(note: _Note | None) -> str:
    if note is None:
        return "was taken over or deleted while this process could not renew it"
    return f"was taken over by process {note.process} on {note.host}"


def _limit() -> float:
    """Return how many seconds after its last renewal a holder gives its lease up."""
    return max(_SECONDS - _MARGIN, 0.0)


def _now() -> float:
    """Return seconds of a clock that is never adjusted and continues while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def _age(files: FolderWriter, note: _Note) -> float:
    """Return the age of a lease by the clock of its store, or by both machines' clocks where the store has no times."""
    probe = f"{OWN}/lease-{uuid4()}"
    files.replace(probe, b"")
    try:
        times = [info.modified for info in files.facts([_LEASE, probe]).values()]
    finally:
        files.delete(probe)
    if len(times) == 2 and times[0] is not None and times[1] is not None:
        return times[1] - times[0]
    return time.time() - note.renewed
