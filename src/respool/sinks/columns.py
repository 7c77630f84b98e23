"""Names of columns as arguments of a sink: a single name may be given as text."""

from collections.abc import Sequence
from typing import Any, overload

from respool.errors import PipelineError


class ColumnNames:
    """A field of names of columns, in a frozen dataclass: `"shop"` is accepted for `("shop",)`.

    Raises PipelineError, which names the field, for anything but distinct names.

    Args:
        required: Whether the field must be given, and not be empty.
    """

    def __init__(self, *, required: bool = False) -> None:
        """Keep whether the field is required."""
        self._required = required

    def __set_name__(self, owner: type, name: str) -> None:
        """Keep the name of the field."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> tuple[str, ...]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> tuple[str, ...]: ...
    def __get__(self, instance: object | None, owner: type) -> tuple[str, ...]:
        """Return the names; of the class, the default."""
        if instance is not None:
            names: tuple[str, ...] = instance.__dict__[self._name]
            return names
        if self._required:
            raise AttributeError(self._name)  # a dataclass then has no default
        return ()

    def __set__(self, instance: object, value: str | Sequence[str]) -> None:
        """Keep the names, as a tuple."""
        where = f"{type(instance).__name__}.{self._name}"
        instance.__dict__[self._name] = _names(where, value, self._required)


def check_distinct(sink: object, *fields: str) -> None:
    """Raise PipelineError when two fields of a sink name the same column.

    Args:
        sink: The sink.
        fields: The names of the fields; each holds a name, several names, or None.
    """
    owners: dict[str, str] = {}
    for field in fields:
        value = getattr(sink, field)
        for name in (value,) if isinstance(value, str) else tuple(value or ()):
            if name in owners:
                where = type(sink).__name__
                raise PipelineError(
                    f"{where}.{owners[name]} and {where}.{field} both name the column '{name}'. Leave it out of one "
                    "of them."
                )
            owners[name] = field


def _names(where: str, value: Any, required: bool) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    is_names = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    if not is_names:
        raise PipelineError(f"{where} is {value!r}; expected names of columns, such as ('window', 'shop').")
    if required and not names:
        raise PipelineError(f"{where} is empty. Name the columns that identify a result.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PipelineError(f"{where} has the column '{twice}' twice. Leave one of them out.")
    return tuple(names)
