"""Pack events by bucket before the shuffle: one row per bucket instead of one row per event."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa

from respool.sessions.table import Numbers

PACKED = "bucket INT, events BINARY"
_SCHEMA = pa.schema([("bucket", pa.int32()), ("events", pa.binary())])
_EVENTS = pa.schema([("visit_id", pa.string()), ("times", pa.list_(pa.int64()))])
_MOST_EVENTS = 1_000_000  # held by a task at a time


@dataclass(frozen=True)
class PackedEvents:
    """Events of a bucket.

    Attributes:
        visits: The visits, each once.
        owners: The visit of every event, as its index in `visits`.
        times: The times of the events, in microseconds since 1970, in any order.
    """

    visits: Sequence[str]
    owners: Numbers
    times: Numbers

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.times)

    def after(self, time: int) -> "PackedEvents":
        """Return the events later than a time, and their visits."""
        later = self.times > time
        if later.all():
            return self
        owners = self.owners[later]
        present = np.bincount(owners, minlength=len(self.visits)) > 0
        visits = [visit for visit, stays in zip(self.visits, present.tolist(), strict=True) if stays]
        return PackedEvents(visits, (np.cumsum(present) - 1)[owners], self.times[later])


def pack(batches: "Iterable[pa.RecordBatch]", buckets: int) -> "Iterator[pa.RecordBatch]":
    """Yield packed events: every bucket at least once, because each must take part in every batch.

    Args:
        batches: Events with `visit_id`, `at` and `bucket`, from 0 on.
        buckets: The number of buckets.
    """
    keys = bucket_keys(buckets)
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _MOST_EVENTS:
            yield _packed(pa.Table.from_batches(held), keys)
            held, rows = [], 0
    if rows:
        yield _packed(pa.Table.from_batches(held), keys)
    else:
        yield pa.record_batch([pa.array(keys, pa.int32()), pa.nulls(buckets, pa.binary())], schema=_SCHEMA)


def bucket_keys(buckets: int) -> list[int]:
    """Return keys of buckets that Spark spreads evenly over as many tasks, or half as many, or a third.

    Consecutive numbers would not be spread evenly: Spark partitions by their hash.
    """
    keys: dict[int, int] = {}
    for number in count():
        keys.setdefault(_murmur3(number) % buckets, number)
        if len(keys) == buckets:
            return [keys[rest] for rest in range(buckets)]
    raise AssertionError  # unreachable: count() has no end


def unpack(packed: Iterable[bytes]) -> PackedEvents:
    """Return the packed events of a bucket."""
    tables = [pa.ipc.open_stream(stream).read_all() for stream in packed]
    if not tables:
        empty: Numbers = np.zeros(0, dtype=np.int64)
        return PackedEvents([], empty, empty)
    table = pa.concat_tables(tables).combine_chunks()
    visits, lists = table.column("visit_id").chunk(0), table.column("times").chunk(0)
    owners = np.arange(len(visits))
    if len(tables) > 1:  # a visit appears at most once in each table
        encoded = visits.dictionary_encode()
        visits, owners = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
    owners = np.repeat(owners, np.diff(lists.offsets.to_numpy()))
    return PackedEvents(visits.to_pylist(), owners, lists.flatten().to_numpy())


def _packed(events: "pa.Table", keys: Sequence[int]) -> "pa.RecordBatch":
    encoded = events.column("visit_id").combine_chunks().dictionary_encode()
    visit = encoded.indices.to_numpy()
    bucket_of = np.zeros(len(encoded.dictionary), dtype=np.int32)
    bucket_of[visit] = events.column("bucket").to_numpy()
    # Group the visits of a bucket, and the events of a visit.
    order = np.argsort(bucket_of, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    visit = place[visit]
    offsets = np.zeros(len(order) + 1, dtype=np.int32)
    np.cumsum(np.bincount(visit, minlength=len(order)), out=offsets[1:])
    times = events.column("at").to_numpy()[np.argsort(visit, kind="stable")]
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(times, pa.int64()))
    rows = pa.record_batch([encoded.dictionary.take(pa.array(order)), lists], schema=_EVENTS)
    ends = np.cumsum(np.bincount(bucket_of, minlength=len(keys))).tolist()
    parts = [_bytes(rows.slice(first, end - first)) for first, end in zip([0, *ends[:-1]], ends, strict=True)]
    return pa.record_batch([pa.array(keys, pa.int32()), pa.array(parts, pa.binary())], schema=_SCHEMA)


def _bytes(rows: "pa.RecordBatch") -> bytes | None:
    if not rows.num_rows:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def _murmur3(number: int) -> int:
    """Return Spark's hash of an INT, by which it chooses the task of a key."""
    mask = 0xFFFFFFFF

    def turned(bits: int, by: int) -> int:
        return ((bits << by) | (bits >> (32 - by))) & mask

    key = turned((number * 0xCC9E2D51) & mask, 15) * 0x1B873593 & mask
    bits = (turned(42 ^ key, 13) * 5 + 0xE6546B64) & mask
    bits ^= 4  # bytes
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & mask
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & mask
    bits ^= bits >> 16
    return bits - (1 << 32) if bits >> 31 else bits
