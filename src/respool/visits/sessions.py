"""Sessions of visits: an early result at every change, a final one when the watermark closes a session.

What a session is, is said in `session_rules`; here its rules meet Spark. By the `gap` rule visits are spread over
buckets, and a batch updates the open sessions of a bucket at once: `session_state` has the table and its log in Spark's
state, which `respool state` shows as sessions. By the `timer` rule the state of a visit is one value, `session`.
"""

from respool.errors import PipelineError
from respool.pipeline.definition import Pipeline
from respool.pipeline.results import ArrivalDependent, Sessions
from respool.sessions.gap import by_gap
from respool.sessions.timer import by_timer
from respool.sinks.kafka import KafkaSink
from respool.text import did_you_mean
from respool.times import parse_duration
from respool.visits.events import ROCKSDB, VISIT, VISITS_TOPIC

_KEYS = {"gap": ("visit_id", "session_start"), "timer": ("visit_id",)}
# transformWithState runs on no other state store.
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
        rule: `gap` or `timer`, as `session_rules` tells them apart.
        gap: The inactivity that ends a session.
        watermark: How late an event may come.
        timezone: The zone in which times without a zone are read, and results are rendered.
        buckets: How many parts the visits are spread over by the rule `gap`: as many tasks can work on a batch. A
            checkpoint keeps its number.
    """
    if buckets < 1:
        raise PipelineError(f"buckets is {buckets}; expected 1 or more.")
    if rule not in _KEYS:
        raise PipelineError(
            f"'{rule}' is no rule for sessions; expected gap or timer.{did_you_mean(rule, list(_KEYS))} "
            "Use gap unless the results must be those of a timer."
        )
    return Pipeline(
        name="sessions",
        summary="Tells the sessions of every visit, early and final",
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
                "by the timer rule, sessions depend on the batches in which events came; use the rule gap"
            )
        ),
    )
