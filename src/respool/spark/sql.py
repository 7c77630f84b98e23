"""Spark's SQL and DDL, without a JVM: quoted names, literals, schemas."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from respool.locations import for_spark
from respool.spark import plain_types
from respool.text import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def quote(name: str) -> str:
    """Quote a column name for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Quote a text as an SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def identifier(table: str) -> str:
    """Return the SQL identifier of the Delta table at a path or URL."""
    return f"delta.`{for_spark(table).replace('`', '``')}`"


def table_properties(values: Mapping[str, str]) -> str:
    """Return table properties as SQL writes them in parentheses."""
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in values.items())


_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<word>[A-Za-z0-9_]+)
    |(?P<symbol>[<>,:()])""",
    re.VERBOSE | re.DOTALL,
)
_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "character": "char",
    "timestamp_ltz": "timestamp",
}
_INTERVALS = ("year", "month", "day", "hour", "minute", "second")


class DdlError(ValueError):
    """A schema cannot be read; the message names the unexpected text and its position."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_ddl(text: str, types: Any = None) -> "StructType":
    """Return the schema that a text of DDL declares; types that have no fields of interest here are `void`.

    Args:
        text: The text.
        types: The module that has the types: pyspark.sql.types, or `plain_types` without pyspark.

    Raises:
        DdlError: Spark could not read it either.
    """
    if types is None:
        from pyspark.sql import types
    return _Parser(text, types).schema()


def canonical_ddl(text: str) -> str:
    """Return DDL in canonical form: one space between tokens, no comments, types in lower case, without synonyms.

    Raises:
        DdlError: Spark could not read it.
    """
    parser = _Parser(text, plain_types)
    parser.schema()
    return " ".join(parser.canonical())


