"""What respool does not know of a checkpoint is named, and nothing is recommended that would throw it away."""

import json
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

from respool.checkpoint.planning.request import RewindContext, RewindRequest, ToBatch
from respool.checkpoint.planning.rewind import RewindPlan, plan_rewind
from respool.checkpoint.provenance import writer_of
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.summary import summarize
from respool.checkpoint.verify.run import verify
from respool.cli.commands import checkpoint as cli
from respool.cli.render.checkpoint import rewind_line
from respool.errors import CheckpointError
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


def planned(path: Path, batch: int) -> RewindPlan:
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
