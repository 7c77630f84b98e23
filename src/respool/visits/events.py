"""The events of the website, and the pipelines that archive them."""

from respool.archive.sink import archive_topic
from respool.decoders.json import JsonDecoder
from respool.pipeline.definition import Pipeline

VISITS_TOPIC = "visits"
VISIT = JsonDecoder(
    schema="event_id STRING, visit_id STRING NOT NULL, event_time TIMESTAMP NOT NULL, page STRING",
    event_time="event_time",
)
BROWSER_VISIT = JsonDecoder(
    schema="userId STRING, page STRING, eventTime TIMESTAMP NOT NULL, browser STRING NOT NULL",
    event_time="eventTime",
)
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def visits_archive(*, topic: str = VISITS_TOPIC, table: str | None = None, timezone: str = "UTC") -> Pipeline:
    """Return the pipeline `visits-archive`."""
    return archive_topic("visits-archive", topic, VISIT, table=table, timezone=timezone)


def browser_visits_archive(*, topic: str = VISITS_TOPIC, table: str | None = None, timezone: str = "UTC") -> Pipeline:
    """Return the pipeline `browser-visits-archive`."""
    table = table or browser_table(topic)
    return archive_topic("browser-visits-archive", topic, BROWSER_VISIT, table=table, timezone=timezone)


def browser_table(topic: str) -> str:
    """Return the archive of a topic of browser visits, whose event time is in another field."""
    return f"browser_{topic}_table"
