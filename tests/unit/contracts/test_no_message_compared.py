"""No sentence is compared or taken apart: not the text of an exception, nor the description of a sink or of results.

Sentences are for people and change with every release. What the program must know of an error is its class and its
fields; what it must know of a sink or of results is their `Identity`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import respool

SOURCES = Path(respool.__file__).parent
SENTENCES = frozenset({"describe", "replay_note"})  # methods that return a sentence
PARTS = frozenset({"message", "args"})  # of an exception
TAKEN_APART = frozenset(
    [
        *("removeprefix", "removesuffix", "partition", "rpartition", "split", "rsplit", "splitlines", "startswith"),
        *("endswith", "strip", "lstrip", "rstrip", "find", "rfind", "index", "count", "replace", "translate"),
    ]
)
MATCHES = frozenset({"search", "match", "fullmatch", "findall", "finditer", "split", "sub"})  # of a regular expression

# A library distinguishes some failures by their text alone. Each is recognized in one module.
OTHER_LIBRARIES = {
    "spark/failures.py": "Spark and Delta in the JVM: only the text names the cause of a failed query",
    "delta/log.py": "delta-rs draws a tree of causes; one line of it is shown",
    "kafka/cluster.py": "librdkafka: a KafkaException carries its KafkaError in `args`",
    "cli/app.py": "shows the first line of an exception that nothing foresaw",
}
# Modules that still take respool's own messages apart.


def sites(source: str) -> list[int]:
    """The lines of a module that compare a sentence or take it apart."""
    tree = ast.parse(source)
    scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))]
    return sorted({line for scope in scopes for line in _Scope(scope).sites()})


class _Scope:
    """A function, or the module itself: which names are exceptions in it, and which hold a sentence."""

    def __init__(self, scope: ast.AST) -> None:
        self._nodes = list(_own(scope))
        self._errors = {node.name for node in self._nodes if isinstance(node, ast.ExceptHandler) and node.name}
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            self._errors |= {argument.arg for argument in scope.args.args if _is_exception(argument)}
        self._sentences: set[str] = set()
        before = -1
        while len(self._sentences) > before:  # a sentence can go from name to name
            before = len(self._sentences)
            for node in self._nodes:
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if self._is_sentence(node.value):
                        self._sentences |= {target.id for target in targets if isinstance(target, ast.Name)}

    def sites(self) -> Iterator[int]:
        for node in self._nodes:
            if isinstance(node, ast.expr) and self._is_site(node):
                yield node.lineno

    def _is_site(self, node: ast.AST) -> bool:
        match node:
            case ast.Compare(left=left, comparators=others):
                return any(self._is_sentence(side) or self._holds_sentence(side) for side in (left, *others))
            case ast.Subscript(value=value):
                return self._is_sentence(value)
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=arguments):
                if attr in TAKEN_APART and self._is_sentence(value):
                    return True
                return attr in MATCHES and any(map(self._is_sentence, arguments))
            case ast.Attribute(value=ast.Name(id=name), attr="args"):
                return name in self._errors
        return False

    def _holds_sentence(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Tuple | ast.List | ast.Set) and any(map(self._is_sentence, node.elts))

    def _is_sentence(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._sentences
            case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
                return name in self._errors
            case ast.Call(func=ast.Attribute(attr=attr, value=value)):
                return attr in SENTENCES or (attr in TAKEN_APART and self._is_sentence(value))
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                return name in self._errors and attr in PARTS
            case ast.JoinedStr(values=values):
                return any(isinstance(part, ast.FormattedValue) and self._is_error(part.value) for part in values)
            case ast.Subscript(value=value):
                return self._is_sentence(value)
            case ast.IfExp(body=body, orelse=other):
                return self._is_sentence(body) or self._is_sentence(other)
        return False

    def _is_error(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in self._errors


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a scope, and not in a function inside it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own(node)


def _is_exception(argument: ast.arg) -> bool:
    names = [node.id for node in ast.walk(argument.annotation or argument) if isinstance(node, ast.Name)]
    return argument.arg == "error" or any(name.endswith(("Exception", "Error")) for name in names)


def test_no_message_is_compared_or_taken_apart() -> None:
    lines = {
        path.relative_to(SOURCES).as_posix(): sites(path.read_text(encoding="utf-8")) for path in SOURCES.rglob("*.py")
    }
    flagged = {path: numbers for path, numbers in lines.items() if numbers}
    assert set(flagged) == OTHER_LIBRARIES.keys(), flagged


@pytest.mark.parametrize(
    "code",
    [
        "if 'gone' in str(error): pass",
        "if str(error) == 'gone': pass",
        "if 'gone' not in f'{error}': pass",
        "x = str(error).removeprefix('a')",
        "x = str(error).rstrip('.')",
        "x = str(error)[:10]",
        "text = str(error)\n    if text.startswith('a'): pass",
        "text = str(error)\n    words = text\n    x = words.split()",
        "x = re.search('a', str(error))",
        "x = PATTERN.search(str(error))",
        "x = error.args[0]",
        "if error.message == 'a': pass",
        "if sink.describe() == other.describe(): pass",
        "if kept in (sink.describe(), ''): pass",
        "mine = sink.describe()\n    if kept != mine: pass",
    ],
)
def test_what_compares_a_message_is_seen(code: str) -> None:
    assert sites(f"try:\n    pass\nexcept Exception as error:\n    {code}\n")
    assert sites(f"def check(error: Exception) -> None:\n    {code}\n")


@pytest.mark.parametrize(
    "code",
    [
        "raise CheckpointError(f'{path}: {error}') from error",
        "print(str(error))",
        "if error.errno == 2: pass",
        "if isinstance(error, OSError): pass",
        "print(f'writes to {sink.describe()}')",
        "if recorded.is_same(sink.identity()): pass",
        "x = {'sink': sink.describe()}",
        "x = facts['sink']",
    ],
)
def test_what_only_shows_a_message_is_not(code: str) -> None:
    assert not sites(f"try:\n    pass\nexcept Exception as error:\n    {code}\n")
