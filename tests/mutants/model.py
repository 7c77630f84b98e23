"""The data that the parts of the mutation tester exchange."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One small change of one function.

    Attributes:
        file: The module, relative to the root of the repository.
        line: The line that differs.
        function: The function that differs, with its class.
        first: The first line of that function; of its decorators, if it has any.
        was: The line before.
        becomes: The line after.
        source: The whole module after.
        default: The default of a parameter differs.
    """

    file: str
    line: int
    function: str
    first: int
    was: str
    becomes: str
    source: str
    default: bool

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return what names it, whatever moves the line."""
        return self.file, self.function, self.was, self.becomes


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        mutant: The mutant.
        kind: `killed`, `timeout` or `survived`.
        by: The test that failed.
        tests: How many tests reach the line.
    """

    mutant: Mutant
    kind: str
    by: str
    tests: int
