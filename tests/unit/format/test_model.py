"""Runs of numbers, names of stores, and positions by source."""

import json
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import PlannedRewind, plan_rewind
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.summary import summarize
from respool.checkpoint.verify.run import verify
from respool.cli.commands import checkpoint as cli
from respool.cli.render.checkpoint import rewind_line
from respool.errors import CheckpointError
from respool.format.model import (
    InclusiveRange,
    OffsetLogEntry,
    SourceOffsets,
    StateStore,
    intersect,
    spans,
    spans_text,
    writer_of,
)
from respool.storage.local import LocalReader
from support import checkpoints
from support.checkpoints import settled, written

PROVIDER = "com.example.CloudStateStoreProvider"
CONF = "spark.sql.streaming."
# The settings that each version of Spark keeps in offsets, in addition to those of the versions before it.
KEPT = {
    "2.3 or older": ["spark.sql.shuffle.partitions", f"{CONF}stateStore.providerClass"],
    "2.4": [f"{CONF}aggregation.stateFormatVersion", f"{CONF}multipleWatermarkPolicy"],
    "3.0": [f"{CONF}join.stateFormatVersion"],
    "3.1": [f"{CONF}stateStore.compression.codec"],
    "3.2": [f"{CONF}stateStore.rocksdb.formatVersion"],
    "3.1 to 3.5": [f"{CONF}statefulOperator.useStrictDistribution"],
    "4.0 or 4.1": [f"{CONF}stateStore.encodingFormat"],
    "4.2 or later": [f"{CONF}stateStore.rowChecksum.enabled"],
}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([], []),
        ([4], [InclusiveRange(4, 4)]),
        ([4, 5, 6], [InclusiveRange(4, 6)]),
        ([1, 2, 4, 6, 7], [InclusiveRange(1, 2), InclusiveRange(4, 4), InclusiveRange(6, 7)]),
        ([1, 3], [InclusiveRange(1, 1), InclusiveRange(3, 3)]),
    ],
)
def test_numbers_as_runs_without_a_gap(numbers: list[int], expected: list[InclusiveRange]) -> None:
    assert spans(numbers) == expected


def test_the_place_of_a_store_names_it_when_there_are_several() -> None:
    assert StateStore(1, 2, "default", "", ()).place == "operator 1, partition 2"
    assert StateStore(1, 2, "left", "", ()).place == "operator 1, partition 2, store left"


def test_the_position_of_a_source_by_its_name() -> None:
    planned = OffsetLogEntry(1, 0, 0, {}, (SourceOffsets("0", 5), SourceOffsets("1", None), SourceOffsets("2", 7)))
    assert [planned.end(source) for source in ("0", "1", "2", "3")] == [5, None, 7, None]


def test_the_kafka_offsets_of_a_batch_by_topic_and_partition() -> None:
    sources = (SourceOffsets("0", {"a": {"0": 3, "1": 4}}), SourceOffsets("1", 7), SourceOffsets("2", {"b": {"0": 1}}))
    assert OffsetLogEntry(1, 0, 0, {}, sources).kafka_ends() == {("a", 0): 3, ("a", 1): 4, ("b", 0): 1}


def test_what_ranges_have_in_common() -> None:
    some, others = [InclusiveRange(0, 4), InclusiveRange(8, 9)], [InclusiveRange(3, 8)]
    assert intersect(some, others) == [InclusiveRange(3, 4), InclusiveRange(8, 8)]
    assert intersect(some, [InclusiveRange(5, 7)]) == []
    assert 4 in some[0]
    assert 5 not in some[0]
    assert spans_text(some) == "0 to 4, 8 to 9"


def edit_conf(checkpoint: Path, change: dict[str, str | None]) -> None:
    """Change the settings in every file of offsets; None removes one."""
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        version, head, *rest = path.read_text().split("\n")
        facts = json.loads(head)
        conf = {**facts["conf"], **change}
        facts["conf"] = {name: value for name, value in conf.items() if value is not None}
        written(path, "\n".join([version, json.dumps(facts), *rest]))


def opened(path: Path) -> CheckpointSnapshot:
    return CheckpointSnapshot(LocalReader(path))


def planned(path: Path, batch: int) -> PlannedRewind:
    return plan_rewind(
        opened(path), RewindRequest(ToBatch(batch), stopped=True), RewindContext(now=datetime.now(timezone.utc))
    )


def remedies(path: Path) -> str:
    return "\n".join(finding.remedy for check in verify(opened(path)) for finding in check.findings)


