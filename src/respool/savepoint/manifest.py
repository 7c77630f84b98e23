"""The manifest of a savepoint: `manifest.json` in its folder."""

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
    """What a savepoint contains and where it came from.

    Attributes:
        name: The savepoint's name.
        created: When it was created.
        reason: The user's reason.
        data: The folder of its files, next to the manifest.
        checkpoint: The checkpoint that it was created from.
        query_id: The query's id.
        batch: The newest batch in it; it is committed.
        planned_ms: When that batch was planned.
        watermark_ms: The watermark at which the next batch starts, 0 for none.
        sources: The offsets up to which each source was read.
        conf: The Spark settings that are fixed in the checkpoint.
        operators: The number of stateful operators.
        files: Its files.
        sink: The position of the output.
        run: The pipeline; None for a query that respool did not start.
        spark: The version of Spark that ran the pipeline; None when it is not known.
        respool: The version of respool that created the savepoint.
        not_included: Other files of the checkpoint, which are not in the savepoint; empty in savepoints created by
            versions that did not record them.
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
        """The size of its files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def next_batch(self) -> int:
        """The first batch of a query that starts from this savepoint."""
        return self.batch + 1


def to_json(manifest: SavepointManifest) -> dict[str, Any]:
    """Return a manifest as JSON."""
    return {"version": _VERSION, **asdict(manifest), "created": manifest.created.isoformat()}


def text_of(manifest: SavepointManifest) -> bytes:
    """Return a manifest as the bytes of its file."""
    return (json.dumps(to_json(manifest), indent=1) + "\n").encode()


def parse(location: str, data: bytes) -> SavepointManifest:
    """Return a manifest from the bytes of its file; `location` is for messages.

    Every path in it is relative and cannot lead out of the savepoint's folder.
    """
    try:
        fields = Fields(parse_json(data))
        version = fields.whole("version")
        if version != _VERSION:
            remedy = "Use a newer respool. Nothing was changed."
            raise UnknownFormatVersionError(location, str(version), [str(_VERSION)], remedy)
        return _manifest(fields)
    except Malformed as error:
        remedy = "The savepoint cannot be used. Create another savepoint. Nothing was changed."
        raise DamagedFileError(location, str(error), remedy) from error


def _manifest(fields: Fields) -> SavepointManifest:
    files = fields.objects("files", _file)
    if len({file.path for file in files}) < len(files):
        raise Malformed("it has two files with one path")
    return SavepointManifest(
        name=fields.file_name("name"),
        created=fields.time("created"),
        reason=fields.optional_text("reason"),
        data=fields.file_name("data"),
        checkpoint=fields.line("checkpoint"),
        query_id=fields.line("query_id"),
        batch=fields.whole("batch", most=LONG - 1),
        planned_ms=fields.whole("planned_ms"),
        watermark_ms=fields.whole("watermark_ms"),
        sources=fields.objects("sources", lambda source: SourceOffsets(source.line("source"), source.any("end"))),
        conf=fields.text_by_name("conf"),
        operators=fields.whole("operators"),
        files=files,
        sink=_sink(fields.nested("sink")),
        run=RunRecord.from_json(fields.nested("run")) if "run" in fields else None,
        spark=fields.optional_line("spark"),
        respool=fields.line("respool"),
        not_included=fields.objects("not_included", _not_included) if "not_included" in fields else (),
    )


def _not_included(fields: Fields) -> NotIncluded:
    return NotIncluded(fields.line("path"), fields.whole("files"), fields.whole("size"))


def _file(fields: Fields) -> SavedFile:
    sha256 = fields.text("sha256")
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise Malformed(f"{sha256!r:.80} is not a SHA-256")
    return SavedFile(fields.path("path"), fields.whole("size"), sha256)


def _sink(fields: Fields) -> SinkPosition:
    offsets = fields.whole_by_name("offsets") if "offsets" in fields else None
    for partition in offsets or ():
        decimal(partition, "a partition of the output topic")
    return SinkPosition(
        output=fields.text("output"),
        offsets=offsets,
        version=fields.optional_whole("version"),
        transactions=fields.whole_by_name("transactions") if "transactions" in fields else None,
        unknown=fields.optional_text("unknown"),
    )
