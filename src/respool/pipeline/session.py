"""The Spark session that a pipeline runs in, and the files that its tasks import: its author's and those of respool.

Spark pickles a function by the name of its module, which a task then imports as a whole. So these are the files of
the module and of everything that it imports from the same author, also inside of functions. The author's code is
bounded as in `code_digest`: a package, and what is beside it in a folder of its own. Installed packages are not
followed.
"""

import ast
import functools
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from respool.pipeline.code_digest import author_folder, module_of
from respool.pipeline.definition import Pipeline
from respool.sinks.console import FunctionSink
from respool.spark.cluster import has_native_code, is_cluster, ship
from respool.spark.session import session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline_session(spark: "SparkSession", pipeline: Pipeline) -> "SparkSession":
    """Return a new session of the same application for a pipeline; on a cluster, its code is shipped to executors."""
    if is_cluster(spark):
        ship(spark, code_files(pipeline))
    return session_for(spark, pipeline.timezone, pipeline.spark)


_OWN = Path(__file__).parents[1]
_MAIN = "__main__"  # functions of the script itself are pickled by value


def code_files(pipeline: Pipeline) -> list[Path]:
    """Return the packages, as folders, and the modules, as files, that tasks of a pipeline may import.

    Packages with compiled modules are left out: they have to be installed on the executors.
    """
    places: dict[str, Path | None] = {}
    for value in _callables(pipeline):
        top = module_of(value).partition(".")[0]
        if top and top not in sys.stdlib_module_names and top != _OWN.name:
            _collect(top, author_folder(top), places)
    roots = {place for place in places.values() if place is not None and not has_native_code(place)}
    return [_OWN, *sorted(roots)]


def _callables(pipeline: Pipeline) -> Iterator[object]:
    sink = pipeline.sink
    waiting: list[object] = [pipeline.transform, sink.function if isinstance(sink, FunctionSink) else sink]
    while waiting:
        value = waiting.pop()
        if isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        else:
            yield value


def _collect(top: str, folder: Path | None, places: dict[str, Path | None]) -> None:
    """Add a top-level module, and those of the same folder that it imports."""
    if top in places:
        return
    place = _place(top, folder)
    places[top] = None if top == _MAIN else place
    if folder is None or place is None:
        return
    for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
        for name in _imports(file):
            if name not in places and _beside(name, folder) is not None:
                _collect(name, folder, places)


def _place(top: str, folder: Path | None) -> Path | None:
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None)
    if file is None:  # a namespace package, or not imported yet
        return _beside(top, folder) if folder is not None else None
    path = Path(file).absolute()
    return path.parent if hasattr(module, "__path__") else path


def _beside(top: str, folder: Path) -> Path | None:
    """Return the package or module of a name in a folder; None when there is none."""
    if (folder / f"{top}.py").is_file():
        return folder / f"{top}.py"
    package = folder / top
    return package if package.is_dir() and package != _OWN and any(package.glob("*.py")) else None


def _imports(file: Path) -> set[str]:
    """Return the top-level modules that a file imports by absolute names."""
    names: set[str] = set()
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names
