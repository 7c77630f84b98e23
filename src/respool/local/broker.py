"""The embedded Kafka: one broker that is its own controller, in the background, for this machine only.

All of its files are in one folder of the home, `<home>/broker/`:

    broker.json         the port it had last
    process.json        its process, while it runs
    server.properties   written again at every start
    log4j2.xml          the same
    data/               the topics; kept until `reset`
    logs/broker.log     its log, of limited size; logs/output.log holds its output

Start, stop and reset of one home wait for each other, by a lock that ends with the process that holds it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from respool import process
from respool.errors import BrokerError, MachineError
from respool.local import broker_files as files
from respool.local import jars
from respool.local.java import find_java
from respool.settings import Settings

HOST = "127.0.0.1"
_START_SECONDS = 90.0
_STOP_SECONDS = 20.0
_ATTEMPTS = 3
_LEAST_SPACE = 32 * 2**20


@dataclass(frozen=True)
class Broker:
    """A broker that answers.

    Attributes:
        address: host:port, for clients.
        port: Its port.
        pid: Its process.
        log: Its log.
        already_running: It ran before `start` was called.
        taken_port: The requested port that another program uses, if the broker had to use another; None otherwise.
    """

    address: str
    port: int
    pid: int
    log: Path
    already_running: bool = False
    taken_port: int | None = None


@dataclass(frozen=True)
class BrokerStatus:
    """The state of the broker of a home.

    Attributes:
        state: `running`; `silent`: its process runs but does not answer; `died`: it ended without being stopped;
            `stopped`.
        address: host:port, while its process lives.
        pid: Its process, while it lives.
        data_bytes: How much its topics take on disk.
        log: Its log.
    """

    state: Literal["running", "silent", "died", "stopped"]
    address: str | None
    pid: int | None
    data_bytes: int
    log: Path


def start(settings: Settings, port: int | None = None) -> Broker:
    """Start the broker of the home, and return once it answers; if it runs already, return it as it is.

    Args:
        settings: The home, the preferred port, and the source of jars.
        port: The required port. Without it, the port of the last start or of the settings is preferred, and another
            port used if that is in use.
    """
    home = settings.home.absolute()
    with _turn(home):
        try:
            running = process.find(files.process_file(home))
            if running is not None:
                return _already(home, running, port)
            if port is not None and not _free(port):
                raise BrokerError(
                    f"Port {port} is in use by another program. Choose another port, or omit --port to use a free port."
                )
            return _start(home, settings, port)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise _disk_full(home) from error
            raise


def stop(home: Path) -> bool:
    """Stop the broker of a home, and return once it is gone. Return False when it did not run."""
    home = home.absolute()
    if not files.folder(home).is_dir():
        return False
    with _turn(home):
        return _end(home, _STOP_SECONDS)


def reset(home: Path) -> bool:
    """Stop the broker of a home and delete its folder, with all topics. Return False when the folder does not exist."""
    home = home.absolute()
    folder = files.folder(home)
    if not folder.is_dir() and not folder.is_symlink():
        return False
    with _turn(home):
        strangers = files.strangers(home)
        if strangers:
            raise BrokerError(
                f"{folder} does not look like the folder of an embedded broker: it holds {', '.join(strangers[:3])}. "
                "Nothing was deleted. Check --home, or move what is not the broker's out of it."
            )
        _end(home, _STOP_SECONDS)
        shutil.rmtree(folder)
    return True


def status(home: Path) -> BrokerStatus:
    """Return the state of the broker of a home; it is probed, and nothing is changed."""
    home = home.absolute()
    pid = process.find(files.process_file(home))
    reached = address(home) if pid is not None else None
    state: Literal["running", "silent", "died", "stopped"]
    if reached is not None:
        state = "running" if _answers(reached, files.cluster_id(home), 3.0) else "silent"
    else:
        state = "died" if files.process_file(home).exists() else "stopped"
    return BrokerStatus(state, reached, pid, files.data_bytes(home), log_file(home))


def address(home: Path) -> str | None:
    """Return host:port of the broker of a home if its process lives, else None; the broker is not probed."""
    home = home.absolute()
    remembered = files.last_start(home)
    if remembered is None or process.find(files.process_file(home)) is None:
        return None
    return f"{HOST}:{remembered.port}"


def log_file(home: Path) -> Path:
    """Return where the broker of a home writes its log."""
    return files.folder(home.absolute()) / files.LOG


@contextlib.contextmanager
def running(settings: Settings, port: int | None = None) -> Iterator[Broker]:
    """Start the broker of the home for the length of a `with` block; a broker that ran before is left running."""
    broker = start(settings, port)
    try:
        yield broker
    finally:
        if not broker.already_running:
            stop(settings.home)


@contextlib.contextmanager
def _turn(home: Path) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True)
    with open(home / ".broker.lock", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _already(home: Path, pid: int, port: int | None) -> Broker:
    last = files.last_start(home)
    if last is None:
        raise BrokerError(
            f"A broker runs for the home {home} (process {pid}), but {files.REMEMBERED} is gone from its folder. Stop "
            "it and start it again: respool broker stop, respool broker start."
        )
    if port is not None and port != last.port:
        raise BrokerError(
            f"The broker of the home {home} already runs, on port {last.port}. To move it to port {port}, stop it "
            "first: respool broker stop."
        )
    # It may still be starting, for a respool that was killed meanwhile.
    _await(home, f"{HOST}:{last.port}")
    return Broker(f"{HOST}:{last.port}", last.port, pid, log_file(home), already_running=True)


def _start(home: Path, settings: Settings, port: int | None) -> Broker:
    if shutil.disk_usage(home).free < _LEAST_SPACE:
        raise _disk_full(home)
    java = find_java()
    class_path = os.pathsep.join(str(jar) for jar in jars.broker_jars(settings))
    files.prepare(home)
    files.format_data(home, java, class_path)
    wanted = port or _wanted(home, settings)
    for attempt in range(1, _ATTEMPTS + 1):
        chosen = wanted if attempt == 1 and _free(wanted) else _any_port()
        files.write_settings(home, HOST, chosen, _any_port(), settings.broker_port)
        try:
            process.launch(
                files.command(java, class_path), files.folder(home), files.process_file(home), files.output_file(home)
            )
            _await(home, f"{HOST}:{chosen}")
        except BaseException as error:
            _end(home, 2.0)
            # Another program may have taken the port since it was checked.
            if isinstance(error, BrokerError) and port is None and attempt < _ATTEMPTS and _lost_port(home):
                continue
            raise
        break
    pid = process.find(files.process_file(home))
    if pid is None:
        raise _failed(home, "ended as soon as it had answered")
    return Broker(f"{HOST}:{chosen}", chosen, pid, log_file(home), taken_port=None if chosen == wanted else wanted)


def _end(home: Path, patience: float) -> bool:
    try:
        return process.end(files.process_file(home), patience)
    except (PermissionError, TimeoutError) as error:
        raise BrokerError(
            f"The broker of the home {home} cannot be stopped: {error.strerror}. Stop it as the user that started it, "
            "or choose another home with --home."
        ) from error


def _wanted(home: Path, settings: Settings) -> int:
    """Return the port of the last start, unless the settings have another port since."""
    last = files.last_start(home)
    return last.port if last is not None and last.wanted == settings.broker_port else settings.broker_port


def _free(port: int) -> bool:
    with socket.socket() as probe:
        # A port with connections in TIME_WAIT is free, to Java as well.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _await(home: Path, address: str) -> None:
    """Return once the broker answers; raise when it ends before, or takes too long."""
    cluster_id = files.cluster_id(home)
    deadline = time.monotonic() + _START_SECONDS
    while process.find(files.process_file(home)) is not None:
        if _listens(address) and _answers(address, cluster_id, 2.0):
            return
        if time.monotonic() > deadline:
            raise _failed(home, f"did not answer within {_START_SECONDS:.0f} s")
        time.sleep(0.05)
    raise _failed(home, "ended while it started")


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, int(port))) == 0


def _answers(address: str, cluster_id: str | None, seconds: float) -> bool:
    """Return whether a broker of this cluster answers."""
    import logging

    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    quiet = logging.getLogger("respool.librdkafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    client = AdminClient({"bootstrap.servers": address, "reconnect.backoff.max.ms": 200}, logger=quiet)
    try:
        return client.list_topics(timeout=seconds).cluster_id == cluster_id
    except KafkaException:
        return False


def _lost_port(home: Path) -> bool:
    return "Address already in use" in "\n".join(files.last_lines(home, 200))


def _failed(home: Path, how: str) -> BrokerError | MachineError:
    lines = files.last_lines(home, 200)
    # On a full disk the log has no space for the error.
    if any("No space left on device" in line for line in lines) or shutil.disk_usage(home).free < 2**20:
        return _disk_full(home)
    shown = "\n  ".join(line for line in lines if not line.startswith(("\t", "    at ")))[-2000:]
    return BrokerError(
        f"The embedded broker {how}. See {log_file(home)}, and respool doctor. The end of its log:\n  {shown}"
        if shown
        else f"The embedded broker {how}, and left no entry in {log_file(home)}. See: respool doctor."
    )


def _disk_full(home: Path) -> MachineError:
    return MachineError(
        f"The disk that holds {home} is full, or nearly so: the embedded broker needs {_LEAST_SPACE // 2**20} MiB to "
        "start. Free some space, or choose a home on another disk with --home, and start it again."
    )
