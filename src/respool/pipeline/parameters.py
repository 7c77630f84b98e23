"""The parameters of a pipeline: keyword arguments of the function that makes it, read from text by annotation."""

import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from respool.errors import PipelineError, SettingsError
from respool.locations import expand_user
from respool.times import parse_duration

_KINDS = "str, int, float, bool, Decimal, Path, timedelta, an Enum, a Literal, or one of them with | None"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a pipeline, set with `--set NAME=VALUE` or in respool.toml.

    Attributes:
        pipeline: The pipeline's name.
        name: The parameter's name.
        default: Its value when it is not set.
        kind: Its type.
    """

    pipeline: str
    name: str
    default: object
    kind: object

    def __post_init__(self) -> None:
        """Refuse a type that no text can be turned into."""
        if not all(kind in _READERS or _choices(kind) for kind in _alternatives(self.kind)):
            raise PipelineError(
                f"The parameter {self.name} of {self.pipeline} is annotated with {self._kind_name()}, which cannot be "
                f"read from text. Annotate it with {_KINDS}."
            )

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    def read(self, value: object) -> object:
        """Return the value of this parameter from text, or from a value of a settings file."""
        kinds = _alternatives(self.kind)
        for kind in sorted(kinds, key=lambda kind: kind is str):  # any text is a str
            try:
                return _read(kind, value)
            except (ValueError, SettingsError):
                continue
        expected = " or ".join(_expected(kind) for kind in kinds)
        raise PipelineError(f"The parameter {self.name} of {self.pipeline} is {value!r}; expected {expected}.")

    def _kind_name(self) -> str:
        return self.kind.__name__ if isinstance(self.kind, type) else str(self.kind)


def parameters_of(make: Callable[..., object], pipeline: str) -> list[Parameter]:
    """Return the parameters of a function that makes a pipeline.

    Args:
        make: The function.
        pipeline: The pipeline's name, for messages.
    """
    try:
        arguments = inspect.signature(make, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise PipelineError(f"{pipeline} cannot be called to make a pipeline: {error}.") from error
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        Parameter(pipeline, argument.name, argument.default, _kind_of(argument))
        for argument in arguments
        if argument.kind in named
    ]


def _kind_of(argument: inspect.Parameter) -> object:
    """Return the annotation of an argument; without it, the type of the default."""
    if argument.annotation is not inspect.Parameter.empty:
        return argument.annotation
    kind = type(argument.default)
    return kind if kind in _READERS or issubclass(kind, Enum) else str


def _alternatives(kind: object) -> list[Any]:
    """Return the types that a value may have, without None."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [
            alternative
            for part in get_args(kind)
            for alternative in _alternatives(part)
            if alternative is not type(None)
        ]
    return [str if kind in (Any, object) else kind]


def _choices(kind: object) -> Mapping[str, object]:
    """Return the values of an Enum or a Literal by their texts; none for other types."""
    if get_origin(kind) is Literal:
        return {_text(choice): choice for choice in get_args(kind)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {choice.name: choice for choice in kind} | {_text(choice.value): choice for choice in kind}
    return {}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(kind: Any, value: object) -> object:
    if kind in _READERS:
        return _READERS[kind][1](value)
    choices = _choices(kind)
    if _text(value) not in choices:
        raise ValueError
    return choices[_text(value)]


def _expected(kind: Any) -> str:
    if kind in _READERS:
        return _READERS[kind][0]
    return "one of " + ", ".join(
        dict.fromkeys(_text(getattr(choice, "value", choice)) for choice in _choices(kind).values())
    )


def _read_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _read_float(value: object) -> float:
    number = float(str(value))
    if not math.isfinite(number):
        raise ValueError
    return number


def _read_bool(value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _read_decimal(value: object) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ValueError from None
    if not number.is_finite():
        raise ValueError
    return number


# What a type expects, in words, and how it is read; a ValueError or SettingsError means that it cannot be read.
_READERS: Mapping[object, tuple[str, Callable[[object], object]]] = {
    str: ("text", _read_text),
    int: ("a whole number", lambda value: int(str(value))),
    float: ("a number", _read_float),
    bool: ("true or false", _read_bool),
    Decimal: ("a number", _read_decimal),
    Path: ("a path", lambda value: expand_user(Path(_read_text(value)))),
    timedelta: ("a duration such as 20s or '15 minutes'", lambda value: parse_duration(_read_text(value))),
}
