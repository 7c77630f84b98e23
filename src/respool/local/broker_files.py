"""The folder of the embedded broker: its files, and those that are written before a start."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from respool.errors import BrokerError
from respool.local.java import JavaRuntime
from respool.untrusted import Fields, Malformed, open_regular_file, parse_json, read_regular_file

REMEMBERED = "broker.json"
LOG = Path("logs") / "broker.log"
_DATA = "data"
_NEW_DATA = "data.new-"
_PROCESS = "process.json"
_OUTPUT = Path("logs") / "output.log"
_SERVER = "server.properties"
_LOG4J = "log4j2.xml"
_OWN = frozenset({REMEMBERED, f"{REMEMBERED}.new", _DATA, _PROCESS, f"{_PROCESS}.new", _SERVER, _LOG4J, "logs"})
_MAX_RECORD = 32 * 2**20

# The broker runs inside its folder and every path below is relative to it: no home, however named, can be misread.
_SERVER_PROPERTIES = """\
# Written by respool at every start of the embedded broker.
process.roles=broker,controller
node.id=1
listeners=BROKER://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=BROKER://{host}:{port}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
# Static voters, so that the controller may have another port at every start.
controller.quorum.voters=1@{host}:{controller_port}
log.dirs={data}

auto.create.topics.enable=false
num.partitions=2
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0

message.max.bytes={max_record}
replica.fetch.max.bytes={max_record}
# Records are kept until `respool broker reset`, and may bear any time: past days are replayed on this broker.
log.retention.ms=-1
offsets.retention.minutes=5256000
log.message.timestamp.after.max.ms=9223372036854775807
log.segment.bytes=268435456
"""

_LOG4J_XML = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <RollingFile name="file" fileName="{log}" filePattern="{log}.%i">
      <PatternLayout pattern="%d{{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}}{{UTC}} %-5p %m (%c{{1}})%n"/>
      <SizeBasedTriggeringPolicy size="10 MB"/>
      <DefaultRolloverStrategy max="3"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Root level="INFO">
      <AppenderRef ref="file"/>
    </Root>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True)
class LastStart:
    """The port of the last start, and the port that the settings had then."""

    port: int
    wanted: int


def folder(home: Path) -> Path:
    """Return the broker's folder."""
    return home / "broker"


def process_file(home: Path) -> Path:
    """Return the file that identifies the broker's process."""
    return folder(home) / _PROCESS


def output_file(home: Path) -> Path:
    """Return the file of the broker's output, which is little: errors before its log is open."""
    return folder(home) / _OUTPUT


def last_start(home: Path) -> LastStart | None:
    """Return the ports of the last start; None when there was no start, or its file cannot be read."""
    try:
        facts = Fields(parse_json(read_regular_file(folder(home) / REMEMBERED)))
        return LastStart(facts.whole("port", most=65_535), facts.whole("wanted", most=65_535))
    except (OSError, Malformed):
        return None


def strangers(home: Path) -> list[str]:
    """Return the names of files in the broker's folder that are not the broker's."""
    if folder(home).is_symlink():
        return ["a link to another folder"]
    return sorted(
        entry.name
        for entry in os.scandir(folder(home))
        if entry.name not in _OWN and not entry.name.startswith(_NEW_DATA)
    )


def data_bytes(home: Path) -> int:
    """Return how much the topics take on disk, as allocated on the disk: Kafka's indexes are sparse files."""
    total = 0
    for path in (folder(home) / _DATA).rglob("*"):
        with contextlib.suppress(OSError):  # A running broker deletes files of its own.
            total += path.lstat().st_blocks * 512
    return total


def last_lines(home: Path, count: int) -> list[str]:
    """Return the last lines of the broker's log and of its output."""
    lines: deque[str] = deque(maxlen=count)
    for file in (folder(home) / LOG, output_file(home)):
        with contextlib.suppress(OSError), open_regular_file(file) as stream:
            lines.extend(line.decode(errors="replace").rstrip() for line in stream)
    return list(lines)


def prepare(home: Path) -> None:
    """Create the folders, and delete leftovers of earlier starts."""
    (folder(home) / LOG).parent.mkdir(parents=True, exist_ok=True)
    for left in folder(home).glob(f"{_NEW_DATA}*"):
        shutil.rmtree(left, ignore_errors=True)
    # The log is to contain this start only: the log of earlier starts is renamed.
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder(home) / LOG, folder(home) / f"{LOG}.before")


def write_settings(home: Path, host: str, port: int, controller_port: int, wanted: int) -> None:
    """Write the broker's settings, and remember its port."""
    where = folder(home)
    text = _SERVER_PROPERTIES.format(
        host=host, port=port, controller_port=controller_port, data=_DATA, max_record=_MAX_RECORD
    )
    (where / _SERVER).write_text(text, encoding="ascii")
    (where / _LOG4J).write_text(_LOG4J_XML.format(log=LOG), encoding="ascii")
    new = where / f"{REMEMBERED}.new"
    new.write_text(json.dumps(asdict(LastStart(port, wanted))) + "\n", encoding="ascii")
    os.replace(new, where / REMEMBERED)


def command(java: JavaRuntime, class_path: str) -> list[str]:
    """Return the command of the broker, to be run in its folder."""
    return [
        *(str(java.path), "-Xms128m", "-Xmx1g", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"),
        *(f"-Dlog4j2.configurationFile={_LOG4J}", "-cp", class_path, "kafka.Kafka", _SERVER),
    ]


def cluster_id(home: Path) -> str | None:
    """Return the id that the broker's data was given when it was formatted."""
    try:
        text = read_regular_file(folder(home) / _DATA / "meta.properties").decode("ascii")
    except (OSError, ValueError):
        return None
    return next(
        (line.removeprefix("cluster.id=") for line in text.splitlines() if line.startswith("cluster.id=")), None
    )


def format_data(home: Path, java: JavaRuntime, class_path: str) -> None:
    """Create the broker's data folder, unless it exists; it is complete or does not exist."""
    where = folder(home)
    if (where / _DATA).is_dir():
        return
    new = Path(tempfile.mkdtemp(prefix=_NEW_DATA, dir=where))
    try:
        # Ports do not matter here; the folder's name does, and only here.
        text = _SERVER_PROPERTIES.format(
            host="127.0.0.1", port=1, controller_port=2, data=f"{new.name}/{_DATA}", max_record=_MAX_RECORD
        )
        (new / _SERVER).write_text(text, encoding="ascii")
        tool = [str(java.path), "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", class_path, "kafka.tools.StorageTool"]
        arguments = ["format", "--cluster-id", _new_id(), "--config", f"{new.name}/{_SERVER}"]
        ran = subprocess.run(
            [*tool, *arguments], cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
        if ran.returncode != 0 or not (new / _DATA).is_dir():
            raise _format_failed(where, ran.stderr + ran.stdout)
        os.rename(new / _DATA, where / _DATA)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _new_id() -> str:
    """Return an id for a cluster, as Kafka makes them: an id that begins with a dash would be parsed as an option."""
    while True:
        new = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not new.startswith("-"):
            return new


def _format_failed(where: Path, output: str) -> Exception:
    if "No space left on device" in output:
        return OSError(errno.ENOSPC, "No space left on device", str(where))
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("\t")]
    why = lines[-1] if lines else "it printed nothing"
    return BrokerError(f"Kafka could not prepare the broker's data folder in {where}: {why}. See: respool doctor.")
