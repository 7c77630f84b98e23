"""The open sessions in a state that keeps them as a log, a row for each, as Spark's reader shows a list of them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_SESSIONS = (
    "key STRUCT<visit_id: STRING>, value STRUCT<start_us: BIGINT, end_us: BIGINT, visited_pages: BIGINT>"  # of a list
)


def keeps_sessions(schema: "StructType") -> bool:
    """Return whether what Spark's reader shows is the log of `session_state.log`."""
    from pyspark.sql.types import StructType

    from respool.session_state.log import CONTENT

    value = schema["user_map_value"].dataType if "user_map_value" in schema.names else None
    return isinstance(value, StructType) and value.names == [CONTENT]


def sessions_of(log: "DataFrame") -> "DataFrame":
    """Return the open sessions that a log comes to."""
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

    from respool.session_state.log import replay

    rows = replay(zip(*(chunks.column(at).to_pylist() for at in (1, 2, 3)), strict=True))
    visits = pa.array(np.repeat(np.array(rows.visits, dtype=object), rows.counts), pa.string())
    numbers = [pa.array(one) for one in (rows.start, rows.end, rows.pages)]
    key = pa.StructArray.from_arrays([visits], ["visit_id"])
    return pa.table({"key": key, "value": pa.StructArray.from_arrays(numbers, ["start_us", "end_us", "visited_pages"])})
