"""How Kafka is reached, and its clients."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from respool.errors import BrokerError, BrokerUnreachable, SettingsError
from respool.settings import read_small_text

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient


# Names that only one of the clients has. A name that ends with a dot stands for all names with that prefix.
_JAVA_ONLY = (
    "sasl.jaas.config",
    "sasl.login.",
    "sasl.client.callback.",
    "sasl.oauthbearer.clock.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "security.providers",
    "ssl.truststore.",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.trustmanager.",
    "ssl.keymanager.",
    "ssl.engine.factory.",
    "ssl.secure.random.",
    "ssl.enabled.protocols",
    "ssl.protocol",
    "ssl.provider",
    "buffer.memory",
    "default.api.timeout.ms",
    "fetch.max.wait.ms",
    "max.block.ms",
    "max.poll.records",
    "max.request.size",
    "receive.buffer.bytes",
    "send.buffer.bytes",
)
_CLIENT_ONLY = (
    "sasl.username",
    "sasl.password",
    "sasl.mechanisms",
    "sasl.oauthbearer.client.",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "ssl.ca.",
    "ssl.certificate.",
    "ssl.key.location",
    "ssl.key.pem",
    "enable.ssl.certificate.verification",
)
_PASSWORD_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# As Java's client reads it: a protocol may precede it, an IPv6 address is in brackets.
_SERVER = re.compile(r"(?:[\w.-]+://)?(?:[\w.%-]+|\[[0-9A-Fa-f:.%\w-]+\]):(?P<port>\d{1,5})")
_CHECK_HOST = "ssl.endpoint.identification.algorithm"


@dataclass(frozen=True)
class KafkaCluster:
    """A Kafka cluster and how to reach it.

    Attributes:
        bootstrap_servers: host:port, several joined with commas.
        options: Client options, by librdkafka's names or by Java's; never shown, as they may hold secrets.
    """

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse addresses that no client could use."""
        for server in self.bootstrap_servers.split(","):
            address = _SERVER.fullmatch(server.strip())
            if address is None or not 0 < int(address["port"]) < 65536:
                raise SettingsError(
                    f"The Kafka address '{self.bootstrap_servers}' is not HOST:PORT; expected for example "
                    f"{_example(server.strip())}, several joined with commas. Correct bootstrap_servers."
                )

    def for_client(self) -> dict[str, str | int | float | bool]:
        """Return the options of a confluent-kafka client."""
        translated = _client_sasl(self.options) | _client_ssl(self.options)
        return {**_without(self.options, _JAVA_ONLY), **translated, "bootstrap.servers": self.bootstrap_servers}

    def for_spark(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source and sink."""
        translated = _java_sasl(self.options) | _java_ssl(self.options)
        java = {**_without(self.options, _CLIENT_ONLY), **translated, "bootstrap.servers": self.bootstrap_servers}
        return {f"kafka.{name}": value for name, value in java.items()}


class NoKafkaCluster(KafkaCluster):
    """In place of a cluster, for a run of pipelines that neither read from Kafka nor write to it."""

    def __init__(self) -> None:
        """Name an address that nothing connects to."""
        super().__init__("none:1")

    def for_client(self) -> dict[str, str | int | float | bool]:
        """Raise BrokerError."""
        raise BrokerError(
            "This run has no Kafka cluster: none of its inputs is a KafkaSource, and no sink says that it writes to "
            "Kafka. Write with a KafkaSink, or give the sink an identity of the kind 'kafka'."
        )

    def for_spark(self) -> dict[str, str]:
        """Raise BrokerError."""
        self.for_client()
        return {}


NO_KAFKA = NoKafkaCluster()


def check_embedded(options: Mapping[str, str]) -> None:
    """Raise SettingsError for client options that the embedded broker cannot serve: it has no encryption and no logins.

    Args:
        options: The options of the `[kafka]` table.
    """
    secure = [name for name in options if name.startswith(("sasl.", "ssl."))]
    if options.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        secure.insert(0, "security.protocol")
    if secure:
        raise SettingsError(
            f"[kafka] of respool.toml has {secure[0]}, but the embedded broker has neither encryption nor logins. Name "
            "the Kafka that it is for with bootstrap_servers or --bootstrap-servers, or remove it."
        )


def _example(server: str) -> str:
    return f"{server}:9092" if re.fullmatch(r"[\w.-]+", server) else "localhost:9092"


def _without(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    prefixes = tuple(name for name in names if name.endswith("."))
    return {name: value for name, value in options.items() if name not in names and not name.startswith(prefixes)}


def _mechanism(options: Mapping[str, str]) -> str | None:
    return options.get("sasl.mechanism") or options.get("sasl.mechanisms")


def _java_sasl(options: Mapping[str, str]) -> dict[str, str]:
    mechanism = _mechanism(options)
    java = {"sasl.mechanism": mechanism} if mechanism else {}
    if "sasl.username" not in options or "sasl.jaas.config" in options:
        return java
    module = _PASSWORD_LOGINS.get(mechanism or "")
    if module is None:
        raise SettingsError(
            f"[kafka] has sasl.username with {f'sasl.mechanism {mechanism}' if mechanism else 'no sasl.mechanism'}; "
            f"expected {' or '.join(_PASSWORD_LOGINS)}. For another mechanism give sasl.jaas.config for Spark as well."
        )
    user, password = (
        options.get(name, "").replace("\\", "\\\\").replace('"', '\\"') for name in ("sasl.username", "sasl.password")
    )
    return java | {"sasl.jaas.config": f'{module} required username="{user}" password="{password}";'}


def _client_sasl(options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's options for a login that is written in Java's syntax."""
    if _mechanism(options) not in _PASSWORD_LOGINS or "sasl.username" in options:
        return {}
    written = re.findall(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', options.get("sasl.jaas.config", ""))
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, value in written}


def _java_ssl(options: Mapping[str, str]) -> dict[str, str]:
    if options.get("enable.ssl.certificate.verification") == "false":
        raise SettingsError(
            "[kafka] switches certificate verification off, which Spark's client cannot do. "
            "Name the certificate authority in ssl.ca.location instead."
        )
    java: dict[str, str] = {}
    if not any(name.startswith("ssl.truststore.") for name in options):
        if "ssl.ca.location" in options:
            java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": options["ssl.ca.location"]}
        elif "ssl.ca.pem" in options:
            java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": options["ssl.ca.pem"]}
    has_certificate = "ssl.certificate.location" in options or "ssl.certificate.pem" in options
    if has_certificate and not any(name.startswith("ssl.keystore.") for name in options):
        java["ssl.keystore.type"] = "PEM"
        java["ssl.keystore.certificate.chain"] = _pem(options, "ssl.certificate")
        java["ssl.keystore.key"] = _pem(options, "ssl.key")
    if options.get(_CHECK_HOST) == "none":
        java[_CHECK_HOST] = ""
    return java


def _client_ssl(options: Mapping[str, str]) -> dict[str, str]:
    client: dict[str, str] = {}
    store = options.get("ssl.truststore.location")
    if store is not None and not any(name.startswith("ssl.ca.") for name in options):
        if options.get("ssl.truststore.type") != "PEM":
            raise SettingsError(
                "[kafka] has ssl.truststore.location, a store that only Java can read. Name the certificate authority "
                "in ssl.ca.location as well, as a PEM file."
            )
        client["ssl.ca.location"] = store
    if options.get(_CHECK_HOST) == "":
        client[_CHECK_HOST] = "none"
    return client


def _pem(options: Mapping[str, str], what: str) -> str:
    if f"{what}.pem" in options:
        return options[f"{what}.pem"]
    name = f"{what}.location"
    if name not in options:
        raise SettingsError(f"[kafka] has a client certificate but no {name}. Add it.")
    try:
        return read_small_text(Path(options[name]))
    except OSError as error:
        raise SettingsError(
            f"[kafka] {name} names {options[name]}, which cannot be read: {error.strerror}. Correct it."
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"[kafka] {name} names {options[name]}, which is not a PEM file. Correct it.") from error


_Client = TypeVar("_Client")


def admin_client(kafka: KafkaCluster) -> "AdminClient":
    """Return an admin client; keep a reference until its futures have resolved."""
    from confluent_kafka.admin import AdminClient

    return make_client(AdminClient, kafka, {})


def make_client(kind: Callable[[dict[str, Any]], _Client], kafka: KafkaCluster, options: Mapping[str, Any]) -> _Client:
    """Return a client that does not log to standard error; failures raise exceptions all the same."""
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
def translate_errors(kafka: KafkaCluster) -> Iterator[None]:
    """Raise BrokerError for a failed request to the broker."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise broker_error(kafka, error) from error


def broker_error(kafka: KafkaCluster, error: Exception) -> BrokerError:
    """Return the BrokerError for a KafkaException: `BrokerUnreachable` when no broker answered."""
    from confluent_kafka import KafkaError

    silent = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
    kind = BrokerUnreachable if kafka_error(error).code() in silent else BrokerError
    return kind(
        f"The broker at {kafka.bootstrap_servers} rejected the request: {kafka_error(error).str()}. "
        "Check that it runs and that you may use it, and try again."
    )
