"""Verify names every kind of damage and what to do about it, and what it says to do mends it."""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.checkpoint.journal import apply, history
from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.run import verify
from respool.findings import CheckResult, Finding
from respool.storage.folder import FileInfo, FolderListing
from respool.storage.local import LocalReader, LocalWriter
from support import golden
from support.damages import crc_of, cut, edited, flipped, gone, one, settled, stale_crc, tables_of, written

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
STORE = "state/0/0"


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Golden checkpoints, each unpacked once; not to be changed."""
    folder = tmp_path_factory.mktemp("golden")

    @cache
    def unpacked(kind: str, version: str = golden.NEWEST) -> Path:
        return settled(golden.unpack(folder / version, kind, version))

    return unpacked


@pytest.fixture
def copy(originals: Callable[[str, str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Makes a golden checkpoint that may be changed."""

    def made(kind: str, version: str = golden.NEWEST) -> Path:
        target = tmp_path / "checkpoint"
        shutil.copytree(originals(kind, version), target)
        return settled(target)

    return made


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
    found = plan_rewind(CheckpointSnapshot(files), request, RewindContext(now=NOW, ours=True))
    assert not found.refusals
    apply.apply(found.journal, files)


def command_of(remedy: str, checkpoint: Path) -> tuple[int, bool] | None:
    """The rewind that a remedy names: its batch, and whether it gives a new id."""
    found = re.search(
        rf"respool checkpoint rewind {re.escape(str(checkpoint))} --to-batch (\d+)( --new-query-id)?", remedy
    )
    return (int(found[1]), bool(found[2])) if found else None


@pytest.mark.parametrize(
    ("version", "kind"), [(version, kind) for version in golden.versions() for kind in golden.kinds(version)]
)
def test_a_sound_checkpoint_is_clean(originals: Callable[[str, str], Path], version: str, kind: str) -> None:
    checks = look(originals(kind, version))
    assert not findings(checks, "broken")
    expected = {"async": ["async progress tracking"], "offsets-v2": ["partitions"], "named": ["partitions"]}
    for finding, word in zip(findings(checks, "note"), expected.get(kind, []), strict=True):
        assert word in finding.what


@pytest.mark.parametrize(
    "kind", ["hdfs", "session", "changelog", "ids-changelog", "join-families", "transform", "rocksdb"]
)
def test_a_sound_checkpoint_without_hidden_checksums_is_clean(copy: Callable[..., Path], kind: str) -> None:
    checkpoint = copy(kind)
    for path in checkpoint.rglob(".*.crc"):
        path.unlink()
    assert all(check.status == "ok" for check in look(checkpoint))


@dataclass(frozen=True)
class Damage:
    """A damage, and what verify has to say of it.

    Attributes:
        name: What it is.
        kind: The golden checkpoint that it happens to.
        cause: Causes it.
        told: What the finding has to name: the path, mostly.
        remedy: What its remedy has to name; with `to`, beside the command.
        to: The batch of the rewind that it has to name; the rewind then mends it.
        status: How bad it is.
        version: The Spark that wrote the checkpoint.
    """

    name: str
    kind: str
    cause: Callable[[Path], object]
    told: str
    remedy: str = ""
    to: int | None = None
    status: str = "broken"
    version: str = golden.NEWEST


def newest_table(checkpoint: Path) -> Path:
    """The SST file that only the newest zip needs."""
    others = {path for number in range(1, 14) for path in tables_of(checkpoint / STORE / f"{number}.zip")}
    return next(path for path in tables_of(checkpoint / STORE / "14.zip") if path not in others)


def _cut_off(checkpoint: Path) -> None:
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


def _two_sources(checkpoint: Path) -> None:
    path = checkpoint / "offsets/13"
    written(path, f"{path.read_text()}\n{path.read_text().splitlines()[2]}")


def _repartition_begun(checkpoint: Path) -> None:
    edited(checkpoint / "offsets/13", '"spark.sql.shuffle.partitions":"2"', '"spark.sql.shuffle.partitions":"3"')
    gone(checkpoint / "commits/13")


def _only_commits_left(checkpoint: Path) -> None:
    for path in (checkpoint / "offsets").iterdir():
        path.unlink()


