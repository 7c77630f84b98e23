"""Tables of open sessions in the state of a query, stored as a log of changes: an update writes only what it changed.

The visits of a query are spread over buckets; a bucket is a key of the state. Its variable `sessions` maps
(number, whole) to Arrow bytes: for every update the change it made, and from time to time the whole table after an
update. The number 0 is the head, JSON with the length of the log. A bucket is loaded from the newest whole table and
the changes since.

Python workers live from batch to batch, and cache the tables of their buckets. Every update has a random token, which
is in the head: a cached table is current if its token is the newest. After a rewind, a failed task, or an update in
another worker the token differs. The table is then updated with the changes that it lacks, or loaded.
"""

import json
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from respool.sessions.table import SessionChange, SessionColumns, SessionResults, SessionTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle
    from pyspark.sql.types import StructType


CONTENT = "sessions_arrow"  # the column by which such a state is recognized
_VARIABLE = "sessions"
_KEY = "number INT, whole BOOLEAN"
_VALUE = f"{CONTENT} BINARY"
_HEAD = (0, False)
_SESSION = pa.struct([("start_us", pa.int64()), ("end_us", pa.int64()), ("visited_pages", pa.int64())])
_ENDED = b"respool-ended-us"
_MOST_CHANGES = 64  # after a whole table: a load reads them one by one
_KEPT_CHANGES = 8  # before a whole table: for workers that are a few updates behind
_MOST_TABLES = 512
_MOST_SESSIONS = 4_000_000


@dataclass(frozen=True)
class BucketHead:
    """The head of a bucket's log: which updates the log has.

    Attributes:
        buckets: The number of buckets that the visits are spread over.
        updates: The number of updates so far, which is also the number of the newest update.
        whole: The update after which the whole table was stored; 0 for the empty table.
        oldest: The first update whose change is stored.
        rows_since: The number of rows changed since the whole table.
        watermark_ms: The watermark of the newest batch.
        tokens: The tokens of the newest updates, the newest last.
    """

    buckets: int
    updates: int = 0
    whole: int = 0
    oldest: int = 1
    rows_since: int = 0
    watermark_ms: int = 0
    tokens: tuple[int, ...] = ()


