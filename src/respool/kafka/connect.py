"""From settings to the Kafka cluster that they name: an existing one, or the embedded broker of the home."""

from respool.errors import BrokerError
from respool.kafka.cluster import KafkaCluster, check_embedded
from respool.settings import Settings


def connect(settings: Settings) -> KafkaCluster:
    """Return the Kafka of these settings, once a broker answers there."""
    from respool.kafka import topics

    kafka = cluster(settings)
    if not topics.is_reachable(kafka):
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
