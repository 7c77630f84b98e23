"""The log of a source of files: what is kept of it, what is read again, and which input files are missing."""

import json
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest

from respool.checkpoint.planning import sources
from respool.checkpoint.planning.sources import Inputs, Missing, SourceLogTrim, find_missing, inputs, trim
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError
from respool.storage.open import open_writer
from support.small_checkpoint import written


def entry(*numbers: int) -> str:
    lines = [json.dumps({"path": f"file:///in/{number}", "timestamp": 0, "batchId": number}) for number in numbers]
    return "\n".join(["v1", *lines])


def log(root: Path, *numbers: int, compact: int | None = None, **more: str) -> CheckpointSnapshot:
    files = {f"sources/0/{number}": entry(number) for number in numbers}
    if compact is not None:
        files[f"sources/0/{compact}.compact"] = entry(*range(compact + 1))
    return written(root, files | {f"sources/0/{name.lstrip('_')}": text for name, text in more.items()})


@pytest.mark.parametrize(
    ("last", "names"),
    [(2, ["3"]), (0, ["3", "2", "1"]), (-1, ["3", "2", "1", "0"]), (3, []), (9, [])],
)
def test_later_entries_move_the_newest_first(tmp_path: Path, last: int, names: list[str]) -> None:
    checkpoint = log(tmp_path, 0, 1, 2, 3)
    assert trim(checkpoint, "0", last) == SourceLogTrim(tuple(f"sources/0/{name}" for name in names), False)


def test_a_log_stays_whole_when_its_earlier_entries_are_only_in_a_later_compact_file(tmp_path: Path) -> None:
    checkpoint = log(tmp_path, 3, 4, 11, compact=4)
    assert trim(checkpoint, "0", 2) == SourceLogTrim((), True)
    assert trim(checkpoint, "0", 4) == SourceLogTrim(("sources/0/11",), False)
    emptied = trim(checkpoint, "0", -1)
    assert set(emptied.moves) == {f"sources/0/{name}" for name in ("11", "4", "4.compact", "3")}
    assert not emptied.kept_whole


def test_a_compact_file_serves_for_all_entries_up_to_it(tmp_path: Path) -> None:
    checkpoint = log(tmp_path, 3, 4, compact=2)
    assert trim(checkpoint, "0", 3) == SourceLogTrim(("sources/0/4",), False)
    assert trim(checkpoint, "0", 2) == SourceLogTrim(("sources/0/4", "sources/0/3"), False)


def test_an_incomplete_log_without_later_entries_is_as_it_is(tmp_path: Path) -> None:
    checkpoint = log(tmp_path, 2, 3)
    assert trim(checkpoint, "0", 3) == SourceLogTrim((), False)
    assert trim(checkpoint, "0", 2) == SourceLogTrim((), True)
    assert trim(checkpoint, "0", 0) == SourceLogTrim((), True)
    assert trim(checkpoint, "7", 2) == SourceLogTrim((), False)


def test_entry_0_alone_is_enough(tmp_path: Path) -> None:
    assert trim(log(tmp_path, 0, 1), "0", 0) == SourceLogTrim(("sources/0/1",), False)


def test_other_names_are_not_of_the_log(tmp_path: Path) -> None:
    checkpoint = log(tmp_path, 0, _x="", _5_tmp="")
    assert trim(checkpoint, "0", -1) == SourceLogTrim(("sources/0/0",), False)


def test_input_files_after_an_entry_are_named_in_the_order_of_the_log(tmp_path: Path) -> None:
    checkpoint = log(tmp_path, 0, 1, 2, 10, compact=9)
    assert inputs(checkpoint, "0", 8, 10) == Inputs(("file:///in/9", "file:///in/10"), False)
    assert inputs(checkpoint, "0", 10, 10) == Inputs((), False)
    assert inputs(checkpoint, "0", 9, 10) == Inputs(("file:///in/10",), False)
    assert inputs(checkpoint, "0", -1, 10).paths[:1] == ("file:///in/0",)
    assert len(inputs(checkpoint, "0", -1, 10).paths) == 11


def test_a_log_that_does_not_name_all_is_incomplete(tmp_path: Path) -> None:
    checkpoint = log(tmp_path, 0, 1, 3)
    assert inputs(checkpoint, "0", 0, 3) == Inputs(("file:///in/1", "file:///in/3"), True)
    assert inputs(checkpoint, "0", 2, 3) == Inputs(("file:///in/3",), False)
    assert inputs(checkpoint, "0", 1, 3) == Inputs(("file:///in/3",), True)
    assert inputs(checkpoint, "0", 2, 4) == Inputs(("file:///in/3",), True)
    assert inputs(checkpoint, "0", 0, 1).unknown is False


@pytest.mark.parametrize(
    "text", ["", "v1\n{", "v1\n[]", 'v1\n{"path":"a","batchId":"1"}', 'v1\n{"path":"a"}', 'v1\n{"path":7,"batchId":1}']
)
def test_a_damaged_entry_makes_the_log_incomplete_and_hides_no_other(tmp_path: Path, text: str) -> None:
    checkpoint = log(tmp_path, 0, 2, _1=text)
    assert inputs(checkpoint, "0", -1, 2) == Inputs(("file:///in/0", "file:///in/2"), True)


def test_an_entry_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = log(tmp_path, 0, 1)
    monkeypatch.setattr(checkpoint.files, "read_many", lambda paths: {path: PermissionError("no") for path in paths})
    with pytest.raises(CheckpointError, match="sources/0/1 cannot be read: no"):
        inputs(checkpoint, "0", 0, 1)


def test_an_entry_that_was_compacted_meanwhile_is_left_to_the_compact_file(tmp_path: Path) -> None:
    checkpoint = log(tmp_path, 0, 1, compact=1)
    (tmp_path / "sources" / "0" / "0").unlink()
    result = inputs(checkpoint, "0", -1, 1)
    assert sorted(result.paths) == ["file:///in/0", "file:///in/1"]
    assert not result.unknown


# Input files


def test_local_files_are_looked_up_by_path_and_by_address(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("")
    there = [str(tmp_path / "a"), f"file://{quote(str(tmp_path / 'a b'))}"]
    (tmp_path / "a").write_text("")
    gone = [str(tmp_path / "c"), f"file://{tmp_path}/d"]
    assert find_missing([*there, *gone, "hdfs://host/x"]) == Missing(tuple(gone), ("hdfs://host/x",))


def test_files_on_a_store_are_looked_up_by_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"memory://{uuid4().hex}"
    open_writer(f"{root}/in").replace("a b", b"")
    there, gone, elsewhere, further = (f"{root}/{path}" for path in ("in/a%20b", "in/c", "other/d", "third/e"))
    assert find_missing([there, gone]) == Missing((gone,), ())
    assert find_missing([there, gone, elsewhere]) == Missing((gone, elsewhere), ())
    monkeypatch.setattr(sources, "_MOST_FOLDERS", 1)
    assert find_missing([there, gone, elsewhere, further]) == Missing((gone,), (elsewhere, further))


def test_a_store_that_does_not_answer_leaves_its_files_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise CheckpointError("no credentials")

    monkeypatch.setattr(sources, "open_reader", fail)
    assert find_missing(["s3://bucket/in/a"]) == Missing((), ("s3://bucket/in/a",))
