"""How a Kafka cluster is reached: one set of options for both clients, librdkafka's and Java's.

A user writes the `[kafka]` table of respool.toml once, by the names of either client. What only one of them knows goes
only to that one; the usual credentials are translated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from respool.errors import SettingsError

_JAVA_ONLY = (
    "sasl.jaas.config",
    "sasl.login.",
    "sasl.client.callback.",
    "ssl.truststore.",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.trustmanager.",
    "ssl.keymanager.",
    "ssl.engine.factory.",
    "ssl.protocol",
    "ssl.provider",
)
_CLIENT_ONLY = (
    "sasl.username",
    "sasl.password",
    "sasl.mechanisms",
    "sasl.oauthbearer.",
    "ssl.ca.",
    "ssl.certificate.",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "enable.ssl.certificate.verification",
)


@dataclass(frozen=True)
class Kafka:
    """A Kafka cluster and how to reach it.

    Attributes:
        bootstrap_servers: host:port, several joined with commas.
        options: Client options, by librdkafka's names or by Java's; never shown, as they may hold secrets.
    """

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def for_client(self) -> dict[str, str | int | float | bool]:
        """Return the options of a confluent-kafka client."""
        options: dict[str, str | int | float | bool] = {
            name: value for name, value in self.options.items() if not name.startswith(_JAVA_ONLY)
        }
        return options | {"bootstrap.servers": self.bootstrap_servers}

    def for_spark(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source and sink."""
        java = {name: value for name, value in self.options.items() if not name.startswith(_CLIENT_ONLY)}
        java |= _java_sasl(self.options) | _java_ssl(self.options)
        java["bootstrap.servers"] = self.bootstrap_servers
        return {f"kafka.{name}": value for name, value in java.items()}


def _java_sasl(options: Mapping[str, str]) -> dict[str, str]:
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms")
    java = {"sasl.mechanism": mechanism} if mechanism else {}
    if "sasl.username" not in options or "sasl.jaas.config" in options:
        return java
    if mechanism == "PLAIN":
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    elif mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    else:
        raise SettingsError(
            f"[kafka] has sasl.username with sasl.mechanism {mechanism}; expected PLAIN, SCRAM-SHA-256 or "
            "SCRAM-SHA-512. For another mechanism give sasl.jaas.config for Spark as well."
        )
    user, password = (
        options.get(name, "").replace("\\", "\\\\").replace('"', '\\"') for name in ("sasl.username", "sasl.password")
    )
    return java | {"sasl.jaas.config": f'{module} required username="{user}" password="{password}";'}


def _java_ssl(options: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "ssl.ca.location" in options and "ssl.truststore.location" not in options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": options["ssl.ca.location"]}
    if "ssl.certificate.location" in options and "ssl.keystore.location" not in options:
        java["ssl.keystore.type"] = "PEM"
        java["ssl.keystore.certificate.chain"] = _pem(options, "ssl.certificate.location")
        java["ssl.keystore.key"] = _pem(options, "ssl.key.location")
        if "ssl.key.password" in options:
            java["ssl.key.password"] = options["ssl.key.password"]
    if options.get("enable.ssl.certificate.verification") == "false":
        raise SettingsError(
            "[kafka] switches certificate verification off, which Spark's client cannot do. "
            "Name the certificate authority in ssl.ca.location instead."
        )
    return java


def _pem(options: Mapping[str, str], name: str) -> str:
    try:
        return Path(options[name]).read_text(encoding="ascii")
    except KeyError:
        raise SettingsError(f"[kafka] has a client certificate but no {name}. Add it.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"[kafka] {name} names {options[name]}, which cannot be read: {error}.") from error
