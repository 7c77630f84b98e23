"""What each kind of sink does with replayed batches, and how a Delta table or a folder is restored. No JVM."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from typer.testing import CliRunner

from respool.cli.app import app
from respool.delta.log import DeltaLog, open_table
from respool.delta.restore import RestoreTable, require_undoable, run_restore, undo_restore
from respool.errors import CheckpointError
from respool.sinks.address import DeltaAddress, FileAddress, OtherAddress, ReplayOutcome, SinkAddress
from respool.sinks.registry import parse_sink, position_of, replay_of
from support.checkpoints import unpack

QUERY = "5ba814c4-bb0f-43c5-9145-2a0b9f731857"
NEW = "85d3871b-849c-4ffd-af01-9e274f53d3fa"


def write(table: Path, batch: int, app_id: str | None = QUERY, rows: int = 1) -> None:
    """Commit a batch, as a streaming query does; without an app id, as anybody else does."""
    noted = [Transaction(app_id, batch)] if app_id else None
    frame = pa.table({"part": [f"p {batch % 2}"] * rows, "batch": [batch] * rows})
    write_deltalake(
        table, frame, mode="append", partition_by=["part"], commit_properties=CommitProperties(app_transactions=noted)
    )


def batches(table: Path | str) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["batch"].to_pylist())


def newest(table: Path, app_id: str = QUERY) -> int | None:
    return DeltaTable(table).transaction_version(app_id)


def restore_of(table: Path, first_batch: int, *query_ids: str) -> RestoreTable:
    replay = replay_of(DeltaAddress(str(table)), query_ids or [QUERY], first_batch)
    assert isinstance(replay.restore, RestoreTable), replay
    assert replay.blocked
    assert "--restore-sink" in str(replay.remedy)
    assert not replay.new_query_id
    return replay.restore


def refusal(table: Path, first_batch: int, *query_ids: str) -> str:
    before = DeltaTable(table).version()
    replay = replay_of(DeltaAddress(str(table)), query_ids or [QUERY], first_batch)
    assert replay.blocked
    assert replay.restore is None
    assert replay.remedy is not None
    assert DeltaTable(table).version() == before
    return replay.remedy


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table that a query has made, with batches 0 to 5 in versions 0 to 5."""
    path = tmp_path / "table"
    for batch in range(6):
        write(path, batch)
    return path


# --- what a user names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sink"),
    [
        ("delta:/data/visits", DeltaAddress("/data/visits")),
        ("delta:/data/visits/", DeltaAddress("/data/visits")),
        ("Delta:file:///data/visits", DeltaAddress("/data/visits")),
        ("delta:s3://bucket/visits/", DeltaAddress("s3://bucket/visits")),
        ("delta:/data/visits?txnAppId=my app", DeltaAddress("/data/visits", "my app")),
        ("files:s3a://bucket/out", FileAddress("s3://bucket/out")),  # one name for a store
        ("files:file:/out", FileAddress("/out")),
    ],
)
def test_sinks_by_their_place(text: str, sink: SinkAddress) -> None:
    assert parse_sink(text) == sink


def test_a_relative_place_is_known_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_sink("delta:table") == DeltaAddress(str(tmp_path / "table"))
    assert parse_sink("files:out") == FileAddress(str(tmp_path / "out"))


@pytest.mark.parametrize("text", ["kafka:counts", "console", "foreachBatch", "foreachbatch"])
def test_other_sinks_write_every_replayed_batch_again(text: str) -> None:
    sink = parse_sink(text)
    assert isinstance(sink, OtherAddress)
    assert replay_of(sink, [], 3) == ReplayOutcome(sink.kind, sink.text)
    assert "again" in sink.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delt:/x", "Did you mean 'delta'?"),
        ("", "delta:TABLE"),
        ("iceberg:db.t", "kafka:TOPIC"),
        ("files:", "needs a location"),
    ],
)
def test_an_unknown_sink_kind_is_refused(text: str, message: str) -> None:
    with pytest.raises(CheckpointError, match="files:FOLDER") as error:
        parse_sink(text)
    assert message in str(error.value)


