"""What a savepoint says of itself, as `manifest.json` in its folder."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from respool.checkpoint.ownership import RunRecord
from respool.errors import DamagedFileError, UnknownFormatVersionError
from respool.format.model import SourceOffsets
from respool.savepoint.extras import NotIncluded
from respool.sinks.registry import SinkPosition
from respool.untrusted import LONG, Fields, Malformed, decimal, parse_json

_VERSION = 1


@dataclass(frozen=True)
class SavedFile:
    """A file of a savepoint: its path in the checkpoint, its size in bytes, and its SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class SavepointManifest:
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
        not_included: What else was in the checkpoint, and is not in the savepoint; unknown, and empty, in savepoints
            that were made before this was noted.
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
    run: RunRecord | None
    spark: str | None
    respool: str
    not_included: tuple[NotIncluded, ...] = ()

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return sum(one.size for one in self.files)

    @property
    def next_batch(self) -> int:
        """The batch that a query runs first when it starts from here."""
        return self.batch + 1


def to_json(manifest: SavepointManifest) -> dict[str, Any]:
    """Return a manifest as JSON."""
    return {"version": _VERSION, **asdict(manifest), "created": manifest.created.isoformat()}


def text_of(manifest: SavepointManifest) -> bytes:
    """Return a manifest as the bytes of its file."""
    return (json.dumps(to_json(manifest), indent=1) + "\n").encode()


def parse(where: str, data: bytes) -> SavepointManifest:
    """Return a manifest from the bytes of its file; `where` is for messages.

    Every path in it is relative and cannot lead out of the savepoint's folder.
    """
    try:
        facts = Fields(parse_json(data))
        version = facts.whole("version")
        if version != _VERSION:
            remedy = "Use a newer respool. Nothing was changed."
            raise UnknownFormatVersionError(where, str(version), [str(_VERSION)], remedy)
        return _manifest(facts)
    except Malformed as error:
        remedy = "The savepoint cannot be used; create another. Nothing was changed."
        raise DamagedFileError(where, str(error), remedy) from error


def _manifest(facts: Fields) -> SavepointManifest:
    files = facts.objects("files", _file)
    if len({file.path for file in files}) < len(files):
        raise Malformed("it has two files with one path")
    return SavepointManifest(
        name=facts.file_name("name"),
        created=facts.time("created"),
        reason=facts.optional_text("reason"),
        data=facts.file_name("data"),
        checkpoint=facts.line("checkpoint"),
        query_id=facts.line("query_id"),
        batch=facts.whole("batch", most=LONG - 1),
        planned_ms=facts.whole("planned_ms"),
        watermark_ms=facts.whole("watermark_ms"),
        sources=facts.objects("sources", lambda source: SourceOffsets(source.line("source"), source.any("end"))),
        conf=facts.text_by_name("conf"),
        operators=facts.whole("operators"),
        files=files,
        sink=_sink(facts.nested("sink")),
        run=RunRecord.from_json(facts.nested("run")) if "run" in facts else None,
        spark=facts.optional_line("spark"),
        respool=facts.line("respool"),
        not_included=facts.objects("not_included", _not_included) if "not_included" in facts else (),
    )


def _not_included(facts: Fields) -> NotIncluded:
    return NotIncluded(facts.line("path"), facts.whole("files"), facts.whole("size"))


def _file(facts: Fields) -> SavedFile:
    sha256 = facts.text("sha256")
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise Malformed(f"{sha256!r:.80} is not a SHA-256")
    return SavedFile(facts.path("path"), facts.whole("size"), sha256)


def _sink(facts: Fields) -> SinkPosition:
    offsets = facts.whole_by_name("offsets") if "offsets" in facts else None
    for partition in offsets or ():
        decimal(partition, "a partition of the output topic")
    return SinkPosition(
        output=facts.text("output"),
        offsets=offsets,
        version=facts.optional_whole("version"),
        transactions=facts.whole_by_name("transactions") if "transactions" in facts else None,
        unknown=facts.optional_text("unknown"),
    )