class KeptTables:
    """A worker's cache of tables by the token of their last update; the least recently used are dropped first."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._tables: OrderedDict[int, SessionTable] = OrderedDict()
        self._sessions = 0

    def take(self, token: int) -> SessionTable | None:
        """Remove a table from the cache and return it: it is about to change."""
        table = self._tables.pop(token, None)
        if table is not None:
            self._sessions -= len(table)
        return table

    def keep(self, token: int, table: SessionTable) -> None:
        """Cache a table as it is after an update."""
        self._tables[token] = table
        self._sessions += len(table)
        while len(self._tables) > _MOST_TABLES or (self._sessions > _MOST_SESSIONS and len(self._tables) > 1):
            _, oldest = self._tables.popitem(last=False)
            self._sessions -= len(oldest)


_KEPT = KeptTables()  # of this process


class SessionLog:
    """The log of the bucket that a stateful processor is processing."""

    def __init__(self, handle: "StatefulProcessorHandle", buckets: int, kept: KeptTables = _KEPT) -> None:
        """Open the variables of the state.

        Args:
            handle: Spark's handle of a processor.
            buckets: The number of buckets that the visits are spread over.
            kept: The tables that this process caches.
        """
        self._chunks: MapState = handle.getMapState(_VARIABLE, _KEY, _VALUE)
        self._buckets = buckets
        self._kept = kept

    def head(self) -> BucketHead | None:
        """Return the head of the log; None when the bucket has no log yet.

        Raises:
            ValueError: The state has another number of buckets.
        """
        stored = self._chunks.getValue(_HEAD)
        if stored is None:
            return None
        values = json.loads(stored[0])
        head = BucketHead(**values | {"tokens": tuple(values["tokens"])})
        if head.buckets != self._buckets:
            raise ValueError(
                f"The state has {head.buckets} buckets, the pipeline {self._buckets}. "
                f"A checkpoint keeps its number: run with --set buckets={head.buckets}."
            )
        return head

    def load(self, head: BucketHead) -> SessionTable:
        """Return the table after the newest update."""
        for behind, token in enumerate(reversed(head.tokens)):
            table = self._kept.take(token)
            if table is not None:
                return self._catch_up(table, head.updates - behind + 1, head)
        table = SessionTable()
        if head.whole:
            table.apply(self._chunk(head.whole, whole=True))
        return self._catch_up(table, head.whole + 1, head)

    def append(
        self, head: BucketHead, table: SessionTable, change: SessionChange, results: SessionResults, watermark_ms: int
    ) -> None:
        """Write the change of an update, and cache the table.

        Args:
            head: The head of the log before the update.
            table: The table after it.
            change: The change.
            results: The results that the update published.
            watermark_ms: The watermark of the batch.
        """
        head = replace(head, watermark_ms=watermark_ms)
        token = head.tokens[-1] if head.tokens else 0
        if change.rows.visits or len(results.start):
            token = secrets.randbits(63)
            head = self._append(head, table, change, token)
        self._chunks.updateValue(_HEAD, (json.dumps(asdict(head)).encode(),))
        self._kept.keep(token, table)

    def _append(self, head: BucketHead, table: SessionTable, change: SessionChange, token: int) -> BucketHead:
        number = head.updates + 1
        rows = max(len(change.rows.start), 1)
        head = replace(head, updates=number, tokens=(*head.tokens, token), rows_since=head.rows_since + rows)
        is_whole = head.rows_since >= len(table) or number - head.whole > _MOST_CHANGES
        if is_whole and 2 * rows > len(table):
            # A worker that lacks this change can load the table at the same cost.
            self._write_whole(head, table)
            self._forget(head.oldest, number)
            return replace(head, whole=number, oldest=number + 1, rows_since=0, tokens=(token,))
        self._chunks.updateValue((number, False), (encode(change),))
        if not is_whole:
            return head
        self._write_whole(head, table)
        oldest = max(head.oldest, number + 1 - _KEPT_CHANGES)
        self._forget(head.oldest, oldest)
        tokens = head.tokens[-(number + 2 - oldest) :]
        return replace(head, whole=number, oldest=oldest, rows_since=0, tokens=tokens)

    def _write_whole(self, head: BucketHead, table: SessionTable) -> None:
        self._chunks.updateValue((head.updates, True), (encode(SessionChange(table.rows(), None)),))
        if head.whole:
            self._chunks.removeKey((head.whole, True))

    def _forget(self, first: int, end: int) -> None:
        for number in range(first, end):
            self._chunks.removeKey((number, False))

    def _catch_up(self, table: SessionTable, first: int, head: BucketHead) -> SessionTable:
        for number in range(first, head.updates + 1):
            table.apply(self._chunk(number, whole=False))
        return table

    def _chunk(self, number: int, whole: bool) -> SessionChange:
        stored = self._chunks.getValue((number, whole))
        if stored is None:
            raise ValueError(f"The state lacks update {number} of the log of its sessions.")
        return decode(stored[0])


def replay(chunks: Iterable[tuple[int, bool, bytes]]) -> SessionColumns:
    """Return the open sessions of a bucket from the entries of its log: number, whole, and the bytes."""
    contents = {(number, whole): content for number, whole, content in chunks}
    start = max((number for number, whole in contents if whole), default=0)
    table = SessionTable()
    for number, whole in sorted(contents):
        if number == start if whole else number > start:
            table.apply(decode(contents[number, whole]))
    return table.rows()


def encode(change: SessionChange) -> bytes:
    """Return a change as an Arrow stream: a row for each visit, with a list of its open sessions."""
    rows = change.rows
    sessions = pa.StructArray.from_arrays(
        [pa.array(column, pa.int64()) for column in (rows.start, rows.end, rows.pages)], fields=list(_SESSION)
    )
    offsets = np.zeros(len(rows.counts) + 1, dtype=np.int32)
    np.cumsum(rows.counts, out=offsets[1:])
    schema = pa.schema([("visit_id", pa.string()), ("sessions", pa.list_(_SESSION))])
    if change.ended is not None:
        schema = schema.with_metadata({_ENDED: str(change.ended).encode()})
    columns = [
        pa.array(rows.visits, pa.string()),
        pa.ListArray.from_arrays(pa.array(offsets), sessions, schema[1].type),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue())


def decode(content: bytes) -> SessionChange:
    """Return the change from its Arrow stream."""
    with pa.ipc.open_stream(content) as reader:
        batch = reader.read_next_batch()
        ended = (reader.schema.metadata or {}).get(_ENDED)
    sessions = batch.column("sessions")
    start, end, pages = (sessions.values.field(at).to_numpy() for at in range(3))
    counts = np.diff(sessions.offsets.to_numpy()).astype(np.int64)
    rows = SessionColumns(batch.column("visit_id").to_pylist(), counts, start, end, pages)
    return SessionChange(rows, None if ended is None else int(ended))


_SESSIONS = (
    "key STRUCT<visit_id: STRING>, value STRUCT<start_us: BIGINT, end_us: BIGINT, visited_pages: BIGINT>"  # of a list
)


def keeps_sessions(schema: "StructType") -> bool:
    """Return whether a state, as Spark's reader shows it, is a log of this module."""
    from pyspark.sql.types import StructType

    value = schema["user_map_value"].dataType if "user_map_value" in schema.names else None
    return isinstance(value, StructType) and value.names == [CONTENT]


def sessions_of(log: "DataFrame") -> "DataFrame":
    """Return the open sessions that result from a log."""
    from pyspark.sql import functions as F

    rows = log.select(
        F.col("key.bucket").alias("bucket"),
        "user_map_key.number",
        "user_map_key.whole",
        "user_map_value.sessions_arrow",
    )
    return rows.groupBy("bucket").applyInArrow(_replayed, _SESSIONS)


def _replayed(chunks: "pa.Table") -> "pa.Table":
    import numpy as np
    import pyarrow as pa

    rows = replay(zip(*(chunks.column(at).to_pylist() for at in (1, 2, 3)), strict=True))
    visits = pa.array(np.repeat(np.array(rows.visits, dtype=object), rows.counts), pa.string())
    numbers = [pa.array(column) for column in (rows.start, rows.end, rows.pages)]
    key = pa.StructArray.from_arrays([visits], ["visit_id"])
    return pa.table({"key": key, "value": pa.StructArray.from_arrays(numbers, ["start_us", "end_us", "visited_pages"])})
