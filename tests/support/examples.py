"""The examples in docstrings, as tests."""

import doctest
from collections.abc import Mapping
from typing import Any

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples_of(*objects: Any) -> list[doctest.DocTest]:
    """Return the examples of classes, of their methods, and of functions."""
    finder = doctest.DocTestFinder(recurse=True)
    return [test for item in objects for test in finder.find(item, item.__name__, globs={}) if test.examples]


def run_example(example: doctest.DocTest, names: Mapping[str, Any]) -> None:
    """Run an example with these names; fail with what it printed."""
    example.globs = dict(names)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=_FLAGS).run(example, out=output.append)
    assert result.attempted
    assert not result.failed, "".join(output)
