"""An alert when a sensor has failed three times in a row: a state of one's own for each key.

Run: respool topic create readings; respool run stateful_processor:alerts
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from respool import JsonDecoder, KafkaSink, Pipeline

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

READING = JsonDecoder("sensor STRING NOT NULL, ok BOOLEAN NOT NULL, at TIMESTAMP", event_time="at")
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def alert(readings: "DataFrame") -> "DataFrame":
    """Return a row for every third failure of a sensor without a success in between."""
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Failures(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._failures = handle.getValueState("failures", "count INT")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> "Iterator[pd.DataFrame]":
            count = self._failures.get()[0] if self._failures.exists() else 0
            for reading in pd.concat(rows).sort_values("at").itertuples():
                count = 0 if reading.ok else count + 1
                if count == 3:
                    yield pd.DataFrame({"sensor": [key[0]], "at": [reading.at]})
            self._failures.update((count,))

        def close(self) -> None:
            """Nothing to close."""

    by_sensor = readings.groupBy("sensor")
    return by_sensor.transformWithStateInPandas(Failures(), "sensor STRING, at TIMESTAMP", "Append", "None")


alerts = Pipeline(
    name="alerts",
    topic="readings",
    decode=READING,
    transform=alert,
    sink=KafkaSink("alerts", key=("sensor",)),
    spark={"spark.sql.streaming.stateStore.providerClass": ROCKSDB},
)