# --- every kind -------------------------------------------------------------------------------------------------------

KINDS = ("delta", "files", "kafka", "jdbc", "foreachBatch", "console")


@pytest.fixture(params=KINDS)
def written_to(request: pytest.FixtureRequest) -> str:
    """An address of each kind, of a sink that has batches 0 to 5 where it remembers batches."""
    match request.param:
        case "delta":
            return f"delta:{request.getfixturevalue('table')}"
        case "files":
            return f"files:{request.getfixturevalue('folder')(5)}"
        case "kafka":
            return "kafka:counts"
        case "jdbc":
            return "jdbc:postgresql://etl@127.0.0.1:1/shop?table=counts"
    return str(request.param)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_question_what_a_replay_does_changes_nothing(written_to: str, tmp_path: Path) -> None:
    before = everything(tmp_path)
    for first_batch in (0, 3, 6):
        replay_of(parse_sink(written_to), [QUERY], first_batch)
    assert everything(tmp_path) == before


def test_a_refused_replay_has_a_remedy_and_others_have_none(written_to: str) -> None:
    replay = replay_of(parse_sink(written_to), [QUERY], 3)
    assert replay.sink
    assert replay.text
    remembers = written_to.startswith(("delta:", "files:"))
    assert [bool(part) for part in (replay.blocked, replay.remedy, replay.restore)] == [remembers] * 3


def test_new_batches_are_never_refused(written_to: str) -> None:
    replay = replay_of(parse_sink(written_to), [QUERY], 6)
    assert (replay.blocked, replay.restore, replay.new_query_id) == (None, None, False)


def test_an_unknown_position_has_a_reason(written_to: str) -> None:
    position = position_of(written_to, [QUERY], 3, {"counts": {0: 7}}.__getitem__)
    assert position.output == written_to
    reported = [position.offsets is not None, position.transactions is not None, position.unknown is not None]
    records = written_to.startswith(("delta:", "files:"))
    assert reported == [written_to == "kafka:counts", records, not any(reported[:2])]
    assert (position.version is not None) == written_to.startswith("delta:")


@pytest.mark.parametrize("kind", ["delta", "files", "kafka", "jdbc"])
def test_the_sink_of_a_pipeline_may_not_exist_yet(kind: str, tmp_path: Path) -> None:
    place = {"kafka": "counts", "jdbc": "postgresql://db/shop?table=t"}.get(kind, str(tmp_path / "missing"))
    replay = replay_of(parse_sink(f"{kind}:{place}"), [QUERY], 3, may_be_missing=True)
    assert (replay.blocked, replay.restore) == (None, None)


def test_a_table_without_a_batch_of_the_pipelines_query_is_written_as_new(table: Path) -> None:
    replay = replay_of(DeltaAddress(str(table)), [NEW], 3, may_be_missing=True)
    assert (replay.blocked, replay.restore) == (None, None)
    assert replay_of(DeltaAddress(str(table)), [NEW], 3).blocked
    assert replay_of(DeltaAddress(str(table)), [QUERY], 3, may_be_missing=True).restore


def test_an_address_of_a_database_has_no_password() -> None:
    with pytest.raises(CheckpointError, match="has a password") as error:
        parse_sink("jdbc:postgresql://etl:s3cret@db/shop?table=t")
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_kind_is_answered_with_all_kinds(kind: str) -> None:
    with pytest.raises(CheckpointError, match=kind):
        parse_sink("iceberg:db.t")


# --- Delta: restored, and back ----------------------------------------------------------------------------------------


def test_batches_that_a_table_lacks_are_written_as_new(table: Path) -> None:
    replay = replay_of(DeltaAddress(str(table)), [QUERY], 6)
    assert (replay.blocked, replay.restore) == (None, None)
    assert "as new" in replay.text