def _offset_back(checkpoint: Path) -> None:
    path = checkpoint / "offsets/13"
    written(
        path, re.sub(r'("\d+":)(\d+)', lambda found: f"{found[1]}{int(found[2]) - 1000}", path.read_text(), count=1)
    )


def _no_newest_commits(checkpoint: Path) -> None:
    gone(checkpoint / "commits/12")
    gone(checkpoint / "commits/13")


def _as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


LOGS = [
    Damage("an empty offsets file", "hdfs", lambda c: written(c / "offsets/13", ""), "offsets/13 is damaged", to=13),
    Damage("garbage in offsets", "ids", lambda c: written(c / "offsets/13", b"\xff\0"), "offsets/13 is damaged", to=13),
    Damage(
        "offsets of an unknown version",
        "changelog",
        lambda c: edited(c / "offsets/13", "v1\n", "v9\n"),
        "offsets/13 has format version v9",
        "start the query with that Spark",
    ),
    Damage("predecessor missing", "hdfs", lambda c: gone(c / "offsets/12"), "offsets/12 is missing", to=12),
    Damage("predecessor empty", "rocksdb", lambda c: written(c / "offsets/12", ""), "offsets/12 is damaged", to=12),
    Damage(
        "an old offsets file empty",
        "hdfs",
        lambda c: written(c / "offsets/5", ""),
        "offsets/5 is damaged: it is empty. A start does not need it; batches 6 to 7 cannot be rewound to",
    ),
    Damage(
        "offsets missing in the middle", "hdfs", lambda c: gone(c / "offsets/5"), "offsets/5 is missing", status="note"
    ),
    Damage(
        "a commit missing in the middle",
        "join",
        lambda c: gone(c / "commits/7"),
        "commits/7 is missing",
        to=7,
        status="note",
    ),
    Damage(
        "the newest commit missing",
        "hdfs",
        lambda c: gone(c / "commits/13"),
        "Batch 13 is planned but not finished",
        status="note",
    ),
    Damage(
        "the two newest commits missing",
        "ids-changelog",
        _no_newest_commits,
        "commits/12 and commits/13 are missing at the end",
        to=12,
    ),
    Damage("an empty commit", "rocksdb", lambda c: written(c / "commits/13", ""), "commits/13 is damaged", to=13),
    Damage(
        "a commit beyond offsets",
        "changelog",
        lambda c: shutil.copy(c / "commits/13", c / "commits/14"),
        "commits/14 is beyond the newest batch in offsets, 13",
        to=14,
    ),
    Damage("no offsets, but commits", "hdfs", _only_commits_left, "offsets is empty", "from a copy"),
    Damage("one source more", "hdfs", _two_sources, "offsets/13 has 2 sources, offsets/12 has 1", to=13),
    Damage("Kafka's offsets go back", "kafka", _offset_back, "offsets/13 goes back", to=13),
    Damage(
        "the watermark goes back",
        "session",
        lambda c: written(
            c / "offsets/14", re.sub(r'"batchWatermarkMs":\d+', '"batchWatermarkMs":5', (c / "offsets/14").read_text())
        ),
        "offsets/14 is behind the previous batch: the watermark",
        to=14,
    ),
    Damage("a repartition not ended", "changelog", _repartition_begun, "offsets/13 starts a repartition", to=13),
    Damage(
        "a fault of Spark 4.2",
        "offsets-v2",
        lambda c: gone(c / "commits/13"),
        "offsets/13 does not say how many partitions",
        to=13,
    ),
    Damage(
        "the checksum of a commit that is gone",
        "hdfs",
        lambda c: (c / "commits/13").unlink(),
        "commits/.13.crc is the checksum of a missing file: Spark fails when it writes that file",
        "Delete commits/.13.crc",
    ),
    Damage(
        "metadata lost", "hdfs", lambda c: gone(c / "metadata"), "The file metadata", "Restore it from a copy", to=14
    ),
    Damage("metadata empty", "ids", lambda c: written(c / "metadata", ""), "metadata is damaged", "new id", to=14),
    Damage("metadata not JSON", "rate", lambda c: written(c / "metadata", "x"), "metadata is damaged", "new id", to=14),
    Damage(
        "an id that is none", "rate", lambda c: written(c / "metadata", '{"id":"7"}'), "not a UUID", "new id", to=14
    ),
]

