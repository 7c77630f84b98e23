"""Topics and their records, without Spark and without a JVM: list, create, delete, produce, read.

Reading joins no consumer group and commits nothing, so it never changes what other consumers see.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from respool.errors import BrokerError, TopicError
from respool.kafka.cluster import (
    KafkaCluster,
    admin_client,
    broker_error,
    check_embedded,
    kafka_error,
    translate_errors,
)
from respool.settings import Settings
from respool.text import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
TIMEOUT = 15.0  # seconds for a request to the broker


@dataclass(frozen=True)
class Topic:
    """A topic in a list; `records` is the sum of end minus start offsets."""

    name: str
    partitions: int
    records: int


def name_problem(name: object) -> str | None:
    """Return why this cannot be the name of a topic, as the end of a sentence; None when it can."""
    if isinstance(name, str) and _NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return (
        "is not a name of a Kafka topic: expected up to 249 letters, digits, dots, dashes and underscores. Correct it."
    )


def is_reachable(kafka: KafkaCluster, timeout: float = 5) -> bool:
    """Return whether a broker of the cluster answers within `timeout` seconds."""
    from confluent_kafka import KafkaException

    try:
        admin_client(kafka).list_topics(timeout=timeout)
    except KafkaException:
        return False
    return True


def list_topics(kafka: KafkaCluster) -> list[Topic]:
    """Return all topics except Kafka's internal topics, by name."""
    partitions = {name: numbers for name, numbers in _partitions(kafka).items() if not name.startswith("__")}
    starts = offsets_of(kafka, partitions, end=False)
    ends = offsets_of(kafka, partitions, end=True)
    return [
        Topic(name, len(partitions[name]), sum(ends[name].values()) - sum(starts[name].values()))
        for name in sorted(partitions)
    ]


def create(
    kafka: KafkaCluster, name: str, partitions: int | None = None, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic and wait until it can be written to.

    Args:
        kafka: The cluster.
        name: The new topic.
        partitions: How many; None for the broker's default.
        config: The topic's settings, by Kafka's names (retention.ms and so on).

    Raises:
        TopicError: The topic exists already, or the broker refuses its name or settings.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    broker = admin_client(kafka)
    wanted = NewTopic(name, num_partitions=partitions or -1, config=dict(config or {}))
    try:
        broker.create_topics([wanted], request_timeout=TIMEOUT)[name].result()
    except KafkaException as error:
        code = kafka_error(error).code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicError(f"The topic '{name}' exists already. See: respool topic list.") from None
        if code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise broker_error(kafka, error) from error
        raise TopicError(
            f"The topic '{name}' cannot be created: {kafka_error(error).str()}. Correct its name or settings."
        ) from error
    _wait_for(kafka, name, exists=True)


def topic_names(kafka: KafkaCluster) -> list[str]:
    """Return the names of all topics except Kafka's internal topics."""
    return sorted(name for name in _partitions(kafka) if not name.startswith("__"))


def topic_exists(kafka: KafkaCluster, name: str) -> bool:
    """Return whether a topic of this name exists."""
    return name in _partitions(kafka)


def ensure_topic(
    kafka: KafkaCluster, name: str, partitions: int | None = None, config: Mapping[str, str] | None = None
) -> bool:
    """Create a topic when it is missing; return whether it was created."""
    if topic_exists(kafka, name):
        return False
    create(kafka, name, partitions, config)
    return True


def max_message_bytes(kafka: KafkaCluster, name: str) -> int | None:
    """Return the size of the largest record that a topic accepts; None when the cluster does not show it."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin._config import ConfigResource

    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    client = admin_client(kafka)
    (answer,) = client.describe_configs([resource], request_timeout=TIMEOUT).values()
    try:
        return int(answer.result()["max.message.bytes"].value)
    except KafkaException as error:
        if kafka_error(error).code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        ):
            return None
        raise broker_error(kafka, error) from error


def require_topic(kafka: KafkaCluster, name: str) -> list[int]:
    """Return the partitions of a topic that must exist, and raise TopicError when it does not."""
    partitions = _partitions(kafka)
    if name not in partitions:
        known = sorted(topic for topic in partitions if not topic.startswith("__"))
        raise TopicError(
            f"There is no topic '{name}' at {kafka.bootstrap_servers}.{did_you_mean(name, known)} "
            f"Create it with: respool topic create {name}"
        )
    return partitions[name]


def delete(kafka: KafkaCluster, name: str) -> None:
    """Delete a topic and its records permanently, and wait until it is gone."""
    require_topic(kafka, name)
    broker = admin_client(kafka)
    with translate_errors(kafka):
        broker.delete_topics([name], request_timeout=TIMEOUT)[name].result()
    _wait_for(kafka, name, exists=False)


def start_offsets(kafka: KafkaCluster, topic: str) -> dict[int, int]:
    """Return the offset of the first record that each partition still holds."""
    return offsets_of(kafka, {topic: require_topic(kafka, topic)}, end=False)[topic]


def end_offsets(kafka: KafkaCluster, topic: str) -> dict[int, int]:
    """Return the offset that the next record of each partition will have."""
    return offsets_of(kafka, {topic: require_topic(kafka, topic)}, end=True)[topic]


def _partitions(kafka: KafkaCluster) -> dict[str, list[int]]:
    """Return the partitions of every topic."""
    with translate_errors(kafka):
        topics = admin_client(kafka).list_topics(timeout=TIMEOUT).topics
    return {name: sorted(topic.partitions) for name, topic in topics.items()}


def offsets_of(kafka: KafkaCluster, partitions: Mapping[str, list[int]], *, end: bool) -> dict[str, dict[int, int]]:
    """Return the first or the end offset of each partition."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

    offsets: dict[str, dict[int, int]] = {name: {} for name in partitions}
    wanted = OffsetSpec.latest() if end else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(name, partition): wanted for name, numbers in partitions.items() for partition in numbers}
    if not asked:
        return offsets
    broker = admin_client(kafka)
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            for at, answer in broker.list_offsets(asked, request_timeout=TIMEOUT).items():
                offsets[at.topic][at.partition] = answer.result().offset
            return offsets
        except KafkaException as error:
            if (
                not kafka_error(error).retriable() or time.monotonic() > deadline
            ):  # a partition may be changing its leader
                raise broker_error(kafka, error) from error
            time.sleep(0.2)


