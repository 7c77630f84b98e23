"""What the tests of verify share: the damages of golden checkpoints, and what verify must report of each."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest

from respool.checkpoint.journal import apply
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.run import verify
from respool.findings import CheckResult, Finding
from respool.storage.local import LocalReader, LocalWriter
from support import checkpoints

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
STORE = "state/0/0"


@dataclass(frozen=True)
class Damage:
    """A damage, and what verify must report of it.

    Attributes:
        name: What it is.
        kind: The golden checkpoint that it happens to.
        cause: Causes it.
        mentions: What the finding has to name: the path, mostly.
        remedy: What its remedy has to name; with `to`, in addition to the command.
        to: The batch of the rewind that it has to name; the rewind then mends it.
        status: How bad it is.
        version: The Spark that wrote the checkpoint.
    """

    name: str
    kind: str
    cause: Callable[[Path], object]
    mentions: str
    remedy: str = ""
    to: int | None = None
    status: str = "broken"
    version: str = checkpoints.NEWEST


def look(checkpoint: Path, deep: bool = True) -> tuple[CheckResult, ...]:
    return verify(CheckpointSnapshot(LocalReader(checkpoint)), deep)


def findings(checks: tuple[CheckResult, ...], status: str) -> list[Finding]:
    return [finding for check in checks for finding in check.findings if finding.status == status]


def rewound(checkpoint: Path, batch: int, new_query_id: bool = False) -> None:
    files = LocalWriter(checkpoint)
    # The input files of golden checkpoints are gone.
    request = RewindRequest(
        ToBatch(batch), new_query_id=new_query_id, allow_data_loss=True, words=f"--to-batch {batch}"
    )
    plan = plan_rewind(CheckpointSnapshot(files), request, RewindContext(now=NOW, ours=True))
    assert not plan.refusals
    apply.apply(plan.journal, files)


def command_of(remedy: str, checkpoint: Path) -> tuple[int, bool] | None:
    """The rewind that a remedy names: its batch, and whether it gives a new id."""
    match = re.search(
        rf"respool checkpoint rewind {re.escape(str(checkpoint))} --to-batch (\d+)( --new-query-id)?", remedy
    )
    return (int(match[1]), bool(match[2])) if match else None


def cut_off(checkpoint: Path) -> None:
    class CutOff(LocalWriter):
        moved = 0

        def move(self, source: str, target: str) -> None:
            self.moved += 1
            if self.moved > 3:
                raise KeyboardInterrupt
            super().move(source, target)

    request = RewindRequest(ToBatch(9), allow_data_loss=True, words="--to-batch 9")
    journal = plan_rewind(
        CheckpointSnapshot(LocalReader(checkpoint)), request, RewindContext(now=NOW, ours=True)
    ).journal
    with pytest.raises(KeyboardInterrupt):
        apply.apply(journal, CutOff(checkpoint))


def assert_named_and_mended(damage: Damage, copy: Callable[..., Path]) -> None:
    """Verify names a damage and a remedy; a rewind that is the remedy leaves a sound checkpoint."""
    checkpoint = copy(damage.kind, damage.version)
    damage.cause(checkpoint)
    checks = look(checkpoint)
    named = [finding for finding in findings(checks, damage.status) if damage.mentions in finding.what]
    assert len(named) == 1, checks
    assert damage.remedy in named[0].remedy
    if damage.status == "note":
        assert not findings(checks, "broken")
    if damage.to is None:
        return
    command = command_of(named[0].remedy, checkpoint)
    assert command is not None, named[0].remedy
    assert command[0] == damage.to
    rewound(checkpoint, *command)
    after = look(checkpoint)
    assert not findings(after, "broken")
    assert not [finding for finding in findings(after, "note") if damage.mentions in finding.what]
    assert CheckpointSnapshot(LocalReader(checkpoint)).next_batch == damage.to