SOURCES = [
    Damage("a log entry lost", "hdfs", lambda c: gone(c / "sources/0/12"), "sources/0/12 is missing", to=12),
    Damage("the newest log entry lost", "hdfs", lambda c: gone(c / "sources/0/13"), "offsets/13 names 13", to=13),
    Damage(
        "the compact log lost",
        "hdfs",
        lambda c: gone(c / "sources/0/9.compact"),
        "sources/0/9 is missing, and so is 9.compact",
        to=9,
    ),
    Damage(
        "the compact log damaged",
        "stateless",
        lambda c: cut(c / "sources/0/9.compact"),
        "sources/0/9.compact is damaged",
        to=9,
    ),
    Damage("an empty log entry", "ids", lambda c: written(c / "sources/0/13", ""), "sources/0/13 is damaged", to=13),
    Damage(
        "Kafka's beginning lost",
        "kafka",
        lambda c: gone(c / "sources/0/0"),
        "sources/0/0, which holds the source's initial position, is missing",
        "startingOffsets",
        status="note",
    ),
]

STATE = [
    Damage("a truncated zip", "rocksdb", lambda c: cut(c / STORE / "14.zip"), f"{STORE}/14.zip is damaged", to=13),
    Damage("a flipped byte in a zip", "rocksdb", lambda c: flipped(c / STORE / "14.zip", 60), "14.zip is dam", to=13),
    Damage(
        "a missing SST", "rocksdb", lambda c: gone(newest_table(c)), f"{STORE}/14.zip is damaged: it needs SSTs/", to=13
    ),
    Damage("an SST of a wrong size", "rocksdb", lambda c: cut(newest_table(c)), "expected", to=13),
    Damage(
        "a damaged SST", "rocksdb", lambda c: stale_crc(newest_table(c)), "which is damaged: its bytes from 0 on", to=13
    ),
    Damage(
        "a stale checksum of a zip", "rocksdb", lambda c: stale_crc(c / STORE / "14.zip"), "hidden checksum file", to=13
    ),
    Damage(
        "a missing changelog",
        "changelog",
        lambda c: gone(c / STORE / "14.changelog"),
        f"{STORE}: The state of operator 0, partition 0 lacks version 14",
        to=13,
    ),
    Damage(
        "an empty changelog",
        "changelog",
        lambda c: written(c / STORE / "14.changelog", ""),
        f"{STORE}/14.changelog is damaged: it is empty",
        to=13,
    ),
    Damage(
        "a truncated changelog",
        "transform",
        lambda c: cut(c / STORE / "14.changelog"),
        f"{STORE}/14.changelog is damaged",
    ),
    Damage("a truncated delta", "hdfs", lambda c: cut(c / STORE / "14.delta"), f"{STORE}/14.delta is damaged", to=13),
    Damage("a truncated delta, zstd", "session", lambda c: cut(c / STORE / "15.delta"), "15.delta is damaged", to=14),
    Damage("a flipped byte in a delta", "hdfs", lambda c: flipped(c / STORE / "14.delta"), "14.delta is damag", to=13),
    Damage("a missing delta", "hdfs", lambda c: gone(c / STORE / "14.delta"), f"{STORE}: The state of operator", to=13),
    Damage(
        "an old delta damaged",
        "hdfs",
        lambda c: cut(c / STORE / "5.delta"),
        f"{STORE}/5.delta is damaged",
        "Spark deletes it in time",
    ),
    Damage(
        "an old delta missing", "hdfs", lambda c: gone(c / STORE / "5.delta"), "no file of version 5", status="note"
    ),
    Damage(
        "a corrupt snapshot",
        "hdfs",
        lambda c: flipped(c / STORE / "12.snapshot"),
        f"{STORE}/12.snapshot is damaged",
        "Move it away",
        status="note",
    ),
    Damage(
        "a corrupt snapshot of an older Spark",
        "hdfs",
        lambda c: flipped(c / STORE / "12.snapshot"),
        f"{STORE}/12.snapshot is damaged",
        "Move it away",
        version="4.1.4",
    ),
    Damage(
        "a corrupt zip with changelogs, of an older Spark",
        "changelog",
        lambda c: cut(max((c / STORE).glob("*.zip"), key=lambda path: int(path.stem))),
        "only Spark 4.2 and later",
        to=14,
        version="4.0.5",
    ),
    Damage(
        "Spark's own checksum does not fit",
        "ids-changelog",
        lambda c: edited(one(c / STORE, "14_*.changelog.crc"), '"value":', '"value":1'),
        "it does not match its checksum file",
        to=13,
    ),
    Damage(
        "a stale checksum of a delta",
        "hdfs",
        lambda c: stale_crc(c / STORE / "14.delta"),
        f"{STORE}/14.delta",
        "Nothing",
        status="note",
    ),
    Damage(
        "state of a later batch",
        "hdfs",
        lambda c: shutil.copy(c / STORE / "12.snapshot", c / STORE / "20.snapshot"),
        f"{STORE}/20.snapshot is of batches after the newest, 13",
        to=14,
    ),
    Damage(
        "a foreign zip",
        "changelog",
        lambda c: written(c / STORE / "backup.zip", "x"),
        f"{STORE}/backup.zip is not one of Spark's files: Spark cannot load the state",
        to=14,
    ),
    Damage(
        "a foreign delta",
        "hdfs",
        lambda c: written(c / STORE / "copy.delta", "x"),
        f"{STORE}/copy.delta is not one of Spark's files: Spark's maintenance stops",
        status="note",
    ),
    Damage(
        "a zip with an id among those without",
        "rocksdb",
        lambda c: shutil.copy(c / STORE / "5.zip", c / STORE / "5_copy.zip"),
        f"{STORE}/5_copy.zip is not one of Spark's files",
        "Move it away",
    ),
    Damage("a missing partition", "hdfs", lambda c: gone(c / "state/0/1"), "state/0/1: The state of operator", to=0),
    Damage("a missing store", "join", lambda c: gone(c / "state/0/1/left-keyToNumValues"), "store left-key", to=0),
    Damage(
        "fewer partitions by hand",
        "hdfs",
        lambda c: edited(c / "offsets/13", 'shuffle.partitions":"2"', 'shuffle.partitions":"1"'),
        "state/0/1 is as new as the others",
        "Restore it",
    ),
]

