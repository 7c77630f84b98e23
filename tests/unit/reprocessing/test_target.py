"""Sinks that cannot receive the results of a span are refused before anything is computed. No JVM."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from respool.errors import ReprocessError
from respool.kafka.cluster import KafkaCluster
from respool.operations.reprocess import _sink_at
from respool.pipeline.definition import Pipeline
from respool.reprocessing.target import ImmediateTarget, target_of
from respool.settings import Settings
from respool.sinks.console import FunctionSink
from respool.sinks.delta import DeltaSink
from respool.sinks.files import FileSink
from respool.sinks.kafka import KafkaSink
from respool.sinks.postgres.sink import JdbcSink
from respool.sinks.protocol import Sink, WriteContext

JDBC = JdbcSink("postgresql://db/shop", "totals", key="shop")


def target(settings: Settings, **sinks: Any) -> object:
    pipeline = Pipeline("totals", "orders", transform=lambda events: events, **sinks)
    write = WriteContext("totals", None, KafkaCluster("nowhere:1"), settings, run="again")
    return target_of(cast(Any, None), cast(Any, SimpleNamespace(pipeline=pipeline)), write)


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (FileSink("out"), "folder out, where results have no key.*--output"),
        (DeltaSink("out", mode="append"), "Delta table out, where results have no key.*--output"),
        (DeltaSink("out", mode="overwrite", overwrite_by="window"), "where results have no key"),
        (FunctionSink(print, "prints"), "to a function.*--output"),
    ],
)
def test_a_sink_without_a_key_is_refused_with_another_way(sink: Sink, message: str, tmp_path: Path) -> None:
    with pytest.raises(ReprocessError, match=message):
        target(Settings(home=tmp_path), sink=sink)


def test_a_database_gets_each_slice_at_once(tmp_path: Path) -> None:
    assert isinstance(target(Settings(home=tmp_path), sink=JDBC), ImmediateTarget)


def test_one_of_several_sinks_is_chosen_by_its_address(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    with pytest.raises(
        ReprocessError, match=r"several sinks.*--sink: kafka:a, jdbc:postgresql://db/shop\?table=totals"
    ):
        target(settings, sinks=[KafkaSink("a"), JDBC, FileSink("out")])
    pipeline = Pipeline("totals", "orders", transform=lambda events: events, sinks=[KafkaSink("a"), JDBC])
    assert _sink_at("jdbc:postgresql://db/shop?table=totals", pipeline, settings) == JDBC
    with pytest.raises(ReprocessError, match="Did you mean 'kafka:a'"):
        _sink_at("kafka:b", pipeline, settings)
    alone = Pipeline("totals", "orders", transform=lambda events: events, sink=JDBC)
    with pytest.raises(ReprocessError, match="leave --sink out"):
        _sink_at("kafka:a", alone, settings)
