"""Run the tests on each mutant, in a process forked from one that has collected them.

A mutant is the code of one function exchanged in the forked process: nothing is written to disk, and nothing is
imported again. The tests that execute the changed statement run, those that killed a mutant of the same function
first, then the quick ones, until one fails. The time of a mutant is limited; a mutant that never ends is killed.
"""

import ast
import gc
import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from mutants.model import Mutant, Outcome
from mutants.reach import Cache, Reach, traced
from mutants.scope import MODULES, ROOT

_SLACK = 10.0
_SLOWER = 5.0


class BaselineFailed(Exception):
    """A test fails without a mutant."""


class Runner:
    """A pytest plugin that collects the tests as usual and then runs them on each mutant instead of once.

    Attributes:
        outcomes: What became of the mutants.
        error: Why there are no outcomes.
    """

    def __init__(self, mutants: list[Mutant], jobs: int, budget: float, show: Callable[[Outcome], None]) -> None:
        """Keep what is to be run.

        Args:
            mutants: The mutants.
            jobs: How many at a time.
            budget: The seconds of tests for a mutant, as measured without one.
            show: Is called with each outcome.
        """
        self._mutants = mutants
        self._jobs = jobs
        self._budget = budget
        self._show = show
        self._failed = self._why = ""
        self.outcomes: list[Outcome] = []
        self.error = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first test that fails; only in a forked process."""
        if report.failed and not self._failed:
            self._failed = report.nodeid
            self._why = report.longreprtext

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run what was collected on each mutant."""
        if session.testsfailed:
            self.error = "The tests cannot be collected."
            return True
        try:
            self._run(session)
        except BaselineFailed as failed:
            self.error = f"These tests fail without a mutant:\n{failed}"
        return True

    def _run(self, session: pytest.Session) -> None:
        gc.collect()
        gc.freeze()
        reaches = self._baseline(session)
        items = {item.nodeid: item for item in session.items}
        statements = {file: _statements(ROOT / file) for file in {mutant.file for mutant in self._mutants}}
        killers: dict[tuple[str, str], list[str]] = defaultdict(list)
        waiting = list(reversed(self._mutants))
        running: dict[int, tuple[_Child, Mutant, int]] = {}
        while waiting or running:
            while waiting and len(running) < self._jobs:
                mutant = waiting.pop()
                first, last = statements[mutant.file].get(mutant.line, (mutant.line, mutant.line))
                lines = set(range(first, last + 1))
                reaching = [name for name, reach in reaches.items() if lines & reach.lines.get(mutant.file, set())]
                known = killers[mutant.file, mutant.function]
                reaching.sort(key=lambda name: (name not in known, reaches[name].seconds))
                chosen: list[str] = []
                seconds = 0.0
                for name in reaching:
                    seconds += reaches[name].seconds
                    if chosen and seconds > self._budget:
                        break
                    chosen.append(name)
                if not chosen:
                    self._add(Outcome(mutant, "survived", "", 0))
                    continue
                limit = _SLACK + _SLOWER * min(seconds, self._budget)
                child = _Child(self._on_mutant, session, [items[name] for name in chosen], mutant, limit=limit)
                running[child.output] = child, mutant, len(reaching)
            done, _, _ = select.select(list(running), [], [], 0.2)
            late = [output for output, (child, _, _) in running.items() if time.monotonic() > child.deadline]
            for output in {*done, *late}:
                child, mutant, count = running[output]
                if output in done and not child.read():
                    continue
                del running[output]
                child.end()
                by = child.result or ""
                kind = "timeout" if child.result is None else "killed" if by else "survived"
                if by and by in items:
                    known = killers[mutant.file, mutant.function]
                    known[:] = [by, *(name for name in known if name != by)][:5]
                self._add(Outcome(mutant, kind, by, count))

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._show(outcome)

    def _baseline(self, session: pytest.Session) -> dict[str, Reach]:
        """Return what each test reaches; only test files that changed since the last time are run."""
        cache = Cache({str(item.path) for item in session.items})
        new = [item for item in session.items if str(item.path) not in cache.reaches]
        if new:
            reaches, failed = self._measured(session, new)
            broken = {item.path for item in new if item.nodeid in failed}
            sound = [item for item in new if item.path not in broken]
            cache.reaches.update({str(item.path): {} for item in sound})
            for item in sound:
                cache.reaches[str(item.path)][item.nodeid] = reaches[item.nodeid]
            cache.save()
            if failed:
                raise BaselineFailed("\n".join(f"{name}\n{why}" for name, why in failed.items()))
        known = {name: reach for reaches in cache.reaches.values() for name, reach in reaches.items()}
        return {item.nodeid: known[item.nodeid] for item in session.items}

    def _measured(self, session: pytest.Session, items: list[pytest.Item]) -> tuple[dict[str, Reach], dict[str, str]]:
        child = _Child(self._measure, session, items, limit=3600)
        while time.monotonic() < child.deadline and not child.read():
            pass
        child.end()
        if child.result is None:
            raise BaselineFailed("they do not end")
        return child.result  # type: ignore[no-any-return]

    def _measure(self, session: pytest.Session, items: list[pytest.Item]) -> tuple[dict[str, Reach], dict[str, str]]:
        """Run tests once without a mutant, in a forked process; return what they reach, and why some fail."""
        files = {str(ROOT / module): module for module in MODULES}
        reaches, failed = {}, {}
        session.items = items
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._failed = ""
            with traced(files) as reach:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            reaches[item.nodeid] = reach
            if self._failed:
                failed[item.nodeid] = self._why
        return reaches, failed

    def _on_mutant(self, session: pytest.Session, items: list[pytest.Item], mutant: Mutant) -> str:
        """Run tests on a mutant, in a forked process; return the test that fails, or nothing."""
        _exchange(mutant)
        session.items = items
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                break
        return self._failed


