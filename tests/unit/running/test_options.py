"""How many partitions the state of a new query gets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from respool.running import options
from respool.visits.counts import visit_counts


@pytest.mark.parametrize(
    ("cores", "topic_partitions", "chosen"),
    [
        (2, 2, 2),  # what runs at once
        (8, 48, 8),
        (100, 4, 8),  # a small topic does not need all of a large cluster
        (1, 1, 1),
        (None, 6, 12),  # a cluster that grows with its work
    ],
)
def test_as_many_as_tasks_run_at_once_and_at_most_twice_those_of_the_topic(
    cores: int | None, topic_partitions: int, chosen: int
) -> None:
    assert options.suggested_partitions(cores, topic_partitions) == chosen


class FakeSession:
    """An application with settings."""

    def __init__(self, **conf: str) -> None:
        self.sparkContext = self
        self._settings = conf

    def getConf(self) -> "FakeSession":
        return self

    def contains(self, name: str) -> bool:
        return name in self._settings


def is_given(folder: Path, spark: dict[str, str] | None = None, **of_pipeline: str) -> bool:
    session: Any = FakeSession(**(spark or {}))
    return options.has_partitions(session, replace(visit_counts(), spark=of_pipeline), str(folder))


def test_a_setting_of_the_user_or_of_the_pipeline_wins(tmp_path: Path) -> None:
    assert not is_given(tmp_path)
    assert is_given(tmp_path, {options.PARTITIONS: "64"})
    assert is_given(tmp_path, None, **{options.PARTITIONS: "64"})


def test_a_checkpoint_with_a_batch_keeps_its_number(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    assert not is_given(tmp_path)  # Spark has planned no batch yet
    (tmp_path / "offsets" / "0").write_text("v1\n")
    assert is_given(tmp_path)


def test_the_choice_is_explained() -> None:
    assert options.partitions_note(visit_counts(topic="in"), 2, 2, 4) == (
        "visit-counts: its state is in 2 partitions (2 cores, 4 partitions of in). The checkpoint keeps this number; "
        "to choose another, set spark.sql.shuffle.partitions before the first start."
    )
