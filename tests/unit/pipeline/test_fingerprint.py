"""The fingerprint of a pipeline contains what its results depend on, and nothing else."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from respool import DeltaSink, FunctionSink, JdbcSink, KafkaSink, Pipeline
from respool.errors import CheckpointError
from respool.pipeline.fingerprint import Fingerprint, changes, fingerprint_of
from respool.pipeline.registry import BUILT_IN, find_pipeline
from respool.sinks.protocol import Sink

MODULE = '''
"""A user's pipeline."""
import dataclasses
import functools
from datetime import timedelta

import {helpers}
from {helpers} import other

LIMIT = 3
WORDS = {{"b", "a", "c"}}


@dataclasses.dataclass(frozen=True)
class Rule:
    gap: timedelta
    name: str = "gap"

    def holds(self, value):
        return {helpers}.doubled(value) > LIMIT


class Processor:
    def __init__(self, rule):
        self.rule = rule

    def handle(self, value):
        # a comment
        return self.rule.holds(value) and str(value) in WORDS


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


@decorated
def cleaned(events):
    return events


def make(minutes):
    rule = Rule(timedelta(minutes=minutes))
    password = "hunter2"
    def transform(events):
        from {helpers} import late
        nested = lambda value: other(value)
        return Processor(rule), nested, late, cleaned(events), password
    return transform


def unrelated():
    return 1
