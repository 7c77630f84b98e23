"""Batches in a real PostgreSQL: each exactly once, also when its process is killed, and again after a rewind."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.postgres_server import PASSWORD, PostgresServer
from respool.errors import SettingsError, SinkError, SinkUnreachable
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.sinks.postgres import sink as postgres_sink
from respool.sinks.postgres.place import PostgresPlace
from respool.sinks.postgres.sink import recorded_batches
from respool.sinks.postgres.statements import WITHDRAWN, TargetTable
from respool.sinks.protocol import WriteContext

QUERY = "5ba814c4-bb0f-43c5-9145-2a0b9f731857"
TYPES = ["text", "bigint"]
STEPS = ("stage", "copy", "delete", "upsert", "mark", "commit")
Write = Callable[..., bool]


@pytest.fixture
def target() -> TargetTable:
    return TargetTable(f"totals_{uuid.uuid4().hex[:8]}", ("shop", "total"), ("shop",))


@pytest.fixture
def place(postgres: PostgresServer, target: TargetTable, monkeypatch: pytest.MonkeyPatch) -> PostgresPlace:
    monkeypatch.setenv("TEST_PASSWORD", PASSWORD)
    return PostgresPlace(postgres.url, target.table, password_env="TEST_PASSWORD")


@pytest.fixture
def write(place: PostgresPlace, target: TargetTable) -> Write:
    """Writes a batch of totals by shop, as the sink does; a total of None withdraws the shop."""

    def write(batch: int | None, totals: dict[str, int | None], *, epoch: str = "", query: str | None = QUERY) -> bool:
        context = WriteContext("totals", batch, KafkaCluster("nowhere:1"), Settings(), query=query, epoch=epoch)
        return write_rows(place, target, list(totals.items()), context)

    return write


def write_rows(
    place: PostgresPlace, target: TargetTable, rows: list[tuple[str, int | None]], context: WriteContext
) -> bool:
    shops, totals = [shop for shop, _ in rows], [total for _, total in rows]
    columns = {"shop": pa.array(shops, pa.string()), "total": pa.array(totals, pa.int64())}
    data = pa.table({**columns, WITHDRAWN: pa.array([total is None for total in totals], pa.bool_())})
    with place.connect() as connection:
        postgres_sink.create_tables(connection, target, TYPES)
        return postgres_sink.write_batch(connection, target, data, context)


def totals(postgres: PostgresServer, target: TargetTable) -> dict[str, int]:
    return dict(postgres.rows(f"SELECT shop, total FROM {target.quoted}"))


def test_a_result_replaces_the_row_of_its_key(postgres: PostgresServer, target: TargetTable, write: Write) -> None:
    assert write(0, {"Lyon": 1, "Metz": 2})
    assert write(1, {"Lyon": 5, "Nice": 3, "": 4})
    assert totals(postgres, target) == {"Lyon": 5, "Metz": 2, "Nice": 3, "": 4}
    assert write(2, {"Metz": None, "Paris": None})
    assert totals(postgres, target) == {"Lyon": 5, "Nice": 3, "": 4}


def test_a_replayed_batch_changes_nothing(postgres: PostgresServer, target: TargetTable, write: Write) -> None:
    write(0, {"Lyon": 1})
    write(1, {"Lyon": 2})
    before = postgres.rows(f"SELECT xmin, * FROM {target.quoted}")
    assert not write(1, {"Lyon": 99, "Metz": 99})
    assert postgres.rows(f"SELECT xmin, * FROM {target.quoted}") == before


def test_an_empty_batch_is_recorded(place: PostgresPlace, write: Write) -> None:
    write(0, {})
    assert recorded_batches(place, (QUERY, "another")) == {QUERY: 0}
    assert not write(0, {"Lyon": 1})


def test_a_batch_after_a_rewind_is_written_again(postgres: PostgresServer, target: TargetTable, write: Write) -> None:
    for batch in range(3):
        write(batch, {"Lyon": batch})
    assert write(1, {"Lyon": 10, "Metz": 1}, epoch="20260101T000000.000000Z-1")
    assert totals(postgres, target) == {"Lyon": 10, "Metz": 1}
    assert not write(1, {"Lyon": 99}, epoch="20260101T000000.000000Z-1")  # a crash after the rewind
    assert write(2, {"Lyon": 11}, epoch="20260101T000000.000000Z-1")
    assert write(3, {"Lyon": 12}, epoch="20260102T000000.000000Z-1-undo")  # the rewind was undone
    assert totals(postgres, target) == {"Lyon": 12, "Metz": 1}


def test_queries_and_tables_have_records_of_their_own(
    postgres: PostgresServer, target: TargetTable, place: PostgresPlace, write: Write
) -> None:
    write(7, {"Lyon": 1})
    assert write(0, {"Lyon": 2}, query="a fork")
    other = replace(target, table=f"{target.table}_v2")
    context = WriteContext("totals", 7, KafkaCluster("nowhere:1"), Settings(), query=QUERY)
    assert write_rows(replace(place, table=other.table), other, [("Lyon", 3)], context)
    assert (totals(postgres, target), totals(postgres, other)) == ({"Lyon": 2}, {"Lyon": 3})


def test_an_old_batch_of_the_same_epoch_is_an_error(
    postgres: PostgresServer, target: TargetTable, write: Write
) -> None:
    for batch in (0, 1, 2):
        write(batch, {"Lyon": batch})
    with pytest.raises(SinkError, match=r"records batch 2 .* batch 1 comes again, .* --new-query-id"):
        write(1, {"Lyon": 99})
    assert totals(postgres, target) == {"Lyon": 2}


def test_reprocessed_results_are_written_without_a_record(place: PostgresPlace, write: Write) -> None:
    for _ in range(2):
        assert write(None, {"Lyon": 1}, query=None)
    assert recorded_batches(place, (QUERY,)) == {}


def test_a_batch_with_a_key_twice_is_refused_unless_the_newest_is_known(
    postgres: PostgresServer, target: TargetTable, place: PostgresPlace
) -> None:
    rows: list[tuple[str, int | None]] = [("Lyon", 5), ("Lyon", 7), ("Metz", 1), ("Lyon", 6)]
    context = WriteContext("totals", 0, KafkaCluster("nowhere:1"), Settings(), query=QUERY)
    with pytest.raises(SinkError, match="second time"):
        write_rows(place, target, rows, context)
    assert totals(postgres, target) == {}
    assert write_rows(place, replace(target, latest_by=("total",)), rows, context)
    assert totals(postgres, target) == {"Lyon": 7, "Metz": 1}


def test_an_existing_table_keeps_its_other_columns(postgres: PostgresServer, target: TargetTable, write: Write) -> None:
    with postgres.connect() as connection:
        connection.execute(
            f"CREATE TABLE {target.quoted} (note text DEFAULT 'old', total int, shop text UNIQUE)".encode()
        )
        connection.execute(f"INSERT INTO {target.quoted} VALUES ('mine', 1, 'Lyon')".encode())
    write(0, {"Lyon": 2, "Metz": 3})
    assert sorted(postgres.rows(f"SELECT * FROM {target.quoted}")) == [("mine", 2, "Lyon"), ("old", 3, "Metz")]


def test_a_table_without_an_index_on_the_key_is_refused(
    postgres: PostgresServer, target: TargetTable, write: Write
) -> None:
    with postgres.connect() as connection:
        connection.execute(f"CREATE TABLE {target.quoted} (shop text, total bigint)".encode())
    with pytest.raises(SinkError, match=f"CREATE UNIQUE INDEX ON .*{target.table}"):
        write(0, {"Lyon": 2})


@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_in_a_batch_leaves_it_to_the_replay(
    postgres: PostgresServer, target: TargetTable, write: Write, step: str
) -> None:
    write(0, {"Lyon": 1, "Metz": 1})
    script = Path(__file__).parents[3] / "support" / "killed_batch.py"
    command = [sys.executable, str(script), postgres.url, target.table, QUERY, step]
    done = subprocess.run(command, env={**os.environ, "TEST_PASSWORD": PASSWORD}, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert totals(postgres, target) == {"Lyon": 1, "Metz": 1}
    assert write(1, {"Lyon": 2, "Metz": None})
    assert totals(postgres, target) == {"Lyon": 2}
    assert not write(1, {"Lyon": 2, "Metz": None})


def test_a_process_killed_after_the_commit_leaves_nothing_to_do(
    postgres: PostgresServer, target: TargetTable, write: Write
) -> None:
    write(0, {"Lyon": 1, "Metz": 1})
    script = Path(__file__).parents[3] / "support" / "killed_batch.py"
    command = [sys.executable, str(script), postgres.url, target.table, QUERY, "committed"]
    done = subprocess.run(command, env={**os.environ, "TEST_PASSWORD": PASSWORD}, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert totals(postgres, target) == {"Lyon": 2}
    assert not write(1, {"Lyon": 2, "Metz": None})


def test_the_password_comes_from_a_variable_or_a_file(
    place: PostgresPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\n")
    with replace(place, password_env=None, password_file=str(secret)).connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    monkeypatch.delenv("TEST_PASSWORD")
    with pytest.raises(SettingsError, match="TEST_PASSWORD"), place.connect():
        pass
    missing = replace(place, password_env=None, password_file=str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="No such file"), missing.connect():
        pass


def test_a_wrong_password_does_not_count_as_an_outage(place: PostgresPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PASSWORD", "wrong")
    with pytest.raises(SinkError, match="password authentication failed") as error, place.connect():
        pass
    assert not isinstance(error.value, SinkUnreachable)
    assert "wrong" not in str(error.value)


def test_a_server_that_does_not_answer_is_an_outage(place: PostgresPlace) -> None:
    nowhere = replace(place, url="postgresql://respool@127.0.0.1:1/postgres")
    with pytest.raises(SinkUnreachable, match=r"127\.0\.0\.1"), nowhere.connect():
        pass


def test_a_table_that_no_query_has_written_has_no_batches(postgres: PostgresServer, place: PostgresPlace) -> None:
    assert recorded_batches(replace(place, table="public.nothing"), (QUERY,)) == {}
