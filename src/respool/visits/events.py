"""The event of the website-visits systems."""

from respool.decode import JsonDecoder

VISITS_TOPIC = "visits"
VISIT = JsonDecoder(
    schema="event_id STRING, visit_id STRING NOT NULL, event_time TIMESTAMP NOT NULL, page STRING",
    event_time="event_time",
)
