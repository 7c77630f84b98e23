"""Flink SQL through PyFlink, two subtasks: state on the heap, checkpoints to disk every second."""

import argparse
import json
import os
import threading

from confluent_kafka import Consumer, TopicPartition
from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

_VISITS = """
CREATE TABLE visits (
  event_id STRING, visit_id STRING, event_time TIMESTAMP(3), page STRING,
  WATERMARK FOR event_time AS event_time - INTERVAL '{delay}' MINUTE
) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'properties.group.id' = '{output}', 'properties.max.partition.fetch.bytes' = '10485760',
  'properties.max.poll.records' = '10000', 'scan.startup.mode' = 'earliest-offset',
  'scan.bounded.mode' = 'latest-offset', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
)"""
_OUTPUT = """
  'connector' = 'kafka', 'topic' = '{output}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
  'properties.linger.ms' = '50', 'json.timestamp-format.standard' = 'ISO-8601'
"""
_COUNTS = (
    "CREATE TABLE results (`window` ROW<`start` TIMESTAMP(3), `end` TIMESTAMP(3)>, `count` BIGINT) WITH ("
    + _OUTPUT
    + ")",
    """
INSERT INTO results
SELECT ROW(window_start, window_end), COUNT(*)
FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(event_time), INTERVAL '10' MINUTES))
GROUP BY window_start, window_end""",
)
_SESSIONS = (
    "CREATE TABLE results (visit_id STRING, session_start TIMESTAMP(3), session_end TIMESTAMP(3), "
    "visited_pages BIGINT, is_finished BOOLEAN) WITH (" + _OUTPUT + ")",
    """
INSERT INTO results
SELECT visit_id, window_start, MAX(event_time), COUNT(*), TRUE
FROM TABLE(SESSION(TABLE visits PARTITION BY visit_id, DESCRIPTOR(event_time), INTERVAL '10' MINUTES))
GROUP BY visit_id, window_start, window_end""",
)


def watch(asked: argparse.Namespace, ended: threading.Event) -> None:
    """Tell how far it is, by the positions that it commits with every checkpoint."""
    consumer = Consumer({"bootstrap.servers": asked.servers, "group.id": asked.output, "enable.auto.commit": False})
    parts = [TopicPartition(asked.topic, number) for number in (0, 1)]
    told = 0
    while not ended.wait(0.1):
        done = sum(max(0, one.offset) for one in consumer.committed(parts, timeout=10))
        if told < done < asked.events:
            told = done
            print(json.dumps({"events": done}), flush=True)
    consumer.close()


def main() -> None:
    """Process all that is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["counts", "sessions"])
    for name in ("topic", "servers", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--events", type=int, required=True)
    asked = parser.parse_args()
    settings = Configuration()
    for name, value in {
        "pipeline.jars": f"file://{os.environ['FLINK_KAFKA_JAR']}",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{os.path.abspath('checkpoints')}",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "500 ms",
        "table.exec.mini-batch.size": "20000",
    }.items():
        settings.set_string(name, value)
    tables = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(settings).build())
    words = {"topic": asked.topic, "servers": asked.servers, "output": asked.output}
    made, insert = _COUNTS if asked.job == "counts" else _SESSIONS
    tables.execute_sql(_VISITS.format(delay=10 if asked.job == "counts" else 15, **words))
    tables.execute_sql(made.format(**words))
    ended = threading.Event()
    watching = threading.Thread(target=watch, args=(asked, ended))
    watching.start()
    try:
        tables.execute_sql(insert).wait()
    finally:
        ended.set()
        watching.join()
    print(json.dumps({"events": asked.events}), flush=True)


if __name__ == "__main__":
    main()
