"""Which pipeline owns a checkpoint, what it is a fork of, and where a fork was promoted to.

_respool/run.json        the pipeline that ran last, what it reads, where it writes
_respool/fork.json       what the checkpoint is a fork of
_respool/promoted.json   the checkpoint that a fork was promoted to
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from respool.checkpoint.journal import history
from respool.errors import CheckpointError, DamagedFileError
from respool.identity import Identity, read_identity, results_from_text
from respool.locations import OWN
from respool.sinks import protocol
from respool.storage.folder import FolderReader
from respool.storage.open import open_referenced
from respool.untrusted import Fields, Malformed, parse_json

T = TypeVar("T")

_NOTE_BYTES = 64 * 2**20  # a fingerprint has a line for each function of a pipeline's code
RUN = f"{OWN}/run.json"
FORK = f"{OWN}/fork.json"
PROMOTED = f"{OWN}/promoted.json"


@dataclass(frozen=True)
class RunRecord:
    """The pipeline that ran last on a checkpoint.

    Attributes:
        pipeline: Its name.
        topic: The topic that it reads.
        sink: Where it writes, for messages.
        on_replay: What its sink does with a replayed batch, for messages.
        timezone: The zone in which results are rendered.
        results: How they relate to event time, for messages.
        spark: The version of Spark.
        fingerprint: Its code and settings, by `respool.pipeline.fingerprint`; None when they were not recorded.
        output: Where its results can be read back, `kafka:TOPIC` or `delta:TABLE`; empty when they cannot.
        output_key: The columns that identify a result there.
        fixed: Parameters that must not change while the checkpoint exists.
        sink_identity: Where it writes, for comparisons; None when that was not recorded.
        results_identity: How results relate to event time, for comparisons; None when that was not recorded.
        recorded_at: The addresses of its sinks that record which batches they have, as `--sink` names them.
    """

    pipeline: str
    topic: str
    sink: str
    on_replay: str
    timezone: str = ""
    results: str = ""
    spark: str = ""
    fingerprint: Mapping[str, Any] | None = None
    output: str = ""
    output_key: tuple[str, ...] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)
    sink_identity: Identity | None = None
    results_identity: Identity | None = None
    recorded_at: tuple[str, ...] = ()

    @staticmethod
    def from_json(facts: Fields) -> "RunRecord":
        """Return the record of a pipeline; another version of respool may have recorded fewer or more fields.

        Raises:
            Malformed: A field is of another type.
        """
        names = ("pipeline", "topic", "sink", "on_replay", "timezone", "results", "spark", "output")
        texts = {name: facts.optional_text(name) or "" for name in names}
        return RunRecord(
            **texts,
            fingerprint=_fingerprint(facts.nested("fingerprint")) if "fingerprint" in facts else None,
            output_key=facts.texts("output_key") if "output_key" in facts else (),
            fixed=facts.text_by_name("fixed") if "fixed" in facts else {},
            sink_identity=_identity(facts, "sink_identity")
            or protocol.identity_from_text(texts["sink"], texts["on_replay"]),
            results_identity=_identity(facts, "results_identity") or results_from_text(texts["results"]),
            recorded_at=facts.lines("recorded_at") if "recorded_at" in facts else (),
        )


@dataclass(frozen=True)
class ForkRecord:
    """What a checkpoint is a fork of.

    Attributes:
        savepoint: The name of the savepoint.
        location: The savepoint's folder or URL.
        batch: The newest batch in it; the fork's own batches come after it.
        checkpoint: The checkpoint that the savepoint was made from.
        query_id: The id of that query.
        sink: Where that query writes, for messages; empty when it is unknown.
        created: When the savepoint was made.
        sink_identity: Where that query writes, for comparisons; None when it is unknown.
    """

    savepoint: str
    location: str
    batch: int
    checkpoint: str
    query_id: str
    sink: str
    created: datetime
    sink_identity: Identity | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as it is written to its file."""
        return {**asdict(self), "created": self.created.isoformat()}


@dataclass(frozen=True)
class PromotionRecord:
    """The checkpoint that a fork was promoted to, and the id of the journal of that change."""

    checkpoint: str
    journal: str


def read_run_record(files: FolderReader) -> RunRecord | None:
    """Return the pipeline that ran last on a checkpoint; None for a query that respool did not start."""
    return _note(files, RUN, RunRecord.from_json)


def fork_of(files: FolderReader) -> ForkRecord | None:
    """Return what a checkpoint is a fork of; None when it is not a fork."""

    def read(facts: Fields) -> ForkRecord:
        names = ("savepoint", "location", "checkpoint", "query_id", "sink")
        texts = {name: facts.text(name) for name in names}
        sink = _identity(facts, "sink_identity") or protocol.identity_from_text(texts["sink"])
        return ForkRecord(batch=facts.whole("batch"), created=facts.time("created"), sink_identity=sink, **texts)

    return _note(files, FORK, read)


def promotion_of(files: FolderReader) -> PromotionRecord | None:
    """Return where a fork was promoted to; None when it was not promoted, or the promotion was undone."""
    promoted = _note(
        files, PROMOTED, lambda facts: PromotionRecord(facts.line("checkpoint"), facts.file_name("journal"))
    )
    if promoted is None:
        return None
    try:
        past = history.past(open_referenced(promoted.checkpoint, files.root))
    except CheckpointError:
        return promoted
    return promoted if any(change.id == promoted.journal and change.undone is None for change in past) else None


def _note(files: FolderReader, path: str, read: Callable[[Fields], T]) -> T | None:
    """Return the content of a small file of respool; None when it does not exist."""
    try:
        return read(Fields(parse_json(files.read(path), max_bytes=_NOTE_BYTES)))
    except FileNotFoundError:
        return None
    except Malformed as error:
        remedy = "Move it away, and run this again. Nothing was changed."
        raise DamagedFileError(f"{files.root}/{path}", str(error), remedy) from error


def _identity(facts: Fields, name: str) -> Identity | None:
    return read_identity(facts.nested(name)) if name in facts else None


def _fingerprint(facts: Fields) -> dict[str, Any]:
    return {part: facts.text_by_name(part) for part in ("code", "settings")}
