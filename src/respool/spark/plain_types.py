"""Stand-ins for the classes of pyspark.sql.types, with which a definition is checked without importing pyspark."""

from collections.abc import Iterator, Sequence


class DataType:
    """A type."""

    NAME = ""

    def simpleString(self) -> str:
        """Return its name in SQL."""
        return self.NAME or type(self).__name__.removesuffix("Type").lower()


class BooleanType(DataType):
    """BOOLEAN."""


class ByteType(DataType):
    """TINYINT."""

    NAME = "tinyint"


class ShortType(DataType):
    """SMALLINT."""

    NAME = "smallint"


class IntegerType(DataType):
    """INT."""

    NAME = "int"


class LongType(DataType):
    """BIGINT."""

    NAME = "bigint"


class FloatType(DataType):
    """FLOAT."""


class DoubleType(DataType):
    """DOUBLE."""


class DateType(DataType):
    """DATE."""


class TimestampType(DataType):
    """TIMESTAMP."""


class TimestampNTZType(DataType):
    """TIMESTAMP_NTZ."""

    NAME = "timestamp_ntz"


class StringType(DataType):
    """STRING."""


class BinaryType(DataType):
    """BINARY."""


class VariantType(DataType):
    """VARIANT."""


class NullType(DataType):
    """VOID."""

    NAME = "void"


class CharType(DataType):
    """CHAR."""

    def __init__(self, length: int) -> None:
        """Keep the length."""
        self.length = length


class VarcharType(CharType):
    """VARCHAR."""


class DecimalType(DataType):
    """DECIMAL."""

    def __init__(self, precision: int = 10, scale: int = 0) -> None:
        """Keep the number of digits, and of those after the point."""
        self.NAME = f"decimal({precision},{scale})"


class ArrayType(DataType):
    """ARRAY."""

    def __init__(self, element: DataType) -> None:
        """Keep the type of the elements."""
        self.NAME = f"array<{element.simpleString()}>"


class MapType(DataType):
    """MAP."""

    def __init__(self, key: DataType, value: DataType) -> None:
        """Keep the types of keys and values."""
        self.NAME = f"map<{key.simpleString()},{value.simpleString()}>"


class StructField:
    """A field of a struct."""

    def __init__(self, name: str, kind: DataType, nullable: bool = True) -> None:
        """Keep the name and the type."""
        self.name = name
        self.dataType = kind
        self.nullable = nullable


class StructType(DataType):
    """STRUCT."""

    def __init__(self, fields: Sequence[StructField]) -> None:
        """Keep the fields."""
        self.fields = fields
        self.names = [field.name for field in fields]
        self.NAME = f"struct<{','.join(f'{field.name}:{field.dataType.simpleString()}' for field in fields)}>"

    def __iter__(self) -> Iterator[StructField]:
        """Return the fields."""
        return iter(self.fields)

    def __getitem__(self, name: str) -> StructField:
        """Return the first field of a name."""
        return next(field for field in self.fields if field.name == name)
