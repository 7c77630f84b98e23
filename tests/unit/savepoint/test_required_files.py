"""Which files a savepoint takes along: what a start after its batch needs, no more and no less."""

import json
import re
from pathlib import Path

import pytest

from respool.errors import CheckpointError
from respool.savepoint.copying import required_files
from support import small_checkpoint
from support.small_checkpoint import commit, offsets, rocksdb_zip, written


def test_the_logs_of_the_batch_and_the_one_before_and_the_state_that_it_left(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, more={"commits/.2.crc": "", "state/0/0/.2.delta.crc": ""})
    assert required_files(checkpoint, 2) == [
        "metadata",
        "state/0/0/1.delta",
        "state/0/0/2.delta",
        "state/0/0/.2.delta.crc",
        "state/0/0/3.delta",
        "offsets/1",
        "offsets/2",
        "commits/2",
        "commits/.2.crc",
    ]


def test_the_first_batch_has_none_before_it(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path)
    assert required_files(checkpoint, 0) == ["metadata", "state/0/0/1.delta", "offsets/0", "commits/0"]
    assert required_files(checkpoint, 1)[-3:] == ["offsets/0", "offsets/1", "commits/1"]


def test_what_later_runs_wrote_of_the_state_is_left_out(tmp_path: Path) -> None:
    runs = ["state/0/_metadata/v2/0", "state/0/_metadata/v2/2", "state/0/_metadata/v2/3"]
    schemas = [f"state/0/_stateSchema/default/{batch}_a" for batch in (0, 2, 3)]
    checkpoint = small_checkpoint.kafka(tmp_path, more=dict.fromkeys([*runs, *schemas], ""))
    result = required_files(checkpoint, 2)
    assert set(runs + schemas) & set(result) == {*runs[:2], *schemas[:2]}


def test_what_describes_the_state_comes_along_without_leftovers(tmp_path: Path) -> None:
    more = dict.fromkeys(
        [
            "state/0/_metadata/metadata",
            "state/0/0/_metadata/schema",
            "state/0/0/_metadata/.schema.crc",
            "state/0/0/_metadata/.schema.1.tmp",
            "state/0/0/_metadata/..schema.1.tmp.crc",
            "state/0/_metadata/.metadata.1.tmp",
            "other/_metadata/metadata",
            "state/0/0/9.delta",
        ],
        "",
    )
    checkpoint = small_checkpoint.kafka(tmp_path, 1, more=more)
    assert required_files(checkpoint, 0) == [
        "metadata",
        "state/0/0/_metadata/schema",
        "state/0/0/_metadata/.schema.crc",
        "state/0/_metadata/metadata",
        "state/0/0/1.delta",
        "offsets/0",
        "commits/0",
    ]


def test_a_snapshot_of_rocksdb_takes_its_tables_and_logs_along(tmp_path: Path) -> None:
    more: dict[str, str | bytes] = {
        "state/0/0/2.zip": rocksdb_zip({"000001-a.sst": 3}, ("1.log",)),
        "state/0/0/SSTs/000001-a.sst": "abc",
        "state/0/0/SSTs/000002-b.sst": "of a later one",
        "state/0/0/logs/1.log": "x",
        "state/0/0/4.zip": rocksdb_zip({}),
    }
    checkpoint = small_checkpoint.kafka(tmp_path, more=more)
    assert [path for path in required_files(checkpoint, 2) if path.startswith("state")] == [
        "state/0/0/2.zip",
        "state/0/0/3.delta",
        "state/0/0/SSTs/000001-a.sst",
        "state/0/0/logs/1.log",
    ]
    assert [path for path in required_files(checkpoint, 3) if path.startswith("state")] == ["state/0/0/4.zip"]


def test_a_snapshot_of_the_other_store_is_a_file_of_its_own(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, more={"state/0/0/2.snapshot": "bytes that are no zip"})
    assert [path for path in required_files(checkpoint, 2) if path.startswith("state")] == [
        "state/0/0/2.snapshot",
        "state/0/0/3.delta",
    ]


def test_logs_of_input_files_end_with_the_batch_and_other_sources_are_taken_whole(tmp_path: Path) -> None:
    def entry(number: int) -> str:
        return "v1\n" + json.dumps({"path": f"file:///in/{number}", "timestamp": 0, "batchId": number})

    files: dict[str, str | bytes] = {"metadata": '{"id":"a"}', "sources/2/0": '\0v1\n{"visits":{"0":0}}'}
    for number in range(4):
        files[f"sources/0/{number}"] = entry(number)
        files[f"sources/1/{number}"] = entry(number)
        files[f"commits/{number}"] = commit()
        kafka = {"visits": {"0": number}}
        files[f"offsets/{number}"] = offsets({"logOffset": number}, {"logOffset": number - 1}, kafka)
    files |= {"sources/0/.1.crc": "", "sources/0/.9.tmp": "", "sources/0/.3.crc": ""}
    result = required_files(written(tmp_path, files), 1)
    assert [path for path in result if path.startswith("sources")] == [
        "sources/0/0",
        "sources/0/1",
        "sources/0/.1.crc",
        "sources/1/0",
        "sources/2/0",
    ]


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("metadata", "has lost its file metadata"),
        ("offsets/1", "offsets/1 is not kept"),
        ("offsets/2", "offsets/2 is not kept"),
        ("commits/2", "commits/2 is not kept"),
        ("state/0/0/3.delta", "lacks version 3"),
    ],
)
def test_what_is_lost_is_named(tmp_path: Path, lost: str, message: str) -> None:
    small_checkpoint.kafka(tmp_path)
    (tmp_path / lost).unlink()
    with pytest.raises(CheckpointError, match=re.escape(message)):
        required_files(written(tmp_path, {}), 2)


@pytest.mark.parametrize("lost", ["offsets/0", "commits/1", "offsets/3", "commits/3", "state/0/0/4.delta"])
def test_what_is_not_needed_may_be_lost(tmp_path: Path, lost: str) -> None:
    small_checkpoint.kafka(tmp_path)
    (tmp_path / lost).unlink()
    assert lost not in required_files(written(tmp_path, {}), 2)
