"""Clients of a Kafka cluster, made in one place: silent on standard error, their failures told as respool's errors."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from respool.errors import BrokerError, BrokerUnreachable, SettingsError
from respool.kafka import Kafka

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

_Client = TypeVar("_Client")


def admin(kafka: Kafka) -> "AdminClient":
    """Return an admin client; keep it in a variable while an answer is awaited, as it takes its answers with it."""
    from confluent_kafka.admin import AdminClient

    return client(AdminClient, kafka, {})


def client(kind: Callable[[dict[str, Any]], _Client], kafka: Kafka, options: Mapping[str, Any]) -> _Client:
    """Return a client that keeps its chatter off standard error; a failure is told by an exception all the same."""
    from confluent_kafka import KafkaException

    try:
        return kind({"log_level": 0, **options, **kafka.for_client()})
    except KafkaException as error:
        raise SettingsError(
            f"The Kafka client does not accept its options: {kafka_error(error).str()}. "
            "Correct the [kafka] table of respool.toml."
        ) from error


def kafka_error(error: Exception) -> "KafkaError":
    """Return what a KafkaException carries: librdkafka's error with its code."""
    carried: KafkaError = error.args[0]
    return carried


@contextmanager
def asking(kafka: Kafka) -> Iterator[None]:
    """Turn a failed question to the broker into a BrokerError."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise unreachable(kafka, error) from error


def unreachable(kafka: Kafka, error: Exception) -> BrokerError:
    """Return the BrokerError for a KafkaException: `BrokerUnreachable` when no broker answered."""
    from confluent_kafka import KafkaError

    silent = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
    kind = BrokerUnreachable if kafka_error(error).code() in silent else BrokerError
    return kind(
        f"The broker at {kafka.bootstrap_servers} did not do what it was asked: {kafka_error(error).str()}. "
        "Check that it runs and that you may use it, and try again."
    )