@pytest.mark.parametrize("kind", ["hdfs", "rocksdb", "transform"])
def test_an_unknown_state_store_is_named_and_nothing_is_recommended(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settled(checkpoints.unpack(tmp_path, kind))
    edit_conf(path, {f"{CONF}stateStore.providerClass": PROVIDER})
    for file in [*path.glob("state/*/*/*.delta"), *path.glob("state/*/*/*.zip"), *path.glob("state/*/*/*.changelog")]:
        file.rename(file.with_suffix(".cloud"))
    (unchecked,) = [
        finding for check in verify(opened(path)) for finding in check.findings if finding.status == "unchecked"
    ]
    assert PROVIDER in unchecked.what
    assert "respool cannot read" in unchecked.what
    assert not [finding for check in verify(opened(path)) for finding in check.findings if finding.status == "broken"]
    assert "rewind" not in remedies(path)
    cli.verify(str(path), home=tmp_path)
    assert "not everything could be checked" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match=f"{PROVIDER}.*respool cannot read.*Nothing was changed") as refused:
        planned(path, 5)
    assert "--to-batch" not in str(refused.value)
    summary = summarize(opened(path))
    assert PROVIDER in rewind_line(summary)
    assert "--to-batch" not in rewind_line(summary)


def test_other_damage_next_to_an_unknown_state_store_recommends_nothing_either(tmp_path: Path) -> None:
    path = checkpoints.unpack(tmp_path, "hdfs")
    edit_conf(path, {f"{CONF}stateStore.providerClass": PROVIDER})
    written(path / "offsets/12", "x")
    written(path / "commits/13", "x")
    written(path / "metadata", "x")
    assert [finding for check in verify(opened(path)) for finding in check.findings if finding.status == "broken"]
    assert "rewind" not in remedies(path)


def test_a_query_without_state_can_name_any_state_store(tmp_path: Path) -> None:
    path = checkpoints.unpack(tmp_path, "stateless")
    edit_conf(path, {f"{CONF}stateStore.providerClass": PROVIDER})
    assert all(check.status == "ok" for check in verify(opened(path)))
    assert planned(path, 5).batch == 5


def test_a_schema_and_operator_metadata_of_a_newer_version_are_not_to_be_deleted(tmp_path: Path) -> None:
    path = checkpoints.unpack(tmp_path, "hdfs")
    schema = path / "state/0/0/_metadata/schema"
    written(schema, schema.read_bytes().replace(b"\0\x02v2", b"\0\x02v7", 1))
    metadata = path / "state/0/_metadata/metadata"
    written(metadata, re.sub("^v1", "v7", metadata.read_text()))
    findings = [finding for check in verify(opened(path)) for finding in check.findings]
    assert {finding.status for finding in findings} == {"unchecked"}
    assert [finding.what.split(" has format version v7")[0] for finding in findings] == [
        "state/0/_metadata/metadata",
        "state/0/0/_metadata/schema",
    ]
    assert not re.search("[Dd]elete", remedies(path))


def test_operator_metadata_of_runs_of_a_newer_version_recommends_no_rewind(tmp_path: Path) -> None:
    path = settled(checkpoints.unpack(tmp_path, "transform"))
    for file in path.glob("state/0/_metadata/v2/[0-9]*"):
        written(file, re.sub("^v2", "v7", file.read_text()))
    assert "unchecked" in {finding.status for check in verify(opened(path)) for finding in check.findings}
    assert "rewind" not in remedies(path)


def test_an_unknown_codec_is_named(tmp_path: Path) -> None:
    path = checkpoints.unpack(tmp_path, "hdfs")
    edit_conf(path, {f"{CONF}stateStore.compression.codec": "com.example.Codec"})
    (unchecked,) = [finding for check in verify(opened(path)) for finding in check.findings]
    assert (unchecked.status, "com.example.Codec" in unchecked.what) == ("unchecked", True)


@pytest.mark.parametrize("version", checkpoints.versions())
def test_tested_versions_are_recognized_by_their_settings(tmp_path: Path, version: str) -> None:
    for kind in ("hdfs", "stateless", "rate"):
        checkpoint = opened(checkpoints.unpack(tmp_path, kind, version))
        writer = writer_of(checkpoint.newest_planned())
        assert writer.tested
        assert version[:3] in writer.versions
        assert summarize(checkpoint).untested is None


@pytest.mark.parametrize("versions", list(KEPT))
def test_an_older_spark_is_recognized_by_the_settings_that_it_does_not_record(tmp_path: Path, versions: str) -> None:
    path = checkpoints.unpack(tmp_path, "hdfs")
    later = list(KEPT)[list(KEPT).index(versions) + 1 :]
    edit_conf(path, {name: None for version in later for name in KEPT[version]})
    writer = writer_of(opened(path).newest_planned())
    assert writer.versions == versions
    noted = [finding.what for check in verify(opened(path)) for finding in check.findings if finding.status == "note"]
    notes = planned(path, 5).notes
    if versions.startswith("4"):
        assert noted == []
        assert summarize(opened(path)).untested is None
        assert not [note for note in notes if "tested" in note]
    else:
        expected = f"By the settings in offsets, Spark {versions} wrote this checkpoint."
        assert expected in noted[0]
        assert expected in str(summarize(opened(path)).untested)
        assert expected in notes[0]
        assert "untested" in notes[0]


def test_a_path_with_a_percent_sign_is_the_path_itself(tmp_path: Path) -> None:
    path = checkpoints.unpack(tmp_path / "a%41 b#ü", "transform")
    assert all(check.status == "ok" for check in verify(opened(settled(path))))
