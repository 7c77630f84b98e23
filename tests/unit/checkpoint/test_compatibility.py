"""What Spark compares with a checkpoint at a start, read from golden checkpoints; and the result for another query."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from respool.checkpoint.compatibility import Compatibility, compare, ddl
from respool.checkpoint.operator_files import QueryShape, query_shape
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.storage.local import LocalReader
from support import checkpoints


def shape(folder: Path) -> QueryShape:
    checkpoint = CheckpointSnapshot(LocalReader(folder))
    return query_shape(checkpoint, checkpoint.commits[-1])


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, QueryShape]:
    """The shapes of some golden checkpoints, none of them where it was recorded."""
    kinds = ("hdfs", "operators", "session", "join", "join-families", "transform", "stateless")
    return {kind: shape(checkpoints.unpack(tmp_path_factory.mktemp("golden"), kind)) for kind in kinds}


def test_a_query_fits_its_own_checkpoint(shapes: dict[str, QueryShape]) -> None:
    for query in shapes.values():
        assert compare(query, query) == Compatibility((), ())


def test_older_sparks_write_what_can_be_read(tmp_path: Path, shapes: dict[str, QueryShape]) -> None:
    for version in checkpoints.versions():
        for kind in ("hdfs", "join", "transform"):
            older = shape(checkpoints.unpack(tmp_path / version, kind, version))
            assert compare(older, shapes[kind]) == Compatibility((), ())


def test_a_shape_has_operators_tables_and_schemas(shapes: dict[str, QueryShape]) -> None:
    (aggregation,) = shapes["hdfs"].operators
    assert (shapes["hdfs"].sources, shapes["hdfs"].partitions, aggregation.name) == (1, 2, "stateStoreSave")
    assert ddl(aggregation.tables[0].key) == "key STRING, _groupingexpression INT"
    assert ddl(aggregation.tables[0].value) == "count BIGINT NOT NULL, sum BIGINT"
    assert [operator.kind for operator in shapes["operators"].operators] == ["aggregation", "deduplication"]
    for kind in ("join", "join-families"):
        (join,) = shapes[kind].operators
        assert (shapes[kind].sources, len(join.tables)) == (2, 4)
    (transform,) = shapes["transform"].operators
    assert transform.modes == {"timeMode": "EventTime", "outputMode": "Update"}
    assert {name: sort for name, sort in transform.variables.items() if name[0] != "$"} == {
        "amounts": "ListState",
        "by_id": "MapState",
        "rows": "ValueState",
    }
    by_id = transform.table("default", "by_id")
    assert by_id is not None
    assert ddl(by_id.key) == "key STRUCT<key: STRING>, userKey STRUCT<rest: INT>"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("hdfs", "operators", "operator 1 (deduplication) is new"),
        ("operators", "hdfs", "operator 1 (deduplication) was removed"),
        ("operators", "hdfs", "operator 0 (aggregation): its key was (window STRUCT<start: TIMESTAMP, end: TIMESTAMP>"),
        ("hdfs", "session", "operator 0 was aggregation and is session windows now"),
        ("stateless", "hdfs", "operator 0 (aggregation) is new"),
        ("transform", "stateless", "operator 0 (transformWithState) was removed"),
        ("hdfs", "join", "the query had 1 source and has 2 now"),
    ],
)
def test_another_query_does_not_fit(shapes: dict[str, QueryShape], old: str, new: str, reason: str) -> None:
    assert any(reason in difference for difference in compare(shapes[old], shapes[new]).blocking)


def test_what_was_lost_is_not_compared_as_spark_does_not(tmp_path: Path, shapes: dict[str, QueryShape]) -> None:
    folder = checkpoints.unpack(tmp_path, "hdfs")
    shutil.rmtree(folder / "state/0/0/_metadata")
    damaged = compare(shape(folder), shapes["hdfs"])
    assert not damaged.blocking
    assert damaged.notes == ("operator 0 (aggregation) has lost its schemas: Spark starts without comparing them.",)
    shutil.rmtree(folder / "state/0/_metadata")
    damaged = compare(shape(folder), shapes["session"])
    assert not damaged.blocking
    assert "has lost its metadata" in damaged.notes[0]


def test_a_damaged_schema_is_reported(tmp_path: Path) -> None:
    folder = checkpoints.unpack(tmp_path, "hdfs")
    file = folder / "state/0/0/_metadata/schema"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="state/0/0/_metadata/schema is damaged"):
        shape(folder)


def test_in_avro_values_of_every_run_must_be_readable(shapes: dict[str, QueryShape]) -> None:
    def typed(old: str, *older: str) -> QueryShape:
        def value(kind: str) -> dict[str, object]:
            return {"type": "struct", "fields": [{"name": "rows", "type": kind, "nullable": True, "metadata": {}}]}

        (transform,) = shapes["transform"].operators
        tables = [
            replace(table, value=value(old), older=tuple(map(value, older))) if table.name == "rows" else table
            for table in transform.tables
        ]
        conf = {"spark.sql.streaming.stateStore.encodingFormat": "avro"}
        return replace(shapes["transform"], operators=(replace(transform, tables=tuple(tables)),), conf=conf)

    assert not compare(typed("integer"), typed("long")).blocking
    assert not compare(typed("integer", "integer"), typed("double")).blocking
    assert compare(typed("integer", "string"), typed("long")).blocking
    assert compare(typed("long"), typed("integer")).blocking
    assert compare(replace(typed("integer"), conf={}), typed("long")).blocking
