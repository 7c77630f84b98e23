"""Files of respool's own that somebody else may have written: read by type, or refused with the file's name."""

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from respool.checkpoint import ownership
from respool.checkpoint.journal import steps
from respool.delta.restore import RestoreTable
from respool.errors import CheckpointError
from respool.format import logs
from respool.savepoint import manifest
from respool.storage.open import new_writer

NOW = datetime(2025, 9, 4, 7, 30, tzinfo=timezone.utc)
JOURNAL = steps.Journal(
    id="20250904T073000Z-3",
    operation="rewind",
    of=None,
    request="--to-batch 3",
    reason="a wrong\nfilter",
    started=NOW,
    batch=3,
    same_range=False,
    newest=steps.LogEnds(7, 7),
    left=steps.LogEnds(2, 2),
    steps=(
        steps.Move("state/0/1/4.delta", "_respool/aside/20250904T073000Z-3/state/0/1/4.delta", 46),
        steps.Replace("metadata", '{"id":"a"}', '{"id":"b"}'),
        steps.Prune("state"),
        steps.Restore(RestoreTable("/lake/table", 7, None, "a", 6, 2)),
    ),
    query_ids=("a",),
)
MANIFEST: dict[str, Any] = {
    "version": 1,
    "name": "before",
    "created": NOW.isoformat(),
    "reason": None,
    "data": "20250904T073000Z-0123456789ab",
    "checkpoint": "/data/checkpoint",
    "query_id": "8491b5b1-af43-4266-97d6-99e64b7a775c",
    "batch": 3,
    "planned_ms": 1_756_971_000_000,
    "watermark_ms": 0,
    "sources": [{"source": "0", "end": {"visits": {"0": 7}}}],
    "conf": {"spark.sql.shuffle.partitions": "2"},
    "operators": 1,
    "files": [{"path": "offsets/3", "size": 3, "sha256": "0" * 64}],
    "sink": {"output": "kafka:t", "offsets": {"0": 3}, "version": None, "transactions": None, "unknown": None},
    "run": None,
    "spark": "4.2.0",
    "respool": "0.3.0",
}
OUTSIDE = ["../x", "/etc/passwd", "a/../../x", "", "a\0b", 7, None]


def test_a_journal_is_read_as_it_was_written() -> None:
    assert steps.from_json("x", json.dumps(steps.to_json(JOURNAL)).encode()) == JOURNAL


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize(
    ("step", "name"), [("Move", "source"), ("Move", "target"), ("Replace", "path"), ("Prune", "folder")]
)
def test_a_journal_with_a_path_outside_its_checkpoint_is_refused(step: str, name: str, path: object) -> None:
    facts = steps.to_json(JOURNAL)
    next(entry for entry in facts["steps"] if entry["step"] == step)[name] = path
    with pytest.raises(CheckpointError, match=r"_respool/pending\.json is damaged"):
        steps.from_json("_respool/pending.json", json.dumps(facts).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", "../x"),
        ("id", "a/b"),
        ("of", ".."),
        ("operation", "format"),
        ("started", "yesterday"),
        ("batch", 10**30),
        ("batch", True),
        ("steps", {}),
        ("steps", [{"step": "Format"}]),
        ("newest", {"offsets": 1.5, "commits": 0}),
        ("query_ids", [7]),
        ("request", "x\x1b[2J"),
        ("surprise", 1),
        ("version", True),
    ],
)
def test_a_journal_with_a_field_of_another_type_is_refused(name: str, value: object) -> None:
    with pytest.raises(CheckpointError, match="is damaged"):
        steps.from_json("x", json.dumps({**steps.to_json(JOURNAL), name: value}).encode())


def test_a_journal_of_a_newer_version_is_refused_by_its_number() -> None:
    with pytest.raises(CheckpointError, match="format version 3; this respool supports 2"):
        steps.from_json("x", json.dumps({**steps.to_json(JOURNAL), "version": 3}).encode())


def test_a_journal_that_could_not_be_read_again_is_not_written() -> None:
    odd = steps.Journal(**{**vars(JOURNAL), "steps": (steps.Move("state/0/a\udcff", "_respool/aside/a", 1),)})
    with pytest.raises(CheckpointError, match="Nothing was changed"):
        steps.to_json(odd)


def test_a_manifest_is_read_as_it_was_written() -> None:
    parsed = manifest.parse("x", json.dumps(MANIFEST).encode())
    assert json.loads(manifest.text_of(parsed))["files"] == MANIFEST["files"]
    assert manifest.parse("x", manifest.text_of(parsed)) == parsed


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_manifest_with_a_path_outside_its_savepoint_is_refused(path: object) -> None:
    for facts in (
        {**MANIFEST, "data": path},
        {**MANIFEST, "files": [{"path": path, "size": 3, "sha256": "0" * 64}]},
    ):
        with pytest.raises(CheckpointError, match=r"s/manifest\.json is damaged"):
            manifest.parse("s/manifest.json", json.dumps(facts).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", "a/b"),
        ("data", "a/b"),
        ("created", 7),
        ("batch", -1),
        ("batch", 2**64),
        ("watermark_ms", 1.5),
        ("conf", {"a": 1}),
        ("files", [{"path": "a", "size": -1, "sha256": "0" * 64}]),
        ("files", [{"path": "a", "size": 1, "sha256": "x"}]),
        ("files", [{"path": "a", "size": 1, "sha256": "0" * 64}] * 2),
        ("sink", {"output": "x", "offsets": {"٣": 1}}),
        ("sources", [{"source": 1, "end": None}]),
        ("run", {"pipeline": 7}),
        ("run", {"fingerprint": {"code": 1}}),
        ("run", []),
    ],
)
def test_a_manifest_with_a_field_of_another_type_is_refused(name: str, value: object) -> None:
    with pytest.raises(CheckpointError, match="is damaged"):
        manifest.parse("x", json.dumps({**MANIFEST, name: value}).encode())


@pytest.mark.parametrize("text", ["", "[]", "null", '{"pipeline": 1}', '{"fixed": []}', "[" * 10_000, '"\\ud800"'])
def test_a_note_that_cannot_be_read_is_named(tmp_path: Any, text: str) -> None:
    files = new_writer(str(tmp_path))
    files.replace(ownership.RUN, text.encode())
    with pytest.raises(CheckpointError, match=r"run\.json is damaged"):
        ownership.read_run_record(files)
    files.replace(ownership.FORK, b"{}")
    with pytest.raises(CheckpointError, match=r"fork\.json is damaged"):
        ownership.fork_of(files)
    texts = dict.fromkeys(("savepoint", "location", "checkpoint", "query_id", "sink"), "x")
    files.replace(ownership.FORK, json.dumps({**texts, "batch": 1, "created": "yesterday"}).encode())
    with pytest.raises(CheckpointError, match=r"fork\.json is damaged: it: 'created'"):
        ownership.fork_of(files)
    files.replace(ownership.PROMOTED, b'{"checkpoint": "/x", "journal": "../x"}')
    with pytest.raises(CheckpointError, match=r"promoted\.json is damaged"):
        ownership.promotion_of(files)


@pytest.mark.parametrize("path", ["file://[", "a\0b", 7, None])
def test_an_entry_of_a_log_of_files_without_an_address_is_refused(path: object) -> None:
    text = "v1\n" + json.dumps({"path": path, "timestamp": 1, "batchId": 0})
    with pytest.raises(CheckpointError, match=r"sources/0/0 is damaged"):
        logs.log_entries("sources/0/0", text)
