"""Schemas that are read without a JVM are those that Spark reads."""

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from respool.spark.sql import DdlError, parse_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = (
    *("STRING", "int", "bigint", "long", "double", "float", "real", "boolean", "binary", "date", "TIMESTAMP", "void"),
    *("timestamp_ntz", "tinyint", "short", "variant", "decimal", "dec(5)", "numeric(10,2)", "varchar(10)", "char(3)"),
    *("nothing", "TIMESTAM", "string(3)", "decimal(50)"),
)
_plain = st.sampled_from(PLAIN)
_names = st.sampled_from(["a", "B", "`a b`", "`x``y`", "a_1", "1a", "select", "1", "a-b", "é", "not", "struct"])
_types = st.recursive(
    _plain,
    lambda inner: st.one_of(
        inner.map("ARRAY<{}>".format),
        st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        st.lists(
            st.tuples(_names, st.sampled_from([": ", " ", ":"]), inner, st.sampled_from(["", " NOT NULL"])), max_size=3
        ).map(lambda fields: f"struct<{', '.join(''.join(field) for field in fields)}>"),
    ),
    max_leaves=4,
)
_fields = st.tuples(
    _names, st.sampled_from([" ", ": "]), _types, st.sampled_from(["", " not null", " COMMENT 'x'", " x"])
)
_schemas = st.lists(_fields, max_size=3).map(lambda fields: ", ".join("".join(field) for field in fields))


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=_schemas)
def test_schemas_are_read_as_spark_reads_them(spark: "SparkSession", text: str) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        expected = StructType.fromDDL(text)
        for field in expected.fields if isinstance(expected, StructType) else ():
            field.metadata = {}
    except PySparkException:
        expected = None
    try:
        schema = parse_ddl(text)
    except DdlError:
        schema = None
    assert schema == (expected if isinstance(expected, StructType) else None)
