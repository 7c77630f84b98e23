"""Small streaming queries that together write every kind of checkpoint that Spark 4.0 to 4.2 has.

What a batch reads depends on its number alone, so that two runs can be compared batch by batch. Nothing here imports
respool, except the functions that use Kafka, and only when they are called: the golden checkpoints are recorded with
older Sparks, too, in environments without respool.
"""

from support.queries.inputs import EVENT, ROWS_PER_FILE, Source, events, fill_topic, kafka_input, write_files
from support.queries.kinds import KINDS, Kind
from support.queries.runs import Results, await_maintenance, end_maintenance, run, state, states

__all__ = [
    "EVENT",
    "KINDS",
    "ROWS_PER_FILE",
    "Kind",
    "Results",
    "Source",
    "await_maintenance",
    "end_maintenance",
    "events",
    "fill_topic",
    "kafka_input",
    "run",
    "state",
    "states",
    "write_files",
]