OPERATORS = [
    Damage(
        "an operator of which nothing is left",
        "transform-ids",
        lambda c: gone(c / "state"),
        "state/0 is missing, though commits/14 names its state",
        to=0,
    ),
    Damage(
        "operator metadata missing",
        "hdfs",
        lambda c: gone(c / "state/0/_metadata"),
        "state/0/_metadata/metadata is missing",
        "Spark writes it again",
        status="note",
    ),
    Damage(
        "operator metadata damaged",
        "join",
        lambda c: written(c / "state/0/_metadata/metadata", "x"),
        "state/0/_metadata/metadata is damaged",
        "Delete it",
        status="note",
    ),
    Damage(
        "metadata of runs missing",
        "transform",
        lambda c: gone(c / "state/0/_metadata"),
        "state/0/_metadata/v2 has no file of a run before batch",
        to=0,
    ),
    Damage(
        "metadata of a run damaged",
        "transform-ids",
        lambda c: written(c / "state/0/_metadata/v2/0", "x"),
        "state/0/_metadata/v2/0 is damaged",
        to=0,
    ),
    Damage(
        "metadata of a later run",
        "join-families",
        lambda c: shutil.copy(c / "state/0/_metadata/v2/0", c / "state/0/_metadata/v2/20"),
        "state/0/_metadata/v2/20 is of a batch after the newest",
        to=15,
    ),
    Damage(
        "a schema missing",
        "hdfs",
        lambda c: gone(c / STORE / "_metadata/schema"),
        f"{STORE}/_metadata/schema is missing",
        "Spark writes it again",
        status="note",
    ),
    Damage(
        "a schema without its bytes",
        "hdfs",
        lambda c: cut(c / STORE / "_metadata/schema"),
        f"{STORE}/_metadata/schema is damaged",
        f"Delete it, and {STORE}/_metadata/.schema.crc",
    ),
    Damage(
        "a schema of runs missing",
        "transform",
        lambda c: gone(c / "state/0/_stateSchema"),
        "names the schema state/0/_stateSchema/default/0_",
        to=0,
    ),
    Damage(
        "a copied checkpoint",
        "transform",
        lambda c: edited(c / "state/0/_metadata/v2/0", f"file:{c}", "file:/elsewhere"),
        "names the schema file:/elsewhere/state/0/_stateSchema/default/0_",
        "copied or moved: put",
    ),
]

