"""The manifest of a savepoint as text."""

import json
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from respool.errors import CheckpointError
from respool.format.model import SourceOffsets
from respool.savepoint.manifest import SavedFile, SavepointManifest, parse, text_of, to_json
from respool.sinks.registry import SinkPosition

MANIFEST = SavepointManifest(
    name="one",
    created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    reason="two\nlines",
    data="data-1",
    checkpoint="/checkpoints/a",
    query_id="an-id",
    batch=7,
    planned_ms=8,
    watermark_ms=9,
    sources=(SourceOffsets("0", {"visits": {"0": 3}}), SourceOffsets("1", None)),
    conf={"spark.sql.shuffle.partitions": "2"},
    operators=1,
    files=(SavedFile("metadata", 3, "a" * 64), SavedFile("offsets/7", 4, "b" * 64)),
    sink=SinkPosition("kafka:out", {"0": 3, "10": 4}, 5, {"an-id": 7}, "why"),
    run=None,
    spark="4.2.0",
    respool="1.0",
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert parse("here", text_of(MANIFEST)) == MANIFEST
    bare = replace(MANIFEST, reason=None, spark=None, sink=SinkPosition("console"), batch=2**63 - 2)
    assert parse("here", text_of(bare)) == bare


def test_size_and_next_batch() -> None:
    assert MANIFEST.size == 7
    assert MANIFEST.next_batch == 8


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_is_refused(version: int) -> None:
    with pytest.raises(CheckpointError, match=f"has format version {version}; this respool supports 1"):
        parse("here", json.dumps(to_json(MANIFEST) | {"version": version}).encode())


@pytest.mark.parametrize(
    "facts",
    [
        {"name": "a/b"},
        {"data": ".."},
        {"batch": -1},
        {"batch": 2**63 - 1},
        {"planned_ms": -1},
        {"watermark_ms": -1},
        {"operators": -1},
        {"files": [{"path": "../x", "size": 1, "sha256": "a" * 64}]},
        {"files": [{"path": "x", "size": -1, "sha256": "a" * 64}]},
        {"files": [{"path": "x", "size": 1, "sha256": "a" * 63}]},
        {"files": [{"path": "x", "size": 1, "sha256": "A" * 64}]},
        {"files": [{"path": "x", "size": 1, "sha256": "a" * 64}] * 2},
        {"sink": {"output": "x", "offsets": {"a": 1}}},
        {"sink": {"output": "x", "offsets": {"0": -1}}},
        {"sink": {"output": "x", "transactions": {"0": "1"}}},
        {"query_id": "a\nb"},
        {"run": 3},
    ],
)
def test_a_manifest_that_respool_would_not_write_is_damaged(facts: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="here is damaged"):
        parse("here", json.dumps(to_json(MANIFEST) | facts).encode())
