import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import count

import pytest

from respool.errors import BrokerError, SettingsError, TopicError
from respool.kafka import consumer, topics
from respool.kafka import producer as kafka_producer
from respool.kafka.cluster import KafkaCluster
from respool.kafka.consumer import Record
from respool.kafka.producer import Message
from respool.visits.generator import VisitsPlan, generate

# The hashes that Kafka's Java client gives these keys, made positive, modulo the partitions of a test's topic.
PARTITION_OF = {
    key: (murmur2 & 0x7FFFFFFF) % 2
    for key, murmur2 in {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}.items()
}


def numbered(start: int, end: int) -> Iterator[Message]:
    return (Message(f"key-{number}".encode(), f"value-{number}".encode()) for number in range(start, end))


def test_only_a_running_broker_answers(kafka: KafkaCluster) -> None:
    assert topics.is_reachable(kafka)
    assert not topics.is_reachable(KafkaCluster("127.0.0.1:1"), timeout=0.5)


def test_nothing_is_written_to_standard_error_when_no_broker_is_there(capfd: pytest.CaptureFixture[str]) -> None:
    topics.is_reachable(KafkaCluster("127.0.0.1:1"), timeout=0.5)
    assert capfd.readouterr() == ("", "")


def test_an_option_unknown_to_the_client_is_a_settings_error(kafka: KafkaCluster) -> None:
    with pytest.raises(SettingsError, match="nonsense"):
        topics.list_topics(replace(kafka, options={"nonsense": "1"}))


def test_a_created_topic_is_listed_with_its_records_and_gone_once_deleted(kafka: KafkaCluster, topic: str) -> None:
    name = f"{topic}-created"
    topics.create(kafka, name, partitions=3, config={"retention.ms": "-1"})
    kafka_producer.produce(kafka, name, numbered(0, 7))
    assert topics.Topic(name, partitions=3, records=7) in topics.list_topics(kafka)
    topics.delete(kafka, name)
    assert name not in [listed.name for listed in topics.list_topics(kafka)]


def test_kafkas_own_topics_are_not_listed(kafka: KafkaCluster, topic: str) -> None:
    if not any(name == "__own" for name in topics._partitions(kafka)):
        topics.create(kafka, "__own")
    assert not [listed.name for listed in topics.list_topics(kafka) if listed.name.startswith("__")]


def test_a_topic_is_created_once(kafka: KafkaCluster, topic: str) -> None:
    with pytest.raises(TopicError, match="exists already"):
        topics.create(kafka, topic)
    assert not topics.ensure_topic(kafka, topic)
    assert topics.ensure_topic(kafka, f"{topic}-new", partitions=2)
    assert topics.require_topic(kafka, f"{topic}-new") == [0, 1]


@pytest.mark.parametrize(("name", "config"), [("not a name", {}), ("fine", {"no.such.setting": "1"})])
def test_a_rejection_by_the_broker_is_reported_in_its_words(
    kafka: KafkaCluster, name: str, config: dict[str, str]
) -> None:
    with pytest.raises(TopicError, match=r"invalid|no\.such\.setting"):
        topics.create(kafka, name, config=config)


def test_an_unknown_topic_names_the_nearest_and_the_next_step(kafka: KafkaCluster, topic: str) -> None:
    wrong = topic + "x"
    with pytest.raises(TopicError, match=f"Did you mean '{topic}'.*respool topic create {wrong}"):
        topics.require_topic(kafka, wrong)
    for use in (topics.delete, topics.end_offsets, topics.start_offsets, consumer.read):
        with pytest.raises(TopicError, match="no topic"):
            use(kafka, wrong)


def test_an_unknown_topic_is_reported_before_any_message_is_consumed(kafka: KafkaCluster, topic: str) -> None:
    messages = numbered(0, 1)
    with pytest.raises(TopicError, match="no topic"):
        kafka_producer.produce(kafka, f"{topic}x", messages)
    assert next(messages).key == b"key-0"


