"""One name for one thing: no class name is used twice in the package, and names say what they hold."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "respool"
EMPTY = {"one", "found", "told"}
TYPE_NAME = re.compile(r"_?[A-Z][a-z0-9]+\w*")


def type_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of classes, also of nested ones, and of type aliases of a module."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body:
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from (name for name in names if TYPE_NAME.fullmatch(name))


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every name that a module defines or uses, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name
            case ast.alias(name=name, asname=None) | ast.alias(asname=str(name)):
                yield node.lineno, name


def test_no_class_name_has_two_meanings() -> None:
    modules = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for name in type_names(ast.parse(file.read_text("utf-8"))):
            modules[name].append(str(file.relative_to(PACKAGE)))
    assert len(modules) > 300
    assert {name: files for name, files in modules.items() if len(files) > 1} == {}


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "chaos", "examples", "jobs"])
def test_every_name_says_what_it_holds(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    assert [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file in files
        for line, name in names(ast.parse(file.read_text("utf-8")))
        if name in EMPTY
    ] == []


@pytest.mark.parametrize(
    "code",
    [
        "for one in rows: pass",
        "def told(): pass",
        "def f(found=1): pass",
        "f(found=1)",
        "class A:\n    found: int",
        "import a as one",
        "with a() as told: pass",
        "try: pass\nexcept E as found: pass",
        "match a:\n    case one: pass",
        "[one for one in rows]",
    ],
)
def test_such_a_name_would_be_noticed(code: str) -> None:
    assert EMPTY & {name for _, name in names(ast.parse(code))}


@pytest.mark.parametrize(
    "code", ["class Reach: pass", "def f():\n    class Reach: pass", "Reach = int | str", "Reach = dict[str, int]"]
)
def test_the_name_of_a_type_would_be_noticed(code: str) -> None:
    assert list(type_names(ast.parse(code))) == ["Reach"]
