"""Events packed for their buckets: one row for a bucket in place of one for each event, before they are shuffled."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from respool.session_state.table import Numbers

PACKED = "bucket INT, events BINARY"
_SCHEMA = pa.schema([("bucket", pa.int32()), ("events", pa.binary())])
_EVENTS = pa.schema([("visit_id", pa.string()), ("times", pa.list_(pa.int64()))])
_MOST_EVENTS = 1_000_000  # that a task holds at once


@dataclass(frozen=True)
class Events:
    """Events of a bucket.

    Attributes:
        visits: The visits, each once.
        owners: The visit of every event, as its place among the visits.
        times: The times of the events, in microseconds since 1970, in any order.
    """

    visits: Sequence[str]
    owners: Numbers
    times: Numbers

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.times)

    def after(self, time: int) -> "Events":
        """Return the events later than a time, and their visits."""
        later = self.times > time
        if later.all():
            return self
        owners = self.owners[later]
        there = np.bincount(owners, minlength=len(self.visits)) > 0
        visits = [visit for visit, stays in zip(self.visits, there.tolist(), strict=True) if stays]
        return Events(visits, (np.cumsum(there) - 1)[owners], self.times[later])


def pack(batches: "Iterable[pa.RecordBatch]", buckets: int) -> "Iterator[pa.RecordBatch]":
    """Yield packed events: every bucket at least once, as each is to see every batch.

    Args:
        batches: Events with `visit_id`, `at` and `bucket`.
        buckets: How many buckets there are.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= _MOST_EVENTS:
            yield _packed(pa.Table.from_batches(held), buckets)
            held, count = [], 0
    if count:
        yield _packed(pa.Table.from_batches(held), buckets)
    else:
        yield pa.record_batch([np.arange(buckets, dtype=np.int32), pa.nulls(buckets, pa.binary())], schema=_SCHEMA)


def unpack(packed: Iterable[bytes]) -> Events:
    """Return the packed events of a bucket."""
    tables = [pa.ipc.open_stream(one).read_all() for one in packed]
    if not tables:
        none: Numbers = np.zeros(0, dtype=np.int64)
        return Events([], none, none)
    table = pa.concat_tables(tables).combine_chunks()
    visits, lists = table.column("visit_id").chunk(0), table.column("times").chunk(0)
    owners = np.arange(len(visits))
    if len(tables) > 1:  # each has a visit once
        encoded = visits.dictionary_encode()
        visits, owners = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
    owners = np.repeat(owners, np.diff(lists.offsets.to_numpy()))
    return Events(visits.to_pylist(), owners, lists.flatten().to_numpy())


def _packed(events: "pa.Table", buckets: int) -> "pa.RecordBatch":
    encoded = events.column("visit_id").combine_chunks().dictionary_encode()
    visit = encoded.indices.to_numpy()
    bucket_of = np.zeros(len(encoded.dictionary), dtype=np.int32)
    bucket_of[visit] = events.column("bucket").to_numpy()
    # The visits of a bucket come in a row, the events of a visit too.
    order = np.argsort(bucket_of, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    visit = place[visit]
    offsets = np.zeros(len(order) + 1, dtype=np.int32)
    np.cumsum(np.bincount(visit, minlength=len(order)), out=offsets[1:])
    times = events.column("at").to_numpy()[np.argsort(visit, kind="stable")]
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(times, pa.int64()))
    rows = pa.record_batch([encoded.dictionary.take(pa.array(order)), lists], schema=_EVENTS)
    ends = np.cumsum(np.bincount(bucket_of, minlength=buckets)).tolist()
    parts = [_bytes(rows.slice(first, end - first)) for first, end in zip([0, *ends[:-1]], ends, strict=True)]
    return pa.record_batch([np.arange(buckets, dtype=np.int32), pa.array(parts, pa.binary())], schema=_SCHEMA)


def _bytes(rows: "pa.RecordBatch") -> bytes | None:
    if not rows.num_rows:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())