class _Child:
    """A forked process that hands back one value, in a session of its own so that all it started ends with it."""

    def __init__(self, work: Callable[..., Any], session: pytest.Session, *rest: Any, limit: float) -> None:
        self.result: Any = None
        self.deadline = time.monotonic() + limit
        self._folder = Path(tempfile.mkdtemp(prefix="respool-mutant-"))
        self._folder.chmod(0o755)  # some tests become another user
        self._text = b""
        self.output, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self.output)
                os.setsid()
                _silence(session, self._folder)
                value = work(session, *rest)
                with os.fdopen(writing, "wb") as stream:
                    pickle.dump(value, stream)
            except BaseException as error:  # a mutant may raise anything
                with os.fdopen(writing, "wb") as stream:
                    pickle.dump(f"{type(error).__name__}: {error}", stream)
            finally:
                os._exit(0)
        os.close(writing)

    def read(self) -> bool:
        """Read the available bytes; return whether these were the last."""
        ready, _, _ = select.select([self.output], [], [], 0.2)
        if not ready:
            return False
        text = os.read(self.output, 1 << 20)
        self._text += text
        if text:
            return False
        # Nothing at all: the process was ended by a signal, by a mutant that ends its process.
        self.result = pickle.loads(self._text) if self._text else "ended"
        return True

    def end(self) -> None:
        """End the process and all that it started."""
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self.output)
        shutil.rmtree(self._folder, ignore_errors=True)


def _silence(session: pytest.Session, folder: Path) -> None:
    """Let a forked process print nothing, and keep its temporary files in a folder of its own."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115
    factory: Any = session.config
    factory._tmp_path_factory._basetemp = folder
    tempfile.tempdir = str(folder)


def _exchange(mutant: Mutant) -> None:
    """Exchange the code of a function, wherever it is referred to."""
    path = str(ROOT / mutant.file)
    name = mutant.function.rpartition(".")[2]
    wanted = (path, mutant.first, name)
    module = compile(mutant.source, path, "exec", dont_inherit=True)
    code = next(code for code in _codes(module) if _place(code) == wanted)
    gc.unfreeze()
    functions = [
        entry for entry in gc.get_objects() if isinstance(entry, FunctionType) and _place(entry.__code__) == wanted
    ]
    if not functions:
        raise LookupError(f"{mutant.function} of {mutant.file} is not loaded")
    for function in functions:
        if mutant.default:
            space: dict[str, Any] = {"__name__": function.__module__, "__file__": path}
            exec(module, space)
            changed: Any = space[mutant.function.partition(".")[0]]
            for part in mutant.function.split(".")[1:]:
                changed = vars(changed)[part]
            changed = getattr(changed, "__func__", changed)
            function.__defaults__ = changed.__defaults__
            function.__kwdefaults__ = changed.__kwdefaults__
        else:
            function.__code__ = code


def _place(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_name


def _codes(code: CodeType) -> list[CodeType]:
    inside = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return inside + [deeper for entry in inside for deeper in _codes(entry)]


def _statements(path: Path) -> dict[int, tuple[int, int]]:
    """Return the lines of the statement that each line belongs to; of a compound statement, those of its head.

    The parameters of a function are executed with its body.
    """
    spans: dict[int, tuple[int, int]] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            first, last = node.lineno, node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for line in range(first, node.body[0].lineno):
                    spans[line] = (node.body[0].lineno, last)
            else:
                if isinstance(body, list) and body:
                    last = max(first, body[0].lineno - 1)
                for line in range(first, last + 1):
                    spans[line] = (first, last)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return spans


def run(mutants: list[Mutant], tests: list[str], jobs: int, budget: float, show: Callable[[Outcome], None]) -> Runner:
    """Run tests on mutants.

    Args:
        mutants: The mutants.
        tests: The files of the tests.
        jobs: How many mutants at a time.
        budget: The seconds of tests for a mutant, as measured without one.
        show: Is called with each outcome.
    """
    runner = Runner(mutants, jobs, budget, show)
    sys.stdout.flush()
    words = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler"]
    pytest.main([*words, *tests], plugins=[runner])
    return runner
