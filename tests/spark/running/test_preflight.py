"""What the preflight reports about a changed pipeline is what Spark does with it."""

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from respool import ConsoleSink, JsonDecoder, Pipeline
from respool.checkpoint.compatibility import is_avro_readable, is_compatible
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import PipelineError
from respool.format.positions import kafka_parts
from respool.pipeline.fingerprint import fingerprint_of
from respool.pipeline.registry import BUILT_IN, find_pipeline
from respool.running.preflight import Preflight, lines, preflight, shape_of
from respool.storage.local import LocalReader
from respool.testing import run_batches
from respool.visits.counts import ROCKSDB
from support import checkpoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = JsonDecoder("key STRING NOT NULL, page STRING, amount INT, at TIMESTAMP NOT NULL", event_time="at")
EVENT = {"key": "a", "page": "home", "amount": 3, "at": "2025-09-04T07:00:00Z"}
NEVER = "the query read no Kafka topic"  # the queries of these tests read files
Transform = Callable[["DataFrame"], "DataFrame"]


def sums(by: tuple[str, ...] = ("key",), amount: str = "amount", window: str = "10 minutes", also: bool = False) -> Any:
    def transform(events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        more = [F.count("*").alias("rows")] if also else []
        return events.groupBy(F.window("at", window), *by).agg(F.sum(amount).alias("total"), *more)

    return transform


def once(transform: Transform) -> Transform:
    return lambda events: transform(events.dropDuplicatesWithinWatermark(["key"]))


def kept(variables: dict[str, tuple[str, str]], mode: str = "EventTime") -> Transform:
    """A transform with a processor that keeps these variables: their sort and their schema by their names."""

    def transform(events: "DataFrame") -> "DataFrame":
        from pyspark.sql.streaming.stateful_processor import StatefulProcessor

        class Processor(StatefulProcessor):
            def init(self, handle: Any) -> None:
                self._all = [getattr(handle, sort)(name, schema) for name, (sort, schema) in variables.items()]

            def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
                for (sort, _), variable in zip(variables.values(), self._all, strict=True):
                    variable.put([(1,)]) if sort == "getListState" else variable.update((1,))
                return iter(())

            def close(self) -> None:
                pass

        rows = events.select("key", "at")
        return rows.groupBy("key").transformWithState(Processor(), "key STRING", "Update", mode)

    return transform


def joined(*columns: str) -> Transform:
    """A join of the events with themselves, which keeps these columns of the left side."""

    def transform(events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        left, right = events.alias("l"), events.alias("r")
        both = left.join(right, F.expr("l.key = r.page AND l.at = r.at"))
        return both.select("r.amount", *(f"l.{column}" for column in columns))

    return transform


def pipeline(transform: Transform, **more: Any) -> Pipeline:
    return replace(
        Pipeline("mine", "topic", transform, ConsoleSink(), EVENTS, watermark="5 minutes", output_mode="update"), **more
    )


ROCKS = {**ROCKSDB, "spark.sql.shuffle.partitions": "1"}
TOTAL = pipeline(sums(), spark={"spark.sql.shuffle.partitions": "1"})
KEPT = pipeline(kept({"count": ("getValueState", "n INT"), "list": ("getListState", "n INT")}), spark=ROCKS)
IDS = {**ROCKS, "spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}

AVRO = {**ROCKS, "spark.sql.streaming.stateStore.encodingFormat": "avro"}
WIDER = pipeline(kept({"count": ("getValueState", "n BIGINT")}), spark=ROCKS)
JOIN = pipeline(joined("key"), output_mode="append", spark=TOTAL.spark)
PLAIN = pipeline(lambda events: events.select("key"))

STARTS = [
    (
        TOTAL,
        pipeline(sums(window="1 hour"), watermark="1 hour", spark=ROCKSDB),
        [
            "Spark does not compare watermarks",
            "the state is in 1 partition and is not converted",
            "providerClass is fixed",
        ],
    ),
    (TOTAL, pipeline(sums(by=("page",)), spark=TOTAL.spark), ["key was renamed to page"]),
    (
        KEPT,
        pipeline(kept({"list": ("getListState", "n INT"), "more": ("getValueState", "n INT")}), spark=ROCKS),
        ["the variable more is new", "the variable count was removed"],
    ),
    (replace(KEPT, spark=AVRO), WIDER, ["the variable list was removed"]),
]
FAILS = [
    (TOTAL, pipeline(sums(by=("key", "page"))), "operator 0 (aggregation): its key was (window STRUCT<"),
    (TOTAL, pipeline(sums(also=True)), "its value was (sum BIGINT) and is (sum BIGINT, count BIGINT NOT NULL) now"),
    (TOTAL, pipeline(once(sums())), "operator 1 (deduplication) is new"),
    (TOTAL, PLAIN, "operator 0 (aggregation) was removed"),
    (JOIN, replace(JOIN, transform=joined("key", "amount")), "store left-keyWithIndexToValue: its value was (key"),
    (PLAIN, TOTAL, "operator 0 (aggregation) is new"),
    (TOTAL, KEPT, "operator 0 was aggregation and is transformWithState now"),
    (
        KEPT,
        WIDER,
        "operator 0 (transformWithState), count: its value was (n INT) and is (n BIGINT) now",
    ),
    (
        KEPT,
        pipeline(kept({"count": ("getListState", "n INT")}), spark=ROCKS),
        "the variable count was a value and is a list now",
    ),
    (KEPT, pipeline(kept({"count": ("getValueState", "n INT")}, "None"), spark=ROCKS), "its time mode was EventTime"),
    (KEPT, replace(KEPT, spark=IDS), "the state is of format 1"),
]


@pytest.fixture(scope="module")
def made(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Callable[[Pipeline], Path]:
    """The checkpoint of a pipeline that ran one batch; each runs once."""
    known: dict[int, Path] = {}

    def make(pipeline: Pipeline) -> Path:
        if id(pipeline) not in known:
            known[id(pipeline)] = tmp_path_factory.mktemp("made") / "checkpoint"
            run_batches(spark, pipeline, [[EVENT]], known[id(pipeline)])
        return known[id(pipeline)]

    return make


def preflight_of(spark: "SparkSession", old: Pipeline, new: Pipeline, made: Path) -> Preflight:
    checkpoint = CheckpointSnapshot(LocalReader(made))
    result = preflight(spark, new, checkpoint, checkpoint.commits[-1], fingerprint_of(old), fingerprint_of(new))
    first, *others = result.blocking
    assert first.startswith(NEVER)
    return replace(result, blocking=tuple(others))


@pytest.mark.parametrize(("old", "new", "notes"), STARTS)
def test_what_is_not_blocked_starts(
    spark: "SparkSession",
    made: Callable[[Pipeline], Path],
    tmp_path: Path,
    old: Pipeline,
    new: Pipeline,
    notes: list[str],
) -> None:
    result = preflight_of(spark, old, new, made(old))
    assert not result.blocking
    for note in notes:
        assert any(note in text for text in result.notes), result.notes
    assert lines(result)[-1] == "Spark starts the changed pipeline from the savepoint."
    shutil.copytree(made(old), tmp_path / "started")
    assert run_batches(spark, new, [[EVENT]], tmp_path / "started")


@pytest.mark.parametrize(("old", "new", "why"), FAILS)
def test_what_is_blocked_fails(
    spark: "SparkSession",
    made: Callable[[Pipeline], Path],
    tmp_path: Path,
    old: Pipeline,
    new: Pipeline,
    why: str,
) -> None:
    result = preflight_of(spark, old, new, made(old))
    assert any(why in text for text in result.blocking), result.blocking
    assert lines(result)[-1] == "Spark does not start this pipeline from the savepoint."
    shutil.copytree(made(old), tmp_path / "started")
    with pytest.raises(Exception, match=r"STATE|state|None.get|NOT_MATCH|NumberFormat"):
        run_batches(spark, new, [[EVENT]], tmp_path / "started")


@pytest.mark.parametrize("old", [TOTAL, KEPT])
def test_an_unchanged_pipeline_has_nothing_to_report(
    spark: "SparkSession", made: Callable[[Pipeline], Path], old: Pipeline
) -> None:
    result = preflight_of(spark, old, old, made(old))
    assert result == Preflight((), (), ())
    assert lines(result) == ["Nothing has changed since the savepoint."]


def test_another_topic_is_reported(spark: "SparkSession", tmp_path: Path) -> None:
    checkpoint = CheckpointSnapshot(LocalReader(checkpoints.unpack(tmp_path, "kafka")))
    ((topic, _), *_) = kafka_parts(checkpoint.newest_planned().sources[0].end)
    for name in (topic, "other"):
        changed = pipeline(sums(), topic=name)
        result = preflight(spark, changed, checkpoint, checkpoint.commits[-1], None, fingerprint_of(changed))
        assert any("the pipeline reads other, where" in text for text in result.blocking) == (name == "other")
        assert not result.changes
        assert any("It is unknown which code and settings made the savepoint" in text for text in result.notes)


def test_every_pipeline_has_a_shape(spark: "SparkSession") -> None:
    names = {
        name: [operator.kind for operator in shape_of(spark, find_pipeline(name), {}).operators] for name in BUILT_IN
    }
    assert names == {
        "visit-counts": ["aggregation"],
        "visits-archive": [],
        "browser-visits-archive": [],
        "visit-windows": ["aggregation"],
        "sessions": ["transformWithState"],
        "browser-stats-stateless": [],
        "browser-stats-stateful": ["aggregation"],
        "micro-batch": [],
    }


def test_a_join_has_two_sources_and_four_stores(spark: "SparkSession") -> None:
    query = shape_of(spark, JOIN, {})
    (join,) = query.operators
    assert (query.sources, join.kind, len(join.tables)) == (2, "join", 4)


def test_a_transform_that_fails_is_reported(spark: "SparkSession") -> None:
    with pytest.raises(PipelineError, match=r"pipeline mine as it is now.*`nothing`"):
        shape_of(spark, pipeline(lambda events: events.select("nothing")), {})
    with pytest.raises(PipelineError, match=r"ZeroDivisionError"):
        shape_of(spark, pipeline(lambda events: 1 / 0, watermark=None, stateless=True), {})  # type: ignore[arg-type,return-value]


TYPES = [
    *("boolean", "byte", "integer", "date", "long", "timestamp", "float", "double", "string", "binary"),
    *("decimal(10,2)", "decimal(11,2)", "decimal(30,2)"),
    {"type": "array", "elementType": "integer", "containsNull": True},
    {"type": "array", "elementType": "long", "containsNull": False},
    {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
    {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": False},
    {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}]},
    {"type": "struct", "fields": [{"name": "y", "type": "integer", "nullable": False, "metadata": {}}]},
    {"type": "struct", "fields": [{"name": "x", "type": "string", "nullable": True, "metadata": {}}]},
]


def test_schemas_are_compared_as_spark_compares_them(spark: "SparkSession") -> None:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    types = getattr(getattr(jvm.org.apache.spark.sql.types, "DataType$"), "MODULE$")
    converters = jvm.org.apache.spark.sql.avro.SchemaConverters
    validator = jvm.org.apache.avro.SchemaValidatorBuilder().canReadStrategy().validateAll()

    def schema(fields: dict[str, Any], nullable: bool = True) -> Any:
        columns = [{"name": name, "type": kind, "nullable": nullable, "metadata": {}} for name, kind in fields.items()]
        return {"type": "struct", "fields": columns}

    schemas = [schema({"a": kind}) for kind in TYPES]
    schemas += [schema({"a": "integer"}, False), schema({"b": "integer"}), schema({"a": "integer", "b": "string"})]
    theirs = [types.fromJson(json.dumps(struct)) for struct in schemas]
    avro = [converters.toAvroTypeWithDefaults(struct) for struct in theirs]

    before = [jvm.java.util.List.of(type_) for type_ in avro]

    def reads_avro(new: int, old: int) -> bool:
        try:
            validator.validate(avro[new], before[old])
        except Py4JJavaError:
            return False
        return True

    for new, old in itertools.product(range(len(schemas)), repeat=2):
        pair = (schemas[new], schemas[old])
        assert is_compatible(*pair) == types.equalsIgnoreNameAndCompatibleNullability(theirs[new], theirs[old]), pair
        assert is_avro_readable(*pair) == reads_avro(new, old), pair