def test_a_table_is_restored_to_before_a_batch_and_accepts_it_again(table: Path) -> None:
    step = restore_of(table, 3)
    assert (step.from_version, step.to_version, step.from_batch, step.to_batch) == (5, 2, 5, 2)
    run_restore(step)
    assert batches(table) == [0, 1, 2]
    assert newest(table) == 2
    assert replay_of(DeltaAddress(str(table)), [QUERY], 3).blocked is None


def test_a_restore_is_done_once_and_so_is_its_undoing(table: Path) -> None:
    step = restore_of(table, 3)
    undo_restore(step)
    assert DeltaTable(table).version() == 5  # never begun: nothing to undo
    for _ in range(2):
        run_restore(step)
    assert DeltaTable(table).version() == 6
    for _ in range(2):
        require_undoable(step)
        undo_restore(step)
    assert (DeltaTable(table).version(), batches(table), newest(table)) == (7, [0, 1, 2, 3, 4, 5], 5)
    again = restore_of(table, 3)
    assert (again.from_version, again.to_version) == (7, 2)
    run_restore(again)
    assert (batches(table), newest(table)) == ([0, 1, 2], 2)


def test_a_restore_and_an_undo_that_an_earlier_version_made_are_recognized(table: Path) -> None:
    step = restore_of(table, 3)
    old = "rewind: from version 5 to version 2, batch 3 is next"  # as an earlier version marked its commits
    for to, mark, batch in ((2, old, 2), (5, f"undo of the {old}", 5)):
        noted = CommitProperties(custom_metadata={"respool": mark}, app_transactions=[Transaction(QUERY, batch)])
        DeltaTable(table).restore(to, commit_properties=noted)
        run_restore(step)  # it is done
        require_undoable(step)
        if to == 2:
            assert (DeltaTable(table).version(), batches(table)) == (6, [0, 1, 2])
    undo_restore(step)  # so is its undoing
    assert (DeltaTable(table).version(), batches(table)) == (7, [0, 1, 2, 3, 4, 5])


def test_the_mark_of_a_restore_is_data(table: Path) -> None:
    run_restore(restore_of(table, 3))
    marks = [json.loads(entry["respool"]) for entry in DeltaTable(table).history(1)]
    fields = {"from_version": 5, "to_version": 2, "next_batch": 3}
    assert marks == [{"kind": "restore", "version": 1, "fields": fields}]


def test_a_table_that_its_first_batch_made_is_emptied(table: Path) -> None:
    step = restore_of(table, 0)
    assert (step.to_version, step.to_batch) == (None, -1)
    for _ in range(2):
        run_restore(step)
    assert (batches(table), newest(table), DeltaTable(table).version()) == ([], -1, 6)
    for batch in range(3):
        write(table, batch)
    later = restore_of(table, 0)
    assert later.to_version == 6  # the emptied version
    run_restore(later)
    assert batches(table) == []
    undo_restore(later)
    assert batches(table) == [0, 1, 2]


