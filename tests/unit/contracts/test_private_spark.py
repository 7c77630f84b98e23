"""Private parts of Spark and py4j are used in `respool.spark.internals` only: a new Spark is tried there."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import respool

SOURCES = Path(respool.__file__).parent
INTERNALS = Path("spark/internals.py")
# Underscored names of pyspark that could also be names of respool's own.
OF_SPARK = frozenset({"_gateway", "_jvm", "_sc", "_java", "_wrapped", "_jconf"})
DOCUMENTED = frozenset({"_exit"})  # os._exit
PRIVATE_MODULES = ("py4j", "pyspark.java_gateway", "pyspark.find_spark_home")


def modules() -> list[Path]:
    return sorted(path.relative_to(SOURCES) for path in SOURCES.rglob("*.py"))


def own_names(source: str) -> Iterator[str]:
    """The names that a module defines: functions, classes, variables, fields."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
            yield node.attr


def private_uses(source: str, own: frozenset[str]) -> list[tuple[int, str]]:
    """The lines of a module that import py4j or use an underscored name of another package, with that name."""
    uses = []
    for node in ast.walk(ast.parse(source)):
        for name in _imported(node):
            if name.startswith(PRIVATE_MODULES) or (name.startswith("pyspark.") and "._" in name):
                uses.append((node.lineno, name))  # type: ignore[attr-defined]
        for name, value in _attributes(node):
            if _is_private(name) and (name in OF_SPARK or (name not in own and not _is_own(value))):
                uses.append((node.lineno, name))  # type: ignore[attr-defined]
    return sorted(uses)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _attributes(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """The attribute that a node reads or sets: with a dot, or by its name as a string."""
    if isinstance(node, ast.Attribute):
        return [(node.attr, node.value)]
    match node:
        case ast.Call(
            func=ast.Name("getattr" | "setattr" | "hasattr" | "delattr"), args=[value, ast.Constant(str(name)), *_]
        ):
            return [(name, value)]
        case ast.Call(func=ast.Attribute(attr="attrgetter" | "methodcaller"), args=[ast.Constant(str(name)), *_]):
            return [(part, node) for part in name.split(".")]
    return []


def _is_private(name: str) -> bool:
    # Names such as KafkaError._PARTITION_EOF are documented by confluent-kafka.
    return name.startswith("_") and not (name.startswith("__") or name.isupper() or name in DOCUMENTED)


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def test_no_other_module_uses_a_private_part_of_spark() -> None:
    sources = {path: (SOURCES / path).read_text(encoding="utf-8") for path in modules()}
    # An underscored name belongs to the module that defines it: elsewhere the same name is another package's.
    uses = {path: private_uses(source, frozenset(own_names(source))) for path, source in sources.items()}
    assert uses.pop(INTERNALS)
    assert {path: lines for path, lines in uses.items() if lines} == {}


def test_every_private_part_names_its_versions_of_spark_and_what_fails_without_it() -> None:
    tree = ast.parse((SOURCES / INTERNALS).read_text(encoding="utf-8"))
    public = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(public) > 10
    for node in public:
        text = " ".join((ast.get_docstring(node) or "").split())
        assert "Tested with Spark 4." in text, node.name
        assert "ithout it" in text.partition("Tested with Spark 4.")[2], node.name


@pytest.mark.parametrize(
    "line",
    [
        "from py4j.protocol import Py4JError",
        "import py4j",
        "from pyspark.java_gateway import launch_gateway",
        "from pyspark.find_spark_home import _find_spark_home",
        "spark._jvm",
        "self._spark._jvm.java",
        "frame._jdf.schema()",
        "SparkContext._gateway = None",
        "getattr(context, '_jvm', None)",
        "session._jsparkSession",
        "operator.attrgetter('_jdf')(frame)",
        "SparkSession.builder._options.clear()",
    ],
)
def test_such_a_line_would_be_noticed(line: str) -> None:
    assert private_uses(line, frozenset(own_names(line)))


@pytest.mark.parametrize("line", ["self._spark", "other._lock", "KafkaError._PARTITION_EOF", "frame.sparkSession"])
def test_others_are_allowed(line: str) -> None:
    assert not private_uses(line, frozenset({"_lock"}))