FOLDERS = [
    Damage(
        "offsets as a file", "hdfs", lambda c: _as_file(c / "offsets"), "offsets is a file; expected a folder", "copy"
    ),
    Damage("a partition as a file", "hdfs", lambda c: _as_file(c / "state/0/1"), "state/0/1 is a file", "copy"),
    Damage("a folder as a batch", "hdfs", lambda c: (c / "offsets/14").mkdir(), "offsets/14 is a folder", to=14),
    Damage(
        "a leftover",
        "hdfs",
        lambda c: (c / STORE / ".15.delta.f00.tmp").write_text("x"),
        f"{STORE}/.15.delta.f00.tmp",
        "may be deleted",
        status="note",
    ),
    Damage(
        "an SST that no zip needs",
        "rocksdb",
        lambda c: shutil.copy(tables_of(c / STORE / "14.zip")[0], c / STORE / "SSTs/000001-x.sst"),
        f"{STORE}/SSTs/000001-x.sst",
        "may be deleted",
        status="note",
    ),
    Damage(
        "a checksum without its delta",
        "hdfs",
        lambda c: shutil.copy(crc_of(c / STORE / "14.delta"), crc_of(c / STORE / "15.delta")),
        f"{STORE}/.15.delta.crc",
        "may be deleted",
        status="note",
    ),
    Damage("a rewind cut off", "hdfs", _cut_off, history.PENDING, "respool checkpoint undo"),
    Damage(
        "a damaged journal",
        "hdfs",
        lambda c: written(c / history.PENDING, "{"),
        f"{history.PENDING} is damaged",
        "Ask for help",
    ),
]

DAMAGES = [*LOGS, *SOURCES, *STATE, *OPERATORS, *FOLDERS]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.name)
def test_a_damage_is_named_and_what_is_said_to_do_mends_it(damage: Damage, copy: Callable[..., Path]) -> None:
    checkpoint = copy(damage.kind, damage.version)
    damage.cause(checkpoint)
    checks = look(checkpoint)
    named = [one for one in findings(checks, damage.status) if damage.told in one.what]
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
    assert not [one for one in findings(after, "note") if damage.told in one.what]
    assert CheckpointSnapshot(LocalReader(checkpoint)).next_batch == damage.to


def test_a_missing_snapshot_is_done_without(copy: Callable[..., Path]) -> None:
    checkpoint = copy("hdfs")
    gone(checkpoint / STORE / "12.snapshot")
    assert all(check.status == "ok" for check in look(checkpoint))


def test_a_missing_newest_commit_is_no_damage_to_a_query_without_state(copy: Callable[..., Path]) -> None:
    checkpoint = copy("stateless")
    gone(checkpoint / "commits/13")
    (found,) = findings(look(checkpoint), "note")
    assert found.remedy == "Nothing."
    assert not findings(look(checkpoint), "broken")


def test_a_quick_look_reads_no_state(copy: Callable[..., Path]) -> None:
    checkpoint = copy("rocksdb")
    cut(checkpoint / STORE / "14.zip")
    assert not findings(look(checkpoint, deep=False), "broken")
    gone(checkpoint / STORE / "14.zip")
    (found,) = findings(look(checkpoint, deep=False), "broken")
    assert f"{STORE}: The state of operator 0, partition 0 lacks version 14" in found.what


def test_a_rewind_that_was_cut_off_is_clean_once_it_is_finished(copy: Callable[..., Path]) -> None:
    checkpoint = copy("hdfs")
    _cut_off(checkpoint)
    (found,) = findings(look(checkpoint), "broken")
    assert f"respool checkpoint rewind {checkpoint} --to-batch 9" in found.remedy
    files = LocalWriter(checkpoint)
    pending = history.pending(files)
    assert pending is not None
    apply.finish(pending, files)
    assert all(check.status == "ok" for check in look(checkpoint))