class _Parser:
    def __init__(self, text: str, types: Any) -> None:
        self._types = types
        self._tokens = _tokens(text)
        self._next = 0
        self._names: dict[int, str] = {}  # the fields' names, by the place of their token

    def canonical(self) -> Iterator[str]:
        """Yield the tokens of a schema that was parsed, in canonical form."""
        for place, token in enumerate(self._tokens):
            name = self._names.get(place)
            if name is not None:
                yield f"`{name.replace('`', '``')}`"
            elif token.kind == "word":
                yield _SYNONYMS.get(token.text.lower(), token.text.lower())
            elif token.kind != "end" and not (token.text == ":" and place - 1 in self._names):
                yield token.text

    def schema(self) -> "StructType":
        schema: StructType
        if self._word(0) == "struct" and self._peek(1).text == "<":
            schema = self._type()
        else:
            schema = self._types.StructType([] if self._peek().kind == "end" else self._fields())
        self._expect("end", "a comma or the end")
        return schema

    def _fields(self) -> list[Any]:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        return fields

    def _field(self) -> Any:
        StructField = self._types.StructField
        token = self._peek()
        if token.kind not in ("word", "quoted") or token.text.isdecimal():
            raise self._unexpected("a field's name")
        place = self._next
        self._next += 1
        self._take(":")
        kind = self._type()
        nullable = not self._words("not", "null")
        if self._words("comment"):
            self._expect("text", "a comment in quotes")
        name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
        self._names[place] = name
        return StructField(name, kind, nullable)

    def _type(self) -> Any:
        types = self._types
        name = self._word(0)
        if self._peek().kind != "word":
            raise self._unexpected("a type")
        self._next += 1
        if name == "struct":
            self._symbol("<")
            fields = [] if self._peek().text == ">" else self._fields()
            self._symbol(">")
            return types.StructType(fields)
        if name == "array":
            (element,) = self._inner(1)
            return types.ArrayType(element)
        if name == "map":
            key, value = self._inner(2)
            return types.MapType(key, value)
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name in ("char", "character", "varchar"):
            length = self._numbers(1)
            if not length:
                raise self._unexpected(f"the length of {name.upper()}, as {name.upper()}(10)")
            return types.VarcharType(length[0]) if name == "varchar" else types.CharType(length[0])
        if name in ("timestamp", "time"):
            return self._time(name)
        if name == "interval":
            if any(self._words(unit) for unit in _INTERVALS) and self._words("to"):
                self._next += 1
            return types.NullType()
        if name in ("geometry", "geography"):
            self._symbol("(")
            self._next += 1
            self._symbol(")")
            return types.NullType()
        if name not in _plain_types(types):
            self._next -= 1
            near = did_you_mean(name, [*_plain_types(types), "timestamp", "decimal", "array", "map", "struct"])
            raise DdlError(f"'{self._peek().text}' at character {self._peek().at + 1} is not a type of Spark.{near}")
        if name == "string" and self._words("collate"):
            self._next += 1
        return _plain_types(types)[name]()

    def _inner(self, count: int) -> list[Any]:
        self._symbol("<")
        kinds = [self._type()]
        while len(kinds) < count:
            self._symbol(",")
            kinds.append(self._type())
        self._symbol(">")
        return kinds

    def _decimal(self) -> Any:
        DecimalType = self._types.DecimalType
        numbers = self._numbers(2)
        precision = numbers[0] if numbers else 10
        scale = numbers[1] if len(numbers) > 1 else 0
        if not 0 < precision <= 38 or scale > precision:
            raise DdlError(f"DECIMAL({precision},{scale}) is not possible: Spark has 38 digits at most.")
        return DecimalType(precision, scale)

    def _time(self, name: str) -> Any:
        NullType = self._types.NullType
        TimestampNTZType = self._types.TimestampNTZType
        TimestampType = self._types.TimestampType
        if name == "time":
            self._numbers(1)
            self._words("without", "time", "zone")
            return NullType()
        if self._words("without", "time", "zone"):
            return TimestampNTZType()
        self._words("with", "local", "time", "zone")
        return TimestampType()

    def _numbers(self, most: int) -> list[int]:
        """Read numbers in parentheses, if there are any."""
        numbers: list[int] = []
        if not self._take("("):
            return numbers
        while True:
            token = self._peek()
            if not token.text.isdecimal():
                raise self._unexpected("a number")
            self._next += 1
            numbers.append(int(token.text))
            if len(numbers) == most or not self._take(","):
                break
        self._symbol(")")
        return numbers

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _word(self, ahead: int) -> str:
        token = self._peek(ahead)
        return token.text.lower() if token.kind == "word" else ""

    def _words(self, *words: str) -> bool:
        """Read these words if they are next."""
        if any(self._word(ahead) != word for ahead, word in enumerate(words)):
            return False
        self._next += len(words)
        return True

    def _take(self, symbol: str) -> bool:
        if self._peek().kind == "symbol" and self._peek().text == symbol:
            self._next += 1
            return True
        return False

    def _symbol(self, symbol: str) -> None:
        if not self._take(symbol):
            raise self._unexpected(f"'{symbol}'")

    def _expect(self, kind: str, what: str) -> None:
        if self._peek().kind != kind:
            raise self._unexpected(what)
        self._next += 1

    def _unexpected(self, expected: str) -> DdlError:
        token = self._peek()
        seen = "it ends" if token.kind == "end" else f"it has '{token.text}'"
        return DdlError(f"{seen} at character {token.at + 1}, where {expected} is expected.")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise DdlError(
                f"it has '{text[at]}' at character {at + 1}. A name with other characters than letters, digits and "
                "underscores is written in backquotes."
            )
        if match.lastgroup != "space":
            tokens.append(_Token(match.lastgroup or "", match[0], at))
        at = match.end()
    return [*tokens, _Token("end", "", len(text))]


def _plain_types(types: Any) -> "Mapping[str, Callable[[], DataType]]":
    return {
        "boolean": types.BooleanType,
        "tinyint": types.ByteType,
        "byte": types.ByteType,
        "smallint": types.ShortType,
        "short": types.ShortType,
        "int": types.IntegerType,
        "integer": types.IntegerType,
        "bigint": types.LongType,
        "long": types.LongType,
        "float": types.FloatType,
        "real": types.FloatType,
        "double": types.DoubleType,
        "date": types.DateType,
        "timestamp_ntz": types.TimestampNTZType,
        "timestamp_ltz": types.TimestampType,
        "string": types.StringType,
        "binary": types.BinaryType,
        "variant": types.VariantType,
        "void": types.NullType,
    }
