"""Which files a rewind moves aside, in which order."""

from pathlib import Path

import pytest

from respool.checkpoint.planning.rewind import file_label, moves
from respool.checkpoint.planning.sources import SourceLogTrim
from respool.checkpoint.snapshot import CheckpointSnapshot, with_companions
from support import small_checkpoint

ASIDE = "_respool/aside/ID/"


def moved(checkpoint: CheckpointSnapshot, batch: int, same_range: bool = False, **damaged: str) -> list[str]:
    result = moves(checkpoint, batch, same_range, damaged, {}, "ID")
    assert all(move.target == ASIDE + move.source for move in result)
    return [move.source for move in result]


def test_state_goes_before_commits_before_offsets_and_the_newest_first(tmp_path: Path) -> None:
    more = {
        "state/0/0/3.snapshot": "",
        "state/0/0/4.snapshot": "",
        "state/0/0/2.snapshot": "",
        "state/0/0/odd.delta": "",
        "state/0/_metadata/v2/0": "",
        "state/0/_metadata/v2/2": "",
        "state/0/_metadata/v2/4": "",
    }
    checkpoint = small_checkpoint.kafka(tmp_path, more=more)
    assert moved(checkpoint, 2) == [
        "state/0/0/odd.delta",
        "state/0/0/4.snapshot",
        "state/0/0/3.snapshot",
        "state/0/0/5.delta",
        "state/0/0/4.delta",
        "state/0/0/3.delta",
        "state/0/_metadata/v2/4",
        "state/0/_metadata/v2/2",
        "commits/4",
        "commits/3",
        "commits/2",
        "offsets/4",
        "offsets/3",
        "offsets/2",
    ]


def test_a_batch_that_runs_as_it_was_keeps_its_offsets(tmp_path: Path) -> None:
    result = moved(small_checkpoint.kafka(tmp_path), 3, same_range=True)
    assert [path for path in result if path.startswith("offsets/")] == ["offsets/4"]
    assert [path for path in result if path.startswith("commits/")] == ["commits/4", "commits/3"]


def test_starting_over_removes_all_state_and_keeps_the_id(tmp_path: Path) -> None:
    more = {
        "state/_note": "",
        "state/0/_metadata/metadata": "",
        "state/0/_metadata/v2/0": "",
        "sources/0/0": "\0v1\n{}",
    }
    checkpoint = small_checkpoint.kafka(tmp_path, batches=2, more=more)
    result = moved(checkpoint, 0)
    assert sorted(result[:5]) == [
        "state/0/0/1.delta",
        "state/0/0/2.delta",
        "state/0/_metadata/metadata",
        "state/0/_metadata/v2/0",
        "state/_note",
    ]
    assert result[5:] == ["commits/1", "commits/0", "offsets/1", "offsets/0"]


def test_what_a_run_wrote_at_batch_1_goes_when_batch_1_runs_again(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, 2, more={"state/0/_metadata/v2/0": "", "state/0/_metadata/v2/1": ""})
    result = moved(checkpoint, 1)
    assert "state/0/_metadata/v2/1" in result
    assert "state/0/_metadata/v2/0" not in result
    assert "state/0/0/1.delta" not in result


def test_sizes_and_what_a_log_of_files_gives_up(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, 1, more={"sources/0/7": "1234567", "sources/1/8": "12345678"})
    trims = {"0": SourceLogTrim(("sources/0/7",), False), "1": SourceLogTrim(("sources/1/8",), False)}
    result = moves(checkpoint, 1, False, {}, trims, "ID")
    assert [(move.source, move.size) for move in result] == [
        ("sources/0/7", 7),
        ("sources/1/8", 8),
    ]


def test_damaged_files_move_and_what_is_gone_does_not(tmp_path: Path) -> None:
    checkpoint = small_checkpoint.kafka(tmp_path, 2, more={"state/0/0/1.snapshot": ""})
    result = moved(checkpoint, 2, False, **{"state/0/0/1.snapshot": "damaged", "state/0/0/9.snapshot": "gone"})
    assert result == ["state/0/0/1.snapshot"]


def test_checksum_files_go_with_their_files(tmp_path: Path) -> None:
    more = {".metadata.crc": "", "state/0/0/.1.delta.crc": "", "state/0/0/1.delta.crc": "", "commits/.0.crc": ""}
    checkpoint = small_checkpoint.kafka(tmp_path, 1, more=more)
    paths = ["metadata", "state/0/0/1.delta", "commits/0", "offsets/0", "nowhere/0"]
    assert with_companions(checkpoint, paths) == [
        "metadata",
        ".metadata.crc",
        "state/0/0/1.delta",
        "state/0/0/.1.delta.crc",
        "state/0/0/1.delta.crc",
        "commits/0",
        "commits/.0.crc",
        "offsets/0",
        "nowhere/0",
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("offsets/3", "offsets"),
        ("commits/3", "commits"),
        ("commits/.3.crc", "checksums"),
        ("state/0/0/3.zip.crc", "checksums"),
        ("sources/0/3.compact", "source log"),
        ("state/0/0/3_a.zip", "zips"),
        ("state/0/0/3.changelog", "changelogs"),
        ("state/0/0/left/3.delta", "deltas"),
        ("state/0/0/3.snapshot", "snapshots"),
        ("state/0/0/SSTs/000001-a.sst", "SSTs"),
        ("state/0/_metadata/metadata", "state metadata"),
        ("state/0/_metadata/v2/3", "state metadata"),
        ("state/0/0/3.x.delta", "deltas"),
    ],
)
def test_files_are_counted_by_kind(path: str, expected: str) -> None:
    assert file_label(path) == expected
