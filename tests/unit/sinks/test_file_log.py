"""The log of a folder whose first batch is not 0. No JVM."""

from pathlib import Path

import pytest

from respool.sinks.file_replay import fill_log, newest_batch


def log(folder: Path) -> dict[str, str]:
    names = (path for path in (folder / "_spark_metadata").iterdir() if not path.name.startswith("."))
    return {path.name: path.read_text() for path in names}


@pytest.mark.parametrize(
    ("next_batch", "names"),
    [
        (0, set()),
        (3, {"0", "1", "2"}),
        (9, {str(batch) for batch in range(9)}),
        (10, {"9.compact"}),
        (25, {"19.compact", "20", "21", "22", "23", "24"}),
    ],
)
def test_a_new_log_has_the_entries_that_spark_compacts(tmp_path: Path, next_batch: int, names: set[str]) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    fill_log(str(tmp_path), next_batch, 10)
    assert log(tmp_path) == dict.fromkeys(names, "v1")


def test_existing_entries_stay(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / "9.compact").write_text("v1\n{}")
    (tmp_path / "_spark_metadata" / "11").write_text("v1\n{}")
    fill_log(str(tmp_path), 13, 10)
    assert log(tmp_path) == {"9.compact": "v1\n{}", "10": "v1", "11": "v1\n{}", "12": "v1"}


def test_a_folder_without_a_log_has_no_batch(tmp_path: Path) -> None:
    assert newest_batch(str(tmp_path)) == newest_batch(str(tmp_path / "missing")) == -1