def test_an_existing_table_keeps_its_earlier_rows(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write(table, -7, app_id=None)
    for batch in range(3):
        write(table, batch)
    run_restore(restore_of(table, 0))
    assert batches(table) == [-7]


def test_rewinds_in_a_row_restore_the_right_version(table: Path) -> None:
    run_restore(restore_of(table, 4))
    for batch in (4, 5, 6):
        write(table, batch)
    run_restore(restore_of(table, 5))
    assert batches(table) == [0, 1, 2, 3, 4]
    for batch in (5, 6, 7):
        write(table, batch)
    step = restore_of(table, 2)  # before the version that the first rewind restored
    assert step.to_version == 1
    run_restore(step)
    assert (batches(table), newest(table)) == ([0, 1], 1)


def test_batches_under_an_older_id_of_the_query(table: Path) -> None:
    DeltaTable(table).restore(2)  # as Spark does it; then the query got a new id
    for batch in (3, 4):
        write(table, batch, NEW)
    step = restore_of(table, 2, QUERY, NEW)
    assert (step.app_id, step.to_version) == (NEW, 1)
    run_restore(step)
    assert (batches(table), newest(table, NEW)) == ([0, 1], 1)
    undo_restore(step)
    assert (batches(table), newest(table, NEW)) == ([0, 1, 2, 3, 4], 4)


def test_a_replay_that_would_duplicate_rows_is_refused(table: Path) -> None:
    replay = replay_of(DeltaAddress(str(table)), [QUERY, NEW], 3)
    assert replay.blocked is not None
    assert "twice" in replay.blocked
    run_restore(restore_of(table, 3, QUERY, NEW))
    assert batches(table) == [0, 1, 2]
    assert newest(table, NEW) is None


def test_duplicated_rows_are_removed_by_a_restore(table: Path) -> None:
    for batch in (3, 4):
        write(table, batch, NEW)
    run_restore(restore_of(table, 3, QUERY, NEW))
    assert batches(table) == [0, 1, 2]


def test_a_table_that_spark_has_restored_only_has_to_forget(table: Path) -> None:
    DeltaTable(table).restore(2)
    step = restore_of(table, 3)
    assert step.from_version == step.to_version == 6
    for _ in range(2):
        run_restore(step)
    assert (batches(table), newest(table), DeltaTable(table).version()) == ([0, 1, 2], 2, 7)
    undo_restore(step)
    assert (batches(table), newest(table)) == ([0, 1, 2], 5)


def test_a_new_id_is_the_users_own_way(table: Path) -> None:
    sink = DeltaAddress(str(table))
    replay = replay_of(sink, [QUERY], 3, new_query_id=True)
    assert replay.blocked is None
    assert "twice" in replay.text
    DeltaTable(table).restore(2)
    replay = replay_of(sink, [QUERY], 3, new_query_id=True)
    assert replay.blocked is None
    assert "twice" not in replay.text


def test_compaction_in_between_is_no_harm(table: Path) -> None:
    DeltaTable(table).optimize.compact()
    write(table, 6)
    step = restore_of(table, 3)
    run_restore(step)
    assert batches(table) == [0, 1, 2]
    write_deltalake(table, pa.table({"part": ["p 0"], "batch": [9]}), mode="append")
    DeltaTable(table).optimize.compact()
    with pytest.raises(CheckpointError, match=r"version 9 \(WRITE\)"):
        undo_restore(step)


def test_compaction_since_a_restore_does_not_hinder_its_undoing(table: Path) -> None:
    step = restore_of(table, 5)
    run_restore(step)
    DeltaTable(table).optimize.compact()
    undo_restore(step)
    assert batches(table) == [0, 1, 2, 3, 4, 5]


def test_a_function_that_writes_with_its_own_app_id(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for batch in range(4):
        write(table, batch, "my-app")
    replay = replay_of(DeltaAddress(str(table)), [QUERY], 2)
    assert replay.restore is None
    assert "txnAppId=" in str(replay.remedy)
    assert "Check that this is the query's table" in str(replay.blocked)
    step = replay_of(parse_sink(f"delta:{table}?txnAppId=my-app"), [QUERY], 2).restore
    assert isinstance(step, RestoreTable)
    run_restore(step)
    assert (batches(table), newest(table, "my-app")) == ([0, 1], 1)


def test_a_commit_that_says_nothing_of_itself_shifts_no_version(table: Path) -> None:
    path = table / "_delta_log" / f"{3:020}.json"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "commitInfo" not in line))
    assert restore_of(table, 2).to_version == 1
    assert [commit.version for commit in DeltaLog(str(table)).lineage(5)] == [5, 4, 3, 2, 1, 0]


# --- Delta: refused ---------------------------------------------------------------------------------------------------


