"""The Kafka cluster that settings name: a cluster that exists, or the embedded broker of the home."""

from respool.errors import BrokerError
from respool.kafka.cluster import KafkaCluster, check_embedded
from respool.settings import Settings


def connect(settings: Settings) -> KafkaCluster:
    """Return the cluster that the settings name, after a broker has answered there.

    Raises:
        BrokerError: No broker answers, or the embedded broker does not run.
    """
    from respool.kafka import topics

    kafka = cluster(settings)
    if not topics.is_reachable(kafka):
        step = (
            "Check the address, and the [kafka] table of respool.toml."
            if _servers(settings)
            else "See: respool broker status, respool broker logs."
        )
        raise BrokerError(f"No Kafka broker answers at {kafka.bootstrap_servers}. {step}")
    return kafka


def cluster(settings: Settings) -> KafkaCluster:
    """Return the cluster that the settings name, without asking it anything; the embedded broker must run.

    Raises:
        BrokerError: The embedded broker does not run.
    """
    from respool.local import broker

    servers = _servers(settings)
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


def _servers(settings: Settings) -> str | None:
    return settings.bootstrap_servers or settings.kafka.get("bootstrap.servers")
