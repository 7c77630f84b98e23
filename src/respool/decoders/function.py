"""Events that a user's own expression makes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from respool.code_digest import collect_code, digest
from respool.decoders.base import PARSED, Parsed, ValueDecoder, declared_schema, required_fields
from respool.errors import PipelineError
from respool.spark.sql import DdlError, canonical_ddl, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class FunctionDecoder(ValueDecoder):
    """Decodes records with a column expression, such as a format that respool has no decoder for.

    Attributes:
        function: Returns a struct made of the columns `topic`, `partition`, `offset`, `timestamp`, `key`, `value` and
            `headers` of records; null for a record that is to be rejected. It must not raise an exception for any
            record: use `try_cast` and the like, or a Python UDF that catches exceptions.
        schema: The fields of that struct, as Spark DDL; NOT NULL makes a field required.
        event_time: The field with the event time: a TIMESTAMP, a number with `time_unit`, or ISO-8601 text.
            KAFKA_TIMESTAMP stands for the timestamp of the record.
        reason: Returns the reason, a STRING made of the same columns, for which a record is rejected, or null.
        uses: The columns of records that the functions use; name `headers` to have them read from Kafka.

    >>> def reading(value):
    ...     return F.struct(F.substring(value, 1, 4).cast("string").alias("sensor"))
    >>> decoder = respool.FunctionDecoder(
    ...     lambda: reading(F.col("value")), "sensor STRING", event_time=respool.KAFKA_TIMESTAMP
    ... )
    >>> decoder.check()
    ['sensor', 'event_time']
    """

    function: "Callable[[], Column]" = field(repr=False)
    schema: str
    event_time: str
    reason: "Callable[[], Column] | None" = field(default=None, repr=False)
    uses: tuple[str, ...] = ("value",)

    KIND: ClassVar[str] = "function"

    def schema_of_events(self, types: Any) -> "StructType":
        """Return the declared fields."""
        if not callable(self.function) or not (self.reason is None or callable(self.reason)):
            raise PipelineError("The decoder's function and reason must be functions that return a column.")
        return declared_schema(self.schema, types)

    def columns(self) -> set[str]:
        """Return the columns of records that it needs."""
        return {*super().columns(), *self.uses}

    def _own_identity(self) -> Mapping[str, Any]:
        try:
            schema = canonical_ddl(self.schema)
        except DdlError:  # reported by `check`
            schema = self.schema
        functions = [self.function, *([self.reason] if self.reason is not None else [])]
        code = collect_code(*functions)
        parts = repr((sorted(code.code.items()), sorted(code.values.items())))
        return {"schema": schema, "code": digest(parts)}

    def _parse(self, records: "DataFrame") -> Parsed:
        from pyspark.sql import functions as F
        from pyspark.sql import types

        schema = self.schema_of_events(types)
        columns = {PARSED: self.function(), _REASON: F.lit(None).cast("string")}
        if self.reason is not None:
            columns[_REASON] = self.reason().cast("string")
        actual = records.select(columns[PARSED].alias(PARSED)).schema[PARSED].dataType
        if actual.simpleString() != schema.simpleString():
            raise PipelineError(
                f"The decoder's function returns {actual.simpleString()}; its schema declares {schema.simpleString()}. "
                "Correct one of them."
            )
        reasons = {f"{_REASON} IS NOT NULL": _REASON, f"{PARSED} IS NULL": literal("the function returned null")}
        return Parsed(records, columns, schema, reasons)

    def _required(self) -> Iterator[tuple[str, str]]:
        from pyspark.sql import types

        return required_fields(declared_schema(self.schema, types), PARSED)


_REASON = "_respool_why"
