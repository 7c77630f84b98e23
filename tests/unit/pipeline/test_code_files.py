"""Which files are shipped to the executors of a cluster for a pipeline."""

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import respool
from respool.pipeline.definition import Pipeline
from respool.pipeline.session import code_files

OWN = Path(respool.__file__).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's working folder, from which modules can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def pipeline(transform: Any) -> Pipeline:
    return Pipeline("orders", "orders", transform, respool.ConsoleSink())


def shipped(transform: Any, folder: Path) -> list[str]:
    own, *others = code_files(pipeline(transform))
    assert own == OWN
    return [path.relative_to(folder).as_posix() for path in others]


def test_a_built_in_pipeline_needs_respool_alone() -> None:
    assert code_files(respool.find_pipeline("sessions")) == [OWN]


def test_a_module_brings_what_it_imports_from_its_folder_also_in_functions(folder: Path) -> None:
    write(
        folder,
        code_shop="import json\nimport code_prices\n\ndef orders(events):\n    from code_labels import label\n",
        code_prices="from code_rates import deep\n",
        code_labels="import numpy",
        code_rates__deep="",
        code_other="",
    )
    (folder / "code_rates" / "__init__.py").touch()
    assert shipped(importlib.import_module("code_shop").orders, folder) == [
        "code_labels.py",
        "code_prices.py",
        "code_rates",
        "code_shop.py",
    ]


def test_a_package_is_shipped_whole(folder: Path) -> None:
    write(folder, code_mall__pipelines="def orders(events): ...", code_mall__unused="")
    (folder / "code_mall" / "__init__.py").touch()
    assert shipped(importlib.import_module("code_mall.pipelines").orders, folder) == ["code_mall"]


def test_what_a_partial_function_holds_is_shipped(folder: Path) -> None:
    write(folder, code_rule="class Rule:\n    def __call__(self, row): ...\n")
    transform = partial(print, importlib.import_module("code_rule").Rule())
    assert shipped(transform, folder) == ["code_rule.py"]


def test_a_package_with_compiled_modules_is_left_to_the_hosts(folder: Path) -> None:
    write(folder, code_native__pipelines="def orders(events): ...")
    (folder / "code_native" / "__init__.py").touch()
    (folder / "code_native" / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    assert shipped(importlib.import_module("code_native.pipelines").orders, folder) == []