'''
HELPERS = (
    "def doubled(value):\n    return value * 2\n\ndef other(value):\n    return value\n\ndef late():\n    return 1\n"
)


def pipeline(transform: object, sink: object = None) -> Pipeline:
    return Pipeline("mine", "topic", transform, sink or KafkaSink("out"))  # type: ignore[arg-type]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """A user's module and its helpers, as files side by side; each call imports them again, with something replaced."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(old: str = "", new: str = "") -> ModuleType:
        texts = {"mine_fp": MODULE.format(helpers="helpers_fp"), "helpers_fp": HELPERS}
        assert not old or any(old in text for text in texts.values())
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text.replace(old, new) if old else text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("mine_fp")

    return write


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_two_makes_of_a_pipeline_are_equal(name: str) -> None:
    fingerprint = fingerprint_of(find_pipeline(name))
    assert fingerprint == fingerprint_of(find_pipeline(name))
    assert fingerprint.code
    assert not changes(fingerprint, fingerprint_of(find_pipeline(name)))
    assert Fingerprint.from_json(json.loads(json.dumps(fingerprint.to_json()))) == fingerprint


def test_a_parameter_shows_as_what_it_changes() -> None:
    listed = changes(
        fingerprint_of(find_pipeline("sessions")), fingerprint_of(find_pipeline("sessions", {"gap": "20 minutes"}))
    )
    assert "setting results: sessions with a gap of 10 minutes → sessions with a gap of 20 minutes" in listed
    assert "setting respool.sessions.gap.by_gap.transform:micros: 600000000 → 1200000000" in listed
    listed = changes(
        fingerprint_of(find_pipeline("visit-counts")),
        fingerprint_of(find_pipeline("visit-counts", {"watermark": "20 minutes"})),
    )
    assert listed == ["setting watermark: 10 minutes → 20 minutes"]
    given = fingerprint_of(find_pipeline("visit-counts"), {"window": "10 minutes"})
    assert given.settings["parameter window"] == "10 minutes"


def test_code_reached_by_names_is_in_it_and_other_code_is_not(written: Callable[..., ModuleType]) -> None:
    fingerprint = fingerprint_of(pipeline(written().make(10)))
    assert set(fingerprint.code) == {
        "mine_fp.LIMIT",
        "mine_fp.Processor",
        "mine_fp.Rule",
        "mine_fp.WORDS",
        "mine_fp.cleaned",
        "mine_fp.make.transform",
        "helpers_fp.doubled",
        "helpers_fp.late",
        "helpers_fp.other",
    }
    assert fingerprint.settings["mine_fp.make.transform:rule"] == "Rule(gap=0:10:00, name='gap')"
    assert fingerprint != fingerprint_of(pipeline(written().make(11)))


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("LIMIT = 3", "LIMIT = 4", "code mine_fp.LIMIT changed"),
        ("value * 2", "value * 3", "code helpers_fp.doubled changed"),
        ("def late():\n    return 1", "def late():\n    return 2", "code helpers_fp.late changed"),
        ("str(value) in WORDS", "value in WORDS", "code mine_fp.Processor changed"),
        ('"a", "c"', '"a", "d"', "code mine_fp.WORDS changed"),
        ("    return events\n", "    return None\n", "code mine_fp.cleaned changed"),
        ("LIMIT", "MOST", "code mine_fp.LIMIT is gone"),
        ('name: str = "gap"', 'name: str = LIMIT and "gaps"', "code mine_fp.Rule changed"),
    ],
)
def test_a_change_is_reported_by_name(written: Callable[..., ModuleType], old: str, new: str, change: str) -> None:
    before = fingerprint_of(pipeline(written().make(10)))
    assert change in changes(before, fingerprint_of(pipeline(written(old, new).make(10))))


@pytest.mark.parametrize(
    ("old", "new"),
    [("# a comment", "# another one\n\n"), ("unrelated():\n    return 1", "unrelated():\n    return 2")],
)
def test_comments_and_what_is_not_used_do_not_count(written: Callable[..., ModuleType], old: str, new: str) -> None:
    before = fingerprint_of(pipeline(written().make(10)))
    assert before == fingerprint_of(pipeline(written(old, new).make(10)))


def test_it_is_the_same_in_every_process(written: Callable[..., ModuleType], tmp_path: Path) -> None:
    written()
    script = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import mine_fp\n"
        "from respool import KafkaSink, Pipeline; from respool.pipeline.fingerprint import fingerprint_of\n"
        "made = Pipeline('mine', 'topic', mine_fp.make(10), KafkaSink('out'))\n"
        "print(json.dumps(fingerprint_of(made).to_json()))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    (text,) = printed
    assert Fingerprint.from_json(json.loads(text)) == fingerprint_of(pipeline(written().make(10)))


def test_no_secret_is_in_it(written: Callable[..., ModuleType]) -> None:
    options = {"spark.ssl.keyStorePassword": "hunter2", "spark.fs.s3a.secret.key": "hunter2", "spark.some": "shown"}
    url = "jdbc:x://u:hunter2@host"
    made = replace(pipeline(written().make(10)), spark=options)
    fingerprint = fingerprint_of(made, {"url": url, "api_key": "hunter2"})
    assert "hunter2" not in json.dumps(fingerprint.to_json())
    assert fingerprint.settings["spark.some"] == "shown"
    other = replace(made, spark={**options, "spark.ssl.keyStorePassword": "other"})
    (change,) = changes(fingerprint, fingerprint_of(other, {"url": url, "api_key": "hunter2"}))
    assert change.startswith("setting spark.ssl.keyStorePassword: digest ")


def test_code_without_a_source_and_the_function_of_a_sink_count() -> None:
    def made(text: str) -> Pipeline:
        names: dict[str, object] = {"__name__": "typed_in"}
        exec(text, names)
        return pipeline(lambda events: events, FunctionSink(names["write"], "a function"))  # type: ignore[arg-type]

    fingerprint = fingerprint_of(made("def write(rows, batch): return 1"))
    assert fingerprint.code["typed_in.write"].startswith(f"python{sys.version_info[0]}.{sys.version_info[1]}:")
    assert fingerprint == fingerprint_of(made("def write(rows, batch): return 1"))
    assert "code typed_in.write changed" in changes(
        fingerprint, fingerprint_of(made("def write(rows, batch): return 2"))
    )


def test_a_damaged_fingerprint_is_reported() -> None:
    damaged: list[object] = [None, {}, {"code": {}, "settings": 3}, []]
    for facts in damaged:
        with pytest.raises(CheckpointError, match="cannot be read"):
            Fingerprint.from_json(facts)


def test_another_spelling_of_a_duration_is_no_change() -> None:
    now = fingerprint_of(find_pipeline("visit-counts", {"window": "10m", "watermark": "600s"}))
    kept = fingerprint_of(find_pipeline("visit-counts")).to_json()
    assert kept["settings"]["results"] == "windows of 10 minutes"
    assert not [change for change in changes(Fingerprint.from_json(kept), now) if "watermark" in change]
    old = {**kept, "settings": {**kept["settings"], "watermark": "10m", "results": "windows of 600s"}}
    assert Fingerprint.from_json(old) == Fingerprint.from_json(kept)


def piped(**sink: Any) -> dict[str, str]:
    return dict(fingerprint_of(Pipeline("p", "t", transform=lambda events: events, **sink)).settings)


def test_what_a_sink_writes_is_part_of_it_and_a_default_is_not() -> None:
    assert piped(sink=DeltaSink("t", mode="append", partition_by="day"))["sink's options"] == "mode append"
    assert piped(sink=KafkaSink("t", headers="tenant", partition="n"))["sink's options"] == (
        "headers ('tenant',), partition n"
    )
    assert "sink's options" not in piped(sink=DeltaSink("t", key="shop"))
    assert piped(sink=JdbcSink("postgresql://db/shop", "t", key="id"))["sink's key"] == "id"


def test_the_functions_and_keys_of_several_sinks_are_part_of_it() -> None:
    def publish(rows: object, batch: int) -> None:
        pass

    sinks: list[Sink] = [KafkaSink("a", key="x"), FunctionSink(publish, "f"), DeltaSink("b", key=("y", "z"))]
    fingerprint = fingerprint_of(Pipeline("p", "t", transform=lambda events: events, sinks=sinks))
    assert any(name.endswith("publish") for name in fingerprint.code)
    assert fingerprint.settings["sink's key"] == "x; y, z"
