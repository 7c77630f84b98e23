"""Values that a class of respool's jar reads in the JVM: see `WireFormat` in `spark/java`.

The value is the data, or with a schema registry the wire format of Confluent: a zero byte, the id of the schema that
wrote the data in four bytes, the data. The registry is asked for an id once. While it does not answer, a run waits.
"""

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from respool.decoders.base import PARSED, Parsed, ValueDecoder
from respool.decoders.registry import SchemaRegistry
from respool.errors import MachineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REJECTED = "_respool_rejected"


@dataclass(frozen=True, kw_only=True)
class WireDecoder(ValueDecoder):
    """A decoder with an optional schema registry.

    Attributes:
        registry: The registry that has the schemas of the producers; None for values that are data alone.
    """

    registry: SchemaRegistry | None = None

    READER: ClassVar[str]

    @abstractmethod
    def _config(self) -> Mapping[str, str]:
        """Return what the class in the JVM needs."""

    @abstractmethod
    def _serve(self, registry: SchemaRegistry) -> str:
        """Let the JVM ask the registry, and return the name under which it does."""

    def _parse(self, records: "DataFrame") -> Parsed:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F
        from pyspark.sql import types

        schema = self.schema_of_events(types)
        result = types.StructType([*schema, types.StructField(_REJECTED, types.StringType())])
        # Each result type has a separate name: sessions are shared by threads, and a name has one type.
        name = f"respool_read_{self.KIND}_{hashlib.sha256(result.json().encode()).hexdigest()[:16]}"
        try:
            records.sparkSession.udf.registerJavaFunction(name, self.READER, result)
        except PySparkException as error:
            from respool.spark.jvm_classes import JAR

            raise MachineError(
                f"Spark has no class {self.READER}, which decodes {self.KIND}. Start Spark with the jar of respool's "
                f"classes: spark-submit --jars {JAR}"
            ) from error
        registry = "" if self.registry is None else self._serve(self.registry)
        master = records.sparkSession.sparkContext.master or ""
        if registry and re.match(r"local(\[|$)", master) is None:
            raise MachineError(
                f"The decoder's schema registry is asked by the process of the driver, and Spark's master is {master}, "
                "whose executors are other processes. Use a master of local[…], or Avro with a writer_schema."
            )
        config = json.dumps({**self._config(), "registry": registry}).encode()
        value = F.call_function(name, F.col("value"), F.lit(config))
        rejected = f"{PARSED}.{_REJECTED}"
        return Parsed(records, {PARSED: value}, schema, {f"{rejected} IS NOT NULL": rejected})
