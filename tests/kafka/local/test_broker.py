"""The embedded broker, as it really runs. The tests of the first part share one broker, which each leaves running."""

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from respool import process
from respool.cli.commands.broker import app
from respool.errors import BrokerError, MachineError
from respool.local import broker, broker_files
from respool.settings import Settings

TOPIC = "kept"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def write(address: str, *values: bytes) -> None:
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address, "message.max.bytes": 20_000_000})
    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=note)
    assert producer.flush(30) == 0
    assert failed == []


def read(address: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        values: list[bytes] = []
        while len(values) < end:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            value = message.value()
            assert value is not None
            values.append(value)
        return values
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    # A comma and a blank: Kafka reads commas in its settings as lists.
    own = Settings(home=tmp_path_factory.mktemp("home") / "a, b", broker_port=free_port())
    try:
        started = broker.start(own)
        assert (started.port, started.already_running, started.taken_port) == (own.broker_port, False, None)
        admin = AdminClient({"bootstrap.servers": started.address})
        admin.create_topics([NewTopic(TOPIC, num_partitions=1)])[TOPIC].result(30)
        write(started.address, b"first")
        yield own
    finally:
        broker.stop(own.home)


@pytest.fixture
def home(settings: Settings) -> Path:
    return settings.home


def test_it_answers_and_says_so(settings: Settings, home: Path) -> None:
    status = broker.status(home)
    assert status.state == "running"
    assert status.address == broker.address(home) == f"127.0.0.1:{settings.broker_port}"
    assert status.data_bytes > 0
    assert "Kafka Server started" in broker.log_file(home).read_text()

    shown = json.loads(CliRunner().invoke(app, ["status", "--json", "--home", str(home)]).stdout)
    assert shown["state"] == "running"
    assert shown["pid"] == status.pid
    assert "Kafka" in CliRunner().invoke(app, ["logs", "--lines", "500", "--home", str(home)]).stdout


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
def test_it_listens_on_loopback_only(home: Path) -> None:
    pid = broker.status(home).pid
    links = (os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink())
    own = {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        if (file := Path(f"/proc/{pid}/net/{table}")).exists()
        for line in file.read_text().splitlines()[1:]
    ]
    listening = {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[9] in own}
    # 127.0.0.1, as IPv4 or mapped into IPv6.
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening


def test_a_second_start_finds_it_running(settings: Settings, home: Path) -> None:
    pid = broker.status(home).pid
    again = broker.start(settings)
    assert (again.pid, again.already_running) == (pid, True)
    assert broker.start(settings, port=settings.broker_port).pid == pid
    with broker.running(settings) as same:
        assert same.pid == pid
    assert broker.address(home) == again.address


def test_a_running_broker_is_not_moved(settings: Settings, home: Path) -> None:
    with pytest.raises(BrokerError, match=rf"already runs, on port {settings.broker_port}.*respool broker stop"):
        broker.start(settings, port=free_port())
    assert broker.status(home).state == "running"


def test_a_record_of_ten_megabytes_passes_and_topics_are_never_made_by_chance(settings: Settings, home: Path) -> None:
    address = broker.address(home)
    assert address is not None
    write(address, os.urandom(10_000_000))
    admin = AdminClient({"bootstrap.servers": address})
    admin.list_topics("never-created", timeout=30)
    assert "never-created" not in admin.list_topics(timeout=30).topics


def test_records_outlive_a_stop_and_racing_starts_make_a_single_broker(settings: Settings, home: Path) -> None:
    before = read(str(broker.address(home)))
    assert before[0] == b"first"
    assert broker.stop(home) is True
    assert broker.status(home).state == "stopped"
    assert broker.address(home) is None
    assert broker.stop(home) is False

    with ThreadPoolExecutor(2) as pool:
        first, other = pool.map(broker.start, [settings, settings])
    assert first.pid == other.pid
    assert {first.already_running, other.already_running} == {True, False}
    assert read(first.address) == before


def test_records_outlive_kill_9(settings: Settings, home: Path) -> None:
    status = broker.status(home)
    assert status.pid is not None
    before = read(str(status.address))
    os.kill(status.pid, signal.SIGKILL)
    wait_until(lambda: broker.address(home) is None, "the death is noticed")
    assert broker.status(home).state == "died"
    started = broker.start(settings)
    assert (started.address, started.already_running) == (status.address, False)
    assert read(started.address) == before


def test_a_taken_port_moves_the_broker_unless_the_port_was_requested(settings: Settings, home: Path) -> None:
    broker.stop(home)
    with socket.create_server(("127.0.0.1", settings.broker_port)):
        with pytest.raises(BrokerError, match=rf"Port {settings.broker_port} is in use.*omit --port"):
            broker.start(settings, port=settings.broker_port)
        assert broker.status(home).state == "stopped"
        moved = broker.start(settings)
    assert moved.taken_port == settings.broker_port
    assert moved.port != settings.broker_port
    assert broker.address(home) == moved.address
    assert read(moved.address)[0] == b"first"
    remembered = broker_files.last_start(home)
    assert remembered is not None
    assert remembered.port == moved.port


def test_a_respool_killed_while_starting_blocks_nothing(settings: Settings, home: Path) -> None:
    broker.stop(home)
    code = (
        "import sys; from pathlib import Path; from respool.local import broker; from respool.settings import Settings"
    )
    call = f"broker.start(Settings(home=Path(sys.argv[1]), broker_port={settings.broker_port}))"
    with subprocess.Popen([sys.executable, "-c", f"{code}; {call}", str(home)]) as starter:
        wait_until(lambda: process.find(broker_files.process_file(home)) is not None, "the broker is launched")
        starter.kill()
    started = broker.start(settings)
    assert started.already_running
    assert read(started.address)[0] == b"first"


def test_reset_deletes_its_own_folder_and_no_other(settings: Settings, home: Path) -> None:
    other = home / "checkpoints"
    other.mkdir()
    stranger = home / "broker" / "thesis.txt"
    stranger.write_text("years of work")
    with pytest.raises(BrokerError, match=r"holds thesis\.txt. Nothing was deleted"):
        broker.reset(home)
    assert broker.status(home).state == "running"
    stranger.unlink()

    assert CliRunner().invoke(app, ["reset", "--home", str(home)], input="n\n").exit_code == 1
    assert broker.status(home).state == "running"
    assert CliRunner().invoke(app, ["reset", "--home", str(home), "--yes"]).exit_code == 0
    assert not (home / "broker").exists()
    assert other.exists()
    assert broker.status(home).state == "stopped"
    assert broker.reset(home) is False


# The second part needs no broker of its own, or one that cannot start.


def test_a_process_id_that_was_reused_is_not_taken_for_the_broker(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            file = broker_files.process_file(tmp_path)
            file.write_text(json.dumps({"pid": other.pid, "started": "before the last boot"}))
            (tmp_path / "broker" / "broker.json").write_text('{"port": 9092, "wanted": 9092}')
            assert broker.address(tmp_path) is None
            assert broker.status(tmp_path).state == "died"
            assert broker.stop(tmp_path) is False
            assert other.poll() is None
            # The same process, with its right start time, is recognized.
            file.write_text(json.dumps({"pid": other.pid, "started": process.start_time(other.pid)}))
            assert broker.address(tmp_path) == "127.0.0.1:9092"
        finally:
            other.kill()
            other.wait()
    assert broker.address(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1, "started": ""}'])
def test_an_unreadable_process_file_is_no_broker(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker").mkdir()
    broker_files.process_file(tmp_path).write_text(text)
    assert broker.address(tmp_path) is None


def test_looking_at_a_home_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert broker.address(home) is None
    assert broker.status(home).state == "stopped"
    assert broker.stop(home) is False
    assert broker.reset(home) is False
    assert not home.exists()


def test_a_link_is_not_reset(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "broker").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BrokerError, match="a link to another folder"):
        broker.reset(tmp_path / "home")


def test_logs_of_no_broker(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["logs", "--home", str(tmp_path)])
    assert isinstance(result.exception, BrokerError)
    assert "no broker was started for this home" in str(result.exception)


def test_a_broker_that_cannot_start_shows_its_last_words(tmp_path: Path) -> None:
    data = tmp_path / "broker" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\ncluster.id=somebody-elses-cluste\nnode.id=7\n")
    with pytest.raises(BrokerError, match=r"ended while it started(.|\n)*The end of its log:(.|\n)*node.id"):
        broker.start(Settings(home=tmp_path, broker_port=free_port()))
    assert broker.status(tmp_path).state == "stopped"


def test_a_port_lost_at_the_last_moment_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "_free", lambda port: True)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with broker.running(Settings(home=tmp_path, broker_port=taken)) as moved:
            assert (moved.taken_port, moved.port != taken) == (taken, True)
    assert broker.status(tmp_path).state == "stopped"


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(home: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(broker_files, "prepare", full)
    with pytest.raises(MachineError, match=r"is full, or nearly so.*--home"):
        broker.start(Settings(home=tmp_path))


def test_a_nearly_full_disk_is_reported_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(MachineError, match=r"needs 32 MiB to start"):
        broker.start(Settings(home=tmp_path))
    assert not (tmp_path / "broker").exists()


def test_running_stops_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Path] = []
    monkeypatch.setattr(broker, "start", lambda settings, port: broker.Broker("127.0.0.1:1", 1, 1, tmp_path))
    monkeypatch.setattr(broker, "stop", stopped.append)
    with contextlib.suppress(ZeroDivisionError), broker.running(Settings(home=tmp_path)):
        raise ZeroDivisionError
    assert stopped == [tmp_path]