def test_records_are_read_as_they_were_sent(kafka: KafkaCluster, topic: str) -> None:
    sent = [
        Message(b"a", b'{"page": "main"}'),
        Message(None, b"\xff\xfe"),
        Message(b"b", None),
        Message(b"", b""),
    ]
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    assert kafka_producer.produce(kafka, topic, sent) == 4
    records = list(consumer.read(kafka, topic))
    assert {(record.key, record.value) for record in records} == set(sent)
    assert all(before <= record.timestamp <= datetime.now(timezone.utc) for record in records)
    assert {record.topic for record in records} == {topic}
    assert all(record.headers == () for record in records)


def test_headers_are_read(kafka: KafkaCluster, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"value", headers=[("source", b"live"), ("source", b"again"), ("empty", None)])
    producer.flush()
    assert next(consumer.read(kafka, topic)).headers == (("source", b"live"), ("source", b"again"), ("empty", None))


def test_a_key_goes_to_the_partition_that_java_clients_choose(kafka: KafkaCluster, topic: str) -> None:
    kafka_producer.produce(kafka, topic, [Message(key, b"") for key in PARTITION_OF])
    assert {record.key: record.partition for record in consumer.read(kafka, topic)} == PARTITION_OF


def test_offsets_have_a_start_and_an_end(kafka: KafkaCluster, topic: str) -> None:
    assert topics.start_offsets(kafka, topic) == topics.end_offsets(kafka, topic) == {0: 0, 1: 0}
    kafka_producer.produce(kafka, topic, numbered(0, 50))
    ends = topics.end_offsets(kafka, topic)
    assert sum(ends.values()) == 50
    assert min(ends.values()) > 0


def in_order(records: list[Record]) -> bool:
    times = [record.timestamp for record in records]
    offsets = {
        partition: [record.offset for record in records if record.partition == partition]
        for partition in {record.partition for record in records}
    }
    return times == sorted(times) and all(part == sorted(part) for part in offsets.values())


def test_partitions_are_merged_by_time_in_bounded_memory(
    kafka: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "_HELD", 20)
    for step in range(4):  # one partition lags far behind the other, again and again
        key = next(key for key, partition in PARTITION_OF.items() if partition == step % 2)
        kafka_producer.produce(kafka, topic, [Message(key, f"{step}-{number}".encode()) for number in range(500)])
    records = list(consumer.read(kafka, topic))
    assert [record.value for record in records] == [
        f"{step}-{number}".encode() for step in range(4) for number in range(500)
    ]
    assert in_order(records)


def test_the_newest_records_are_those_of_the_whole_topic(kafka: KafkaCluster, topic: str) -> None:
    for number in range(6):
        kafka_producer.produce(kafka, topic, numbered(number, number + 1))
    assert [record.value for record in consumer.read(kafka, topic, newest=3)] == [b"value-3", b"value-4", b"value-5"]
    assert [record.value for record in consumer.read(kafka, topic, limit=2)] == [b"value-0", b"value-1"]
    assert len(list(consumer.read(kafka, topic, newest=100))) == 6
    assert list(consumer.read(kafka, topic, limit=0)) == []


def test_an_empty_topic_is_read_without_waiting(kafka: KafkaCluster, topic: str) -> None:
    assert list(consumer.read(kafka, topic)) == []
    assert list(consumer.read(kafka, topic, newest=10)) == []


def test_reading_ends_where_the_topic_ended_when_it_began(kafka: KafkaCluster, topic: str) -> None:
    kafka_producer.produce(kafka, topic, numbered(0, 10))
    records = consumer.read(kafka, topic)
    kafka_producer.produce(kafka, topic, numbered(10, 20))
    assert {record.value for record in records} == {f"value-{number}".encode() for number in range(10)}


def test_following_continues_with_new_records(kafka: KafkaCluster, topic: str) -> None:
    kafka_producer.produce(kafka, topic, numbered(0, 10))
    everything = consumer.read(kafka, topic, limit=20, follow=True)
    only_new = consumer.read(kafka, topic, newest=0, limit=10, follow=True)
    assert len([next(everything) for _ in range(10)]) == 10
    kafka_producer.produce(kafka, topic, numbered(10, 20))
    new = {f"value-{number}".encode() for number in range(10, 20)}
    assert {record.value for record in everything} == new
    assert {record.value for record in only_new} == new


