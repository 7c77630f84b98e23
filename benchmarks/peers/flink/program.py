"""Flink SQL through PyFlink, two subtasks: state on the heap, checkpoints to disk every second."""

import argparse
import os
import threading

from confluent_kafka import Consumer, TopicPartition
from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

from benchmarks.peers.command import parse_arguments, report

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


def watch(arguments: argparse.Namespace, ended: threading.Event) -> None:
    """Report progress from the offsets that it commits with every checkpoint."""
    consumer = Consumer(
        {"bootstrap.servers": arguments.servers, "group.id": arguments.output, "enable.auto.commit": False}
    )
    parts = [TopicPartition(arguments.topic, number) for number in (0, 1)]
    reported = 0
    while not ended.wait(0.1):
        done = sum(max(0, partition.offset) for partition in consumer.committed(parts, timeout=10))
        if reported < done < arguments.events:
            reported = done
            report(events=done)
    consumer.close()


def main() -> None:
    """Process all events of the topic."""
    arguments = parse_arguments()
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
    names = {"topic": arguments.topic, "servers": arguments.servers, "output": arguments.output}
    create, insert = _COUNTS if arguments.job == "counts" else _SESSIONS
    tables.execute_sql(_VISITS.format(delay=10 if arguments.job == "counts" else 15, **names))
    tables.execute_sql(create.format(**names))
    ended = threading.Event()
    watching = threading.Thread(target=watch, args=(arguments, ended))
    watching.start()
    try:
        tables.execute_sql(insert).wait()
    finally:
        ended.set()
        watching.join()
    report(events=arguments.events)


if __name__ == "__main__":
    main()
