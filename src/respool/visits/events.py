"""The events of the website-visits systems."""

from respool.decode import JsonDecoder

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
    "spark.sql.shuffle.partitions": "2",
}