@pytest.mark.parametrize(
    ("inside", "what", "remedy"),
    [
        ([], "it is empty", "begins with batch 0"),
        (["notes.txt", "data/part-0.parquet"], "it holds data, notes.txt", "Check the path"),
        (["table/_delta_log/0.json", "_delta_log/0.json"], "a table written by a query", "checkpointLocation"),
        (["visits/offsets/0", "visits/metadata"], "but contains checkpoints: visits", "/visits"),
    ],
    ids=["empty", "foreign", "a table", "the folder above"],
)
def test_a_folder_that_is_no_checkpoint_is_told_for_what_it_is(
    tmp_path: Path, inside: list[str], what: str, remedy: str
) -> None:
    for path in inside:
        written(tmp_path / path, "x")
    (found,) = findings(look(tmp_path), "broken")
    assert str(tmp_path) in found.what
    assert what in found.what
    assert remedy in found.remedy


def test_a_checkpoint_without_a_batch_is_sound(tmp_path: Path) -> None:
    written(tmp_path / "metadata", '{"id":"8491b5b1-af43-4266-97d6-99e64b7a775c"}')
    assert all(check.status == "ok" for check in look(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
@pytest.mark.parametrize(
    "path", ["state/0/0/14.delta", "offsets/13", "offsets/3", "sources/0/13", "metadata", "state/0/1", "commits", "."]
)
def test_what_may_not_be_read_is_named(originals: Callable[..., Path], path: str) -> None:
    with TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        checkpoint = Path(open_to_all) / "checkpoint"
        shutil.copytree(originals("hdfs"), checkpoint)
        look(checkpoint)  # imports what it needs, which nobody else may read
        (checkpoint / path).chmod(0)
        os.seteuid(65534)
        try:
            checks = look(checkpoint)
        finally:
            os.seteuid(0)
    (found,) = findings(checks, "broken")
    assert f"{checkpoint if path == '.' else path} cannot be read: " in found.what
    assert "ermission denied" in found.what
    assert "Grant this account read access" in found.remedy


class Altered(LocalWriter):
    """Files of which one is not as it was, though nothing is written."""

    def __init__(self, root: Path, path: str, data: bytes | None) -> None:
        super().__init__(root)
        self._path = path
        self._data = data

    def walk(self) -> FolderListing:
        listing = super().walk()
        folder, _, name = self._path.rpartition("/")
        if self._data is None:
            listing.folders[folder].remove(name)
        return listing

    def read(self, path: str) -> bytes:
        if path != self._path:
            return super().read(path)
        if self._data is None:
            raise FileNotFoundError(path)
        return self._data

    def facts(self, paths: Iterable[str]) -> dict[str, FileInfo]:
        found = super().facts(paths)
        if self._path in found:
            if self._data is None:
                del found[self._path]
            else:
                found[self._path] = FileInfo(len(self._data), found[self._path].modified)
        return found


@given(data=st.data())
def test_whatever_happens_to_one_file_is_told_and_what_is_said_to_do_can_be_done(
    originals: Callable[..., Path], data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from([one for one in golden.kinds() if one not in ("join", "join-changelog", "clock")]))
    checkpoint = originals(kind)
    paths = sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(paths))
    content = (checkpoint / path).read_bytes()
    how = data.draw(st.sampled_from(["deleted", "truncated", "flipped"]))
    at = data.draw(st.integers(0, max(len(content) - 1, 0)))
    changed: bytes | None = None
    if how == "truncated":
        changed = content[:at]
    elif how == "flipped" and content:
        changed = content[:at] + bytes([content[at] ^ (1 << data.draw(st.integers(0, 7)))]) + content[at + 1 :]
    files = Altered(checkpoint, path, changed)
    checks = verify(CheckpointSnapshot(files))
    for finding in findings(checks, "broken") + findings(checks, "note"):
        assert finding.what
        assert finding.remedy
        command = command_of(finding.remedy, checkpoint)
        if command is not None:
            request = RewindRequest(ToBatch(command[0]), new_query_id=command[1], allow_data_loss=True)
            assert not plan_rewind(CheckpointSnapshot(files), request, RewindContext(now=NOW, ours=True)).refusals
