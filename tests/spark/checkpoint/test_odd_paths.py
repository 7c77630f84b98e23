"""A checkpoint and its input in a folder whose name needs percent-encoding are read as Spark means them."""

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from respool.checkpoint.journal import apply
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.run import verify
from respool.operations.checkpoint import Checkpoint
from respool.settings import Settings
from respool.storage.local import LocalReader, LocalWriter
from support.queries import KINDS, run, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 4
KIND = {kind.name: kind for kind in KINDS}


@pytest.mark.parametrize("kind", ["hdfs", "join-families"])
def test_a_checkpoint_at_a_path_with_a_percent_sign_is_whole_and_can_be_rewound(
    spark: "SparkSession", tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "a%41 b"
    source = write_files(folder / "input", range(BATCHES))
    results = run(spark, KIND[kind], source, folder / "checkpoint", BATCHES - 1)
    checkpoint = CheckpointSnapshot(LocalReader(folder / "checkpoint"))
    assert [finding for check in verify(checkpoint) for finding in check.findings if finding.status == "broken"] == []
    request = RewindRequest(ToBatch(2), stopped=True)
    plan = plan_rewind(checkpoint, request, RewindContext(now=datetime.now(timezone.utc)))
    if kind == "hdfs":
        rows = Checkpoint(folder / "checkpoint", settings=Settings(home=tmp_path)).state(spark=spark)
        assert rows.total > 0
    assert plan.refusals == ()  # the input files are there
    apply.apply(plan.journal, LocalWriter(folder / "checkpoint"))
    again = run(spark, KIND[kind], source, folder / "checkpoint", BATCHES - 1)
    assert {batch: results[batch] for batch in again} == again
    assert set(again) >= {2, 3}
    after = verify(CheckpointSnapshot(LocalReader(folder / "checkpoint")))
    assert [finding for check in after for finding in check.findings if finding.status == "broken"] == []
