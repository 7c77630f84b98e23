"""Schemas are read without a JVM; tests/spark compares with what Spark reads."""

import pytest

from respool.spark.sql import DdlError, parse_ddl, table_properties


def test_a_schema_is_read() -> None:
    from pyspark.sql.types import ArrayType, DecimalType, IntegerType, MapType, StringType, StructField, StructType

    text = "`a.b``c` STRING NOT NULL COMMENT 'it is', -- a comment\n m: map<string, array<dec(5,2)>>, "
    text += "s STRUCT<x: INT NOT NULL>"
    assert parse_ddl(text) == StructType(
        [
            StructField("a.b`c", StringType(), nullable=False),
            StructField("m", MapType(StringType(), ArrayType(DecimalType(5, 2)))),
            StructField("s", StructType([StructField("x", IntegerType(), nullable=False)])),
        ]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "it ends at character 2, where a type is expected"),
        ("a INT,", "it ends at character 7, where a field's name is expected"),
        ("a INT b INT", "it has 'b' at character 7, where a comma or the end is expected"),
        ("a ARRAY<INT", "where '>' is expected"),
        ("a ARRAY<INT NOT NULL>", "it has 'NOT' at character 13"),
        ("a DECIMAL(50,2)", "DECIMAL(50,2) is not possible"),
        ("a TIMESTAM", "'TIMESTAM' at character 3 is not a type of Spark. Did you mean 'timestamp'?"),
        ("a-b INT", "it has '-' at character 2. A name with other characters"),
        ("a VARCHAR", "the length of VARCHAR"),
        ("a DECIMAL(x)", "where a number is expected"),
        ("1 INT", "it has '1' at character 1, where a field's name"),
        ("int", "it ends at character 4"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, message: str) -> None:
    with pytest.raises(DdlError) as caught:
        parse_ddl(text)
    assert message in str(caught.value)


def test_table_properties_are_string_literals() -> None:
    properties = {"delta.checkpointInterval": "100", "respool.schema": "`it's` STRING"}
    assert table_properties(properties) == r"'delta.checkpointInterval' = '100', 'respool.schema' = '`it\'s` STRING'"