def test_other_writers_are_not_undone(table: Path) -> None:
    write(table, 99, app_id=None)
    assert "version 6 (WRITE)" in refusal(table, 3)
    write(table, 6)
    assert "version 6 (WRITE)" in refusal(table, 3)
    run_restore(restore_of(table, 6))  # what came before the batch stays
    assert batches(table) == [0, 1, 2, 3, 4, 5, 99]
    assert replay_of(DeltaAddress(str(table)), [QUERY], 3).new_query_id


def test_a_restore_to_a_time_does_not_record_its_version(table: Path) -> None:
    DeltaTable(table).restore(3)
    path = table / "_delta_log" / f"{6:020}.json"
    path.write_text(path.read_text().replace('{"version":"3"}', '{"version":null,"timestamp":"2025-09-04 00:00:00"}'))
    assert "version 6 (RESTORE)" in refusal(table, 2)


def test_a_table_that_moved_on_since_the_plan(table: Path) -> None:
    step = restore_of(table, 3)
    write(table, 6)
    with pytest.raises(CheckpointError, match=r"version 5 when the rewind was planned, and is now at version 6"):
        run_restore(step)
    assert batches(table) == [0, 1, 2, 3, 4, 5, 6]


def test_a_concurrent_writer_stops_a_restore(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [restore_of(table, 3), restore_of(table, 0)]

    def late(location: str) -> DeltaTable:
        opened = open_table(location)
        write(table, 99, app_id=None)
        return opened

    for step in steps:
        monkeypatch.setattr("respool.delta.restore.open_table", late)
        with pytest.raises(CheckpointError, match="could not be restored"):
            run_restore(replace(step, from_version=DeltaTable(table).version()))
        monkeypatch.undo()
    assert batches(table) == [0, 1, 2, 3, 4, 5, 99, 99]
    assert newest(table) == 5


def test_a_table_that_was_written_to_since_its_restore(table: Path) -> None:
    step = restore_of(table, 3)
    run_restore(step)
    write(table, 3)
    for act in (require_undoable, undo_restore):
        with pytest.raises(CheckpointError, match=r"has changed since it was restored: version 7 \(WRITE\)"):
            act(step)
    assert batches(table) == [0, 1, 2, 3]


def test_a_log_that_was_cleaned(table: Path) -> None:
    DeltaTable(table).create_checkpoint()
    for version in range(4):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    assert "no longer shows at which version batch 1 was written" in refusal(table, 2)
    assert "version 3 can no longer be read" in refusal(table, 4)


def test_files_that_were_vacuumed(table: Path) -> None:
    dt = DeltaTable(table)
    dt.optimize.compact()
    assert dt.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    remedy = refusal(table, 3)
    assert "Files of its version 2 are gone, as after a VACUUM" in remedy
    assert "new table" in remedy


@pytest.mark.parametrize(
    ("features", "first_batch"), [(["rowTracking", "domainMetadata"], 3), (["identityColumns"], 0), (["clustering"], 4)]
)
def test_a_table_that_cannot_be_written_without_spark(table: Path, features: list[str], first_batch: int) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    info = {"timestamp": 0, "operation": "OPTIMIZE"}
    (table / "_delta_log" / f"{6:020}.json").write_text(
        json.dumps({"commitInfo": info}) + "\n" + json.dumps({"protocol": protocol}) + "\n"
    )
    remedy = refusal(table, first_batch)
    assert features[0].lower() in remedy.lower() or "clustered" in remedy.lower()
    assert "--new-query-id" in remedy
    assert ("RESTORE TABLE … TO VERSION AS OF" in remedy) == (first_batch > 0)


def test_a_table_that_only_grows_cannot_be_emptied(tmp_path: Path) -> None:
    table = tmp_path / "table"
    noted = CommitProperties(app_transactions=[Transaction(QUERY, 0)])
    frame = pa.table({"batch": [0]})
    write_deltalake(table, frame, commit_properties=noted, configuration={"delta.appendOnly": "true"})
    assert "append-only" in refusal(table, 0)


@pytest.mark.parametrize("scheme", ["", "file://", "file:"])
def test_what_is_no_table(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder", "nowhere"):
        with pytest.raises(CheckpointError, match="is not a Delta table"):
            replay_of(DeltaAddress(f"{scheme}{tmp_path}/{name}"), [QUERY], 3)
    assert not (tmp_path / "nowhere").exists()


def test_a_table_by_a_file_url(table: Path) -> None:
    replay = replay_of(DeltaAddress(f"file://{table}"), [QUERY], 3)
    assert isinstance(replay.restore, RestoreTable)
    run_restore(replay.restore)
    assert batches(table) == [0, 1, 2]


def test_an_unknown_filesystem_is_an_error_of_one_line() -> None:
    with pytest.raises(CheckpointError, match="abc") as error:
        replay_of(DeltaAddress("abc://bucket/table"), [QUERY], 3)
    assert "\n" not in str(error.value)


def test_a_query_without_an_id(table: Path) -> None:
    with pytest.raises(CheckpointError, match="id is lost"):
        replay_of(DeltaAddress(str(table)), [], 3)


def test_a_restore_that_fails_says_what_to_do(table: Path) -> None:
    step = replace(restore_of(table, 3), to_version=77)
    with pytest.raises(CheckpointError, match="respool checkpoint undo"):
        run_restore(step)
    assert DeltaTable(table).version() == 5


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("then", ["rewind", "undo"])
def test_a_rewind_that_is_cut_off_at_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool, then: str
) -> None:
    checkpoint, table = unpack(tmp_path, "rocksdb"), tmp_path / "table"
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    for batch in (11, 12, 13):
        write(table, batch, query)

    def command(*words: str) -> None:
        CliRunner().invoke(app, ["checkpoint", *words, "--yes"], catch_exceptions=False)

    def cut(step: RestoreTable) -> None:
        if done:
            run_restore(step)
        raise KeyboardInterrupt

    flags = ("--stopped", "--allow-data-loss", "--sink", f"delta:{table}", "--restore-sink")
    rewind = ("rewind", str(checkpoint), "--to-batch", "12", *flags)
    with monkeypatch.context() as broken:
        broken.setattr("respool.delta.restore.run_restore", cut)
        command(*rewind)
    assert DeltaTable(table).version() == (3 if done else 2)
    assert (checkpoint / "_respool" / "pending.json").exists()
    command(*(rewind if then == "rewind" else ("undo", str(checkpoint))))
    assert not (checkpoint / "_respool" / "pending.json").exists()
    expected = ([11], 11) if then == "rewind" else ([11, 12, 13], 13)
    assert (batches(table), newest(table, query)) == expected
    assert (checkpoint / "offsets" / "13").exists() == (then == "undo")


# --- files ------------------------------------------------------------------------------------------------------------

Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Makes the folder of a file sink as Spark leaves it: one file for each batch, `compact` every so often."""

    def make(newest: int, every: int = 10, named: str | None = None, partition: str = "", crc: bool = False) -> Path:
        out = tmp_path / "out put"
        log = out / "_spark_metadata"
        log.mkdir(parents=True)
        lines: list[str] = []
        for batch in range(newest + 1):
            name = f"{partition}part-00000-{batch:04}.parquet"
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_text(str(batch))
            url = (named or f"file://{out}") + f"/{name}"
            entry = json.dumps({"path": url.replace("%", "%25").replace(" ", "%20"), "size": 1, "action": "add"})
            lines.append(entry)
            compact = (batch + 1) % every == 0
            path = log / (f"{batch}.compact" if compact else str(batch))
            path.write_text("\n".join(["v1", *(lines if compact else [entry])]))
            if crc:
                for file in (path, out / name):
                    file.with_name(f".{file.name}.crc").write_text("crc")
        return out

    return make


def moving(out: Path, first_batch: int) -> list[str]:
    replay = replay_of(FileAddress(str(out)), [], first_batch)
    assert replay.blocked
    assert replay.restore is not None, replay.remedy
    assert not isinstance(replay.restore, RestoreTable)
    assert replay.restore.folder == str(out)
    return list(replay.restore.files)


def test_a_file_sink_without_later_batches(folder: Folder) -> None:
    assert replay_of(FileAddress(str(folder(4))), [], 5).blocked is None


def test_a_file_sinks_log_moves_before_its_files_the_newest_first(folder: Folder) -> None:
    assert moving(folder(4), 3) == [
        "_spark_metadata/4",
        "_spark_metadata/3",
        "part-00000-0003.parquet",
        "part-00000-0004.parquet",
    ]


def test_checksums_on_a_local_disk_follow_their_files(folder: Folder) -> None:
    files = moving(folder(1, crc=True), 1)
    assert files[:2] == ["_spark_metadata/1", "_spark_metadata/.1.crc"]
    assert files[2:] == ["part-00000-0001.parquet", ".part-00000-0001.parquet.crc"]


@pytest.mark.parametrize(("first", "files"), [(0, 24), (9, 15), (10, 14), (11, 13), (19, 5), (20, 4), (23, 1)])
def test_a_compacted_log_goes_back_to_any_batch(folder: Folder, first: int, files: int) -> None:
    moved = moving(folder(23), first)
    assert [path for path in moved if "part-" in path] == [f"part-00000-{n:04}.parquet" for n in range(first, 24)]
    assert len([path for path in moved if "_spark_metadata" in path]) == files


def test_a_log_whose_entries_spark_has_deleted(folder: Folder) -> None:
    out = folder(23)
    for number in range(19):
        (out / "_spark_metadata" / (f"{number}.compact" if number == 9 else str(number))).unlink()
    replay = replay_of(FileAddress(str(out)), [], 12)
    assert replay.restore is None
    assert "Rewind to batch 20 or a later one" in str(replay.remedy)
    assert "new folder" in str(replay.remedy)
    assert moving(out, 20)[-1] == "part-00000-0023.parquet"


def test_a_log_with_a_hole(folder: Folder) -> None:
    out = folder(4)
    (out / "_spark_metadata" / "2").unlink()
    assert replay_of(FileAddress(str(out)), [], 4).restore is None
    assert replay_of(FileAddress(str(out)), [], 1).restore is None


def test_partitions_with_odd_names(folder: Folder) -> None:
    assert moving(folder(3, partition="k=a %3A b/"), 3)[-1] == "k=a %3A b/part-00000-0003.parquet"


@pytest.mark.parametrize("named", ["file:///elsewhere/out put", "s3a://bucket/a/out put", "hdfs://name:8020/out put"])
def test_a_folder_that_was_moved_since(folder: Folder, named: str) -> None:
    assert moving(folder(3, named=named, partition="k=1/"), 3)[-1] == "k=1/part-00000-0003.parquet"


def test_files_that_are_not_in_the_folder_stay(folder: Folder) -> None:
    out = folder(3)
    (out / "part-00000-0003.parquet").unlink()
    replay = replay_of(FileAddress(str(out)), [], 2)
    assert "1 files named in its log are not in the folder" in replay.text
    assert moving(out, 2)[-1] == "part-00000-0002.parquet"


def test_a_folder_reached_through_a_link(folder: Folder, tmp_path: Path) -> None:
    os.symlink(folder(3), tmp_path / "link")
    assert moving(tmp_path / "link", 3)[-1] == "part-00000-0003.parquet"


def test_what_is_no_file_sink(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no _spark_metadata"):
        replay_of(FileAddress(str(tmp_path)), [], 3)
    with pytest.raises(CheckpointError, match="There is no folder"):
        replay_of(FileAddress(str(tmp_path / "nowhere")), [], 3)
