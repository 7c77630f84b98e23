"""Sessions of visits: an early result at every change, a final one when the watermark closes a session.

`respool.sessions.rules` defines a session. By the `gap` rule visits are spread over buckets, and a batch updates all
open sessions of a bucket together: `respool.sessions` has their table and its log in Spark's state, which
`respool state` shows as sessions. By the `timer` rule the state of a visit is one value, `session`.
"""

from respool.errors import PipelineError
from respool.pipeline.definition import Pipeline
from respool.pipeline.results import ArrivalDependent, Sessions
from respool.sessions.gap import by_gap
from respool.sessions.rules import by_timer
from respool.sinks.kafka import KafkaSink
from respool.text import did_you_mean
from respool.times import parse_duration
from respool.visits.counts import ROCKSDB, VISIT, VISITS_TOPIC

_KEYS = {"gap": ("visit_id", "session_start"), "timer": ("visit_id",)}
# transformWithState requires the RocksDB state store.
_SPARK = {**ROCKSDB, "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}


def sessions(
    *,
    topic: str = VISITS_TOPIC,
    output_topic: str = "visit_sessions",
    rule: str = "gap",
    gap: str = "10 minutes",
    watermark: str = "15 minutes",
    timezone: str = "UTC",
    buckets: int = 16,
) -> Pipeline:
    """Return the pipeline `sessions`.

    Args:
        topic: The topic of the visits.
        output_topic: The topic of the sessions.
        rule: `gap` or `timer`; see `respool.sessions.rules`.
        gap: The inactivity that ends a session.
        watermark: How late an event may arrive.
        timezone: The zone in which times without a zone are read, and results are rendered.
        buckets: The number of parts that the rule `gap` spreads the visits over: as many tasks can process a batch. It
            cannot change within a checkpoint.
    """
    if buckets < 1:
        raise PipelineError(f"buckets is {buckets}; expected 1 or more.")
    if rule not in _KEYS:
        raise PipelineError(
            f"Unknown session rule '{rule}'; expected gap or timer.{did_you_mean(rule, list(_KEYS))} "
            "Use gap unless the results must be those of a timer."
        )
    return Pipeline(
        name="sessions",
        summary="Publishes the sessions of every visit, early and final",
        topic=topic,
        decode=VISIT,
        transform=by_gap(parse_duration(gap), buckets) if rule == "gap" else by_timer(parse_duration(gap)),
        sink=KafkaSink(output_topic, key=_KEYS[rule], withdrawn="withdrawn" if rule == "gap" else None),
        watermark=watermark,
        output_mode="update",
        timezone=timezone,
        spark=_SPARK,
        fixed={"buckets": str(buckets)} if rule == "gap" else {},
        results=(
            Sessions(gap, key=("visit_id",))
            if rule == "gap"
            else ArrivalDependent(
                "by the timer rule, sessions depend on the batches in which events arrived; use the rule gap"
            )
        ),
    )