def _wait_for(kafka: KafkaCluster, name: str, *, exists: bool) -> None:
    """Wait until the broker reports that a topic is ready, or gone."""
    broker = admin_client(kafka)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        with translate_errors(kafka):
            topic = broker.list_topics(timeout=TIMEOUT).topics.get(name)
        if not exists and topic is None:
            return
        partitions = topic.partitions.values() if topic else ()
        if exists and partitions and all(partition.leader >= 0 for partition in partitions):
            return
        time.sleep(0.02)
    problem = "has no leader yet" if exists else "still exists"
    raise TopicError(f"The topic '{name}' {problem} after {TIMEOUT:.0f} seconds. See: respool broker status.")


def connect(settings: Settings) -> KafkaCluster:
    """Return the Kafka of these settings, once a broker answers there."""
    kafka = cluster(settings)
    if not is_reachable(kafka):
        embedded = not (settings.bootstrap_servers or settings.kafka.get("bootstrap.servers"))
        step = (
            "See: respool broker status, respool broker logs."
            if embedded
            else "Check the address, and the [kafka] table of respool.toml."
        )
        raise BrokerError(f"No Kafka broker answers at {kafka.bootstrap_servers}. {step}")
    return kafka


def cluster(settings: Settings) -> KafkaCluster:
    """Return the Kafka of these settings without contacting it; the embedded broker must run."""
    from respool.local import broker

    servers = settings.bootstrap_servers or settings.kafka.get("bootstrap.servers")
    options = {name: value for name, value in settings.kafka.items() if name != "bootstrap.servers"}
    if servers:
        return KafkaCluster(servers, options)
    check_embedded(options)
    address = broker.address(settings.home)
    if address is None:
        raise BrokerError(
            f"No broker runs for the home {settings.home}. Start one with: respool broker start, "
            "or name another Kafka with --bootstrap-servers."
        )
    return KafkaCluster(address, options)


def connect_if_named(settings: Settings) -> KafkaCluster | None:
    """Return the Kafka of these settings; None when they name none and no embedded broker runs."""
    try:
        return connect(settings)
    except BrokerError:
        if settings.bootstrap_servers is not None:
            raise
        return None