def test_what_a_transaction_left_behind_does_not_hold_reading_up(kafka: KafkaCluster, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in ((b"kept", producer.commit_transaction), (b"given up", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        end(30)
    assert [record.value for record in consumer.read(kafka, topic)] == [b"kept"]
    assert topics.end_offsets(kafka, topic)[0] == 4


def test_a_message_is_sent_before_the_next_is_read(kafka: KafkaCluster, topic: str) -> None:
    arrived = consumer.read(kafka, topic, newest=0, follow=True)

    def typed() -> Iterator[Message]:
        for message in numbered(0, 3):
            yield message
            assert next(arrived).value == message.value

    assert kafka_producer.produce(kafka, topic, typed()) == 3


def test_more_messages_than_the_queue_holds_are_all_delivered(kafka: KafkaCluster, topic: str) -> None:
    small = replace(kafka, options={"queue.buffering.max.messages": "100"})
    assert kafka_producer.produce(small, topic, generate(VisitsPlan(count=5_000))) == 5_000
    assert sum(topics.end_offsets(kafka, topic).values()) == 5_000


def test_the_order_of_a_key_is_kept(kafka: KafkaCluster, topic: str) -> None:
    kafka_producer.produce(kafka, topic, (Message(b"one", str(number).encode()) for number in range(2_000)))
    assert [int(record.value or b"") for record in consumer.read(kafka, topic)] == list(range(2_000))


def test_a_rate_is_kept(kafka: KafkaCluster, topic: str) -> None:
    begin = time.monotonic()
    kafka_producer.produce(kafka, topic, numbered(0, 21), rate=40)
    assert 0.48 <= time.monotonic() - begin < 5


def test_an_endless_stream_can_be_stopped_and_is_counted(kafka: KafkaCluster, topic: str) -> None:
    stop = threading.Event()
    seen: list[int] = []

    def progress(sent: int) -> None:
        seen.append(sent)
        if sent == 100:
            stop.set()

    endless = (Message(None, str(number).encode()) for number in count())
    assert kafka_producer.produce(kafka, topic, endless, progress=progress, stopped=stop.is_set) == 100
    assert seen == list(range(1, 101))
    assert sum(topics.end_offsets(kafka, topic).values()) == 100


def test_messages_before_an_invalid_message_are_sent(kafka: KafkaCluster, topic: str) -> None:
    def broken() -> Iterator[Message]:
        yield from numbered(0, 5)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        kafka_producer.produce(kafka, topic, broken())
    assert sum(topics.end_offsets(kafka, topic).values()) == 5


def test_a_failed_delivery_says_how_many_were_delivered(kafka: KafkaCluster, topic: str) -> None:
    name = f"{topic}-small"
    topics.create(kafka, name, config={"max.message.bytes": "200"})
    messages = [Message(None, b"x" * 10), Message(None, b"x" * 5_000)]
    one_by_one = replace(kafka, options={"batch.num.messages": "1"})
    with pytest.raises(TopicError, match=rf"1 of 2 records could not be delivered to '{name}' \(1 were\)"):
        kafka_producer.produce(one_by_one, name, messages)


def test_a_record_that_the_client_refuses_is_reported(kafka: KafkaCluster, topic: str) -> None:
    messages = [Message(None, b"x"), Message(None, b"x" * 20_000)]
    strict = replace(kafka, options={"message.max.bytes": "10000"})
    with pytest.raises(TopicError, match=r"1 of 2 records .* \(1 were\).*large"):
        kafka_producer.produce(strict, topic, messages)


def test_a_broker_that_is_gone_is_a_broker_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TIMEOUT", 0.5)
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1 "):
        topics.list_topics(KafkaCluster("127.0.0.1:1"))
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1 "):
        topics.create(KafkaCluster("127.0.0.1:1"), "any")
