import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from respool.cli.commands import topic as commands_topic
from respool.cli.options import Commands
from respool.errors import TopicError
from respool.kafka import consumer, topics
from respool.kafka import producer as kafka_producer
from respool.kafka.cluster import KafkaCluster
from respool.kafka.producer import Message

Run = Callable[..., Result]

PROGRAM = """
import typer
from respool.cli.commands import topic
from respool.cli.options import Commands
app = typer.Typer(cls=Commands)
app.command()(topic.generate)
app.add_typer(topic.app, name="topic")
app()
"""


@pytest.fixture
def run(kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against the broker; an error that is not an exit is raised."""
    monkeypatch.chdir(tmp_path)
    app = typer.Typer(cls=Commands)
    app.command()(commands_topic.generate)
    app.add_typer(commands_topic.app, name="topic")

    def run(*words: str, stdin: str | bytes | None = None) -> Result:
        words = (*words, "--bootstrap-servers", kafka.bootstrap_servers)
        result = CliRunner().invoke(app, words, input=stdin)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@contextmanager
def process(kafka: KafkaCluster, folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, "--bootstrap-servers", kafka.bootstrap_servers],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("RESPOOL_")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def values(kafka: KafkaCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in consumer.read(kafka, topic)]


def test_topics_are_created_and_listed(run: Run, topic: str) -> None:
    created = run("topic", "create", f"{topic}-a", "--partitions", "2", "--config", "retention.ms=60000")
    assert created.exit_code == 0
    assert "2 partitions" in created.stderr
    row = {"topic": f"{topic}-a", "partitions": 2, "records": 0}
    assert row in json.loads(run("topic", "list", "--json").stdout)
    assert f"{topic}-a" in run("topic", "list").stdout


def test_a_setting_that_is_no_pair_is_wrong_usage(run: Run, topic: str) -> None:
    assert run("topic", "create", f"{topic}-b", "--config", "retention").exit_code == 2


def test_lines_are_sent_as_they_are(run: Run, kafka: KafkaCluster, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b'{"page": "main"}\n\n  \nnot JSON\r\n\xff\xfe\nno line end')
    result = run("topic", "produce", topic, str(file))
    assert result.stderr == f"Sent 4 records to {topic}.\n"
    assert set(values(kafka, topic)) == {b'{"page": "main"}', b"not JSON", b"\xff\xfe", b"no line end"}


@pytest.mark.parametrize("words", [(), ("-",)])
def test_lines_come_from_standard_input(run: Run, kafka: KafkaCluster, topic: str, words: tuple[str, ...]) -> None:
    assert run("topic", "produce", topic, *words, stdin="one\n").exit_code == 0
    assert values(kafka, topic) == [b"one"]


def test_a_key_stands_before_the_separator(run: Run, kafka: KafkaCluster, topic: str) -> None:
    run("topic", "produce", topic, "--key-separator", "||", stdin="k1||v1\nno key\nk2||a||b\n")
    assert {(record.key, record.value) for record in consumer.read(kafka, topic)} == {
        (b"k1", b"v1"),
        (None, b"no key"),
        (b"k2", b"a||b"),
    }


def test_wrong_uses_of_produce(run: Run, topic: str) -> None:
    assert run("topic", "produce", topic, "no-such-file").exit_code == 2
    assert run("topic", "produce", topic, "--key-separator", "", stdin="a\n").exit_code == 2
    with pytest.raises(TopicError, match="topic create"):
        run("topic", "produce", f"{topic}x", stdin="a\n")


def test_a_typed_line_is_sent_immediately_and_ctrl_c_ends_the_input(
    kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    arrived = consumer.read(kafka, topic, newest=0, follow=True)
    with process(kafka, tmp_path, "topic", "produce", topic) as typing:
        assert typing.stdin
        typing.stdin.write("typed\n")
        typing.stdin.flush()
        assert next(arrived).value == b"typed"
        typing.send_signal(signal.SIGINT)
        assert typing.wait(30) == 0
        assert typing.stderr
        assert typing.stderr.read() == f"Sent 1 record to {topic}.\n"


def test_reading_is_like_tail_by_default(run: Run, kafka: KafkaCluster, topic: str) -> None:
    kafka_producer.produce(kafka, topic, [Message(b"k", str(number).encode()) for number in range(15)])
    assert run("topic", "read", topic).stdout.split() == [str(number) for number in range(5, 15)]
    assert run("topic", "read", topic, "--max", "2").stdout.split() == ["13", "14"]
    assert run("topic", "read", topic, "--from-beginning", "--max", "2").stdout.split() == ["0", "1"]
    assert len(run("topic", "read", topic, "--from-beginning").stdout.split()) == 15
    assert run("topic", "read", topic, "--from-beginning", "--follow", "--max", "3").stdout.split() == ["0", "1", "2"]
    assert run("topic", "read", topic, "--max", "0").exit_code == 2


def produce_with_headers(kafka: KafkaCluster, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, "häuser".encode(), b"k", 0, headers=[("source", b"live"), ("n", b"1")])
    producer.flush()
    producer.produce(topic, None, None, 0)
    producer.produce(topic, b"a\xff", b"\xfe", 0, headers=[("raw", b"\xff")])
    producer.flush()


def test_keys_and_headers_are_shown_when_asked_for(run: Run, kafka: KafkaCluster, topic: str) -> None:
    produce_with_headers(kafka, topic)
    assert run("topic", "read", topic).stdout.splitlines() == ["häuser", "null", "a\\xff"]
    assert run("topic", "read", topic, "--keys", "--headers").stdout.splitlines() == [
        "source:live,n:1\tk\thäuser",
        "\tnull\tnull",
        "raw:\\xff\t\\xfe\ta\\xff",
    ]


def test_control_characters_of_a_record_do_not_reach_the_terminal(run: Run, kafka: KafkaCluster, topic: str) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e two\nlines"
    kafka_producer.produce_together(kafka, topic, [evil.encode()])
    assert run("topic", "read", topic).stdout == ("\\x1b]0;owned\\x07\\x1b[2J\\x0d\\x9b31m\\u202e two\\x0alines\n")
    printed = run("topic", "read", topic, "--json").stdout
    assert json.loads(printed)["value"] == evil
    assert "\x9b" not in printed
    assert "\u202e" not in printed


def test_json_has_every_field_of_a_record(run: Run, kafka: KafkaCluster, topic: str) -> None:
    produce_with_headers(kafka, topic)
    first, second, third = map(json.loads, run("topic", "read", topic, "--json").stdout.splitlines())
    time = first.pop("timestamp")
    assert len(time) == len("2024-01-01T01:00:00.000Z")
    assert time.endswith("Z")
    assert first == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": "k",
        "value": "häuser",
        "headers": [{"name": "source", "value": "live"}, {"name": "n", "value": "1"}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, [])
    assert base64.b64decode(third["value"]["base64"]) == b"a\xff"


def test_following_shows_only_new_records_and_ends_quietly_with_ctrl_c(
    kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    kafka_producer.produce(kafka, topic, [Message(None, b"old")])
    with process(kafka, tmp_path, "topic", "read", topic, "--follow") as following:
        assert following.stderr
        assert following.stdout
        assert "Ctrl-C" in following.stderr.readline()
        kafka_producer.produce(kafka, topic, [Message(None, b"new")])
        assert following.stdout.readline() == "new\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 0
        assert following.stderr.read() == ""


def test_generated_visits_fill_a_new_topic(run: Run, kafka: KafkaCluster, topic: str) -> None:
    name = f"{topic}-visits"
    words = ("generate", "--topic", name, "--count", "200", "--seed", "3", "--partitions", "2")
    first = run(*words)
    assert first.exit_code == 0
    assert f"Created the topic {name} with 2 partitions." in first.stderr
    assert f"Sent 200 records to {name} in " in first.stderr
    again = run(*words[:-1], "5")
    assert "--partitions 5 changes nothing" in again.stderr
    sent = values(kafka, name)
    assert len(sent) == 400
    assert len(set(sent)) == 200


def test_values_go_to_standard_output_without_a_broker(run: Run) -> None:
    result = run("generate", "--stdout", "--count", "30", "--start", "2025-09-04T07:00:00", "--visits", "5")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(events) == 30
    assert events[0]["event_time"] == "2025-09-04T07:00:00.000000"
    assert "Printed 30 records" in result.stderr


def test_the_zone_of_the_settings_is_that_of_the_event_times(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPOOL_TIMEZONE", "Europe/Paris")
    times = [
        json.loads(run("generate", "--stdout", "--count", "1", "--start", start).stdout)["event_time"]
        for start in ("2025-09-04T07:00:00", "2025-09-04T05:00:00Z")
    ]
    assert times == ["2025-09-04T07:00:00.000000"] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        ("--count", "-1"),
        ("--rate", "0"),
        ("--late", "1.5"),
        ("--duplicates", "-0.1"),
        ("--malformed", "2"),
        ("--visits", "0"),
        ("--pages", "0"),
        ("--lateness", "soon"),
        ("--start", "tomorrow"),
        ("--partitions", "0"),
    ],
)
def test_wrong_uses_of_generate(run: Run, wrong: tuple[str, str]) -> None:
    result = run("generate", "--stdout", *wrong)
    assert result.exit_code == 2
    assert wrong[0] in result.stderr


def test_ctrl_c_ends_an_endless_generator_and_counts_what_was_sent(
    kafka: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    arrived = consumer.read(kafka, topic, newest=0, follow=True)
    with process(kafka, tmp_path, "generate", "--topic", topic, "--rate", "2000") as generating:
        for _ in range(50):
            next(arrived)
        generating.send_signal(signal.SIGINT)
        assert generating.wait(30) == 0
        assert generating.stderr
        summary: Any = generating.stderr.read()
    records = sum(topics.end_offsets(kafka, topic).values())
    assert summary.startswith(f"Interrupted. Sent {records:,} records to {topic} in ")
