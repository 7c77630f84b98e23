"""What a savepoint says of itself, as `manifest.json` in its folder."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from respool.checkpoint.claim import Run
from respool.checkpoint.model import SourceOffsets
from respool.errors import CheckpointError

_VERSION = 1


@dataclass(frozen=True)
class SavedFile:
    """A file of a savepoint: its path in the checkpoint, its size in bytes, and its SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class SinkPosition:
    """How far the output was when the savepoint was made. All results of its batch and of earlier ones are there.

    Attributes:
        output: Where the query writes, as `kafka:TOPIC`, `delta:TABLE` or in words.
        offsets: The end offsets of the output topic, by partition.
        version: The version of the Delta table: the one that holds the savepoint's batch where the table notes batches,
            else the newest.
        transactions: The newest batch that the Delta table has noted, by the query's id.
        unknown: Why nothing is known; None when something is.
    """

    output: str
    offsets: Mapping[str, int] | None = None
    version: int | None = None
    transactions: Mapping[str, int] | None = None
    unknown: str | None = None


@dataclass(frozen=True)
class Manifest:
    """What a savepoint is of.

    Attributes:
        name: Its name.
        created: When it was made.
        reason: Why, in the user's words.
        data: The folder of its files, beside the manifest.
        checkpoint: The checkpoint that it was made from.
        query_id: The query's id.
        batch: The newest batch in it, which is committed.
        planned_ms: When that batch was planned.
        watermark_ms: The watermark at which the next batch starts, 0 for none.
        sources: How far each source was read.
        conf: Spark's settings that are fixed in the checkpoint.
        operators: How many stateful operators it has.
        files: Its files.
        sink: How far the output was.
        run: The pipeline; None for a query that respool did not start.
        spark: The version of Spark that ran the pipeline; None when it is not known.
        respool: The version of respool that made the savepoint.
    """

    name: str
    created: datetime
    reason: str | None
    data: str
    checkpoint: str
    query_id: str
    batch: int
    planned_ms: int
    watermark_ms: int
    sources: tuple[SourceOffsets, ...]
    conf: Mapping[str, str]
    operators: int
    files: tuple[SavedFile, ...]
    sink: SinkPosition
    run: Run | None
    spark: str | None
    respool: str

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return sum(one.size for one in self.files)

    @property
    def next_batch(self) -> int:
        """The batch that a query runs first when it starts from here."""
        return self.batch + 1


def to_json(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest as JSON."""
    return {"version": _VERSION, **asdict(manifest), "created": manifest.created.isoformat()}


def text_of(manifest: Manifest) -> bytes:
    """Return a manifest as the bytes of its file."""
    return (json.dumps(to_json(manifest), indent=1) + "\n").encode()


def parse(where: str, data: bytes) -> Manifest:
    """Return a manifest from the bytes of its file; `where` is for messages."""
    try:
        facts = json.loads(data)
        version = facts.get("version")
        if version != _VERSION:
            raise CheckpointError(
                f"{where} is of version {version}; this respool knows {_VERSION}. Use a newer one. Nothing was changed."
            )
        found = {one.name: facts[one.name] for one in fields(Manifest)}
        found["created"] = datetime.fromisoformat(found["created"])
        found["sources"] = tuple(SourceOffsets(**one) for one in found["sources"])
        found["files"] = tuple(SavedFile(**one) for one in found["files"])
        found["sink"] = SinkPosition(**found["sink"])
        found["run"] = None if found["run"] is None else Run.from_json(found["run"])
        return Manifest(**found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{where} is damaged: {type(error).__name__}: {error}. The savepoint cannot be used; make another."
        ) from error
