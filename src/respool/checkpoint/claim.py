"""Whose a checkpoint is: the pipeline that it belongs to, and the process that runs on it now.

_respool/run.json        the pipeline that ran last, what it reads, where it writes
_respool/fork.json       what the checkpoint is a fork of
_respool/promoted.json   where a fork went, when it became the checkpoint of its pipeline
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from respool import __version__, results, sinks
from respool.checkpoint import history, layout, lease, logs
from respool.checkpoint.files import OWN, Reader, Writer, local_path, open_writer
from respool.checkpoint.lease import Lease
from respool.checkpoint.local_files import LocalFiles
from respool.checkpoint.sources import kafka_parts
from respool.errors import CheckpointError, DamagedFileError, UnfinishedChangeError
from respool.identity import Identity, read_identity
from respool.sinks import Output, ReadableSink
from respool.untrusted import Fields, Malformed, parse_json

if TYPE_CHECKING:
    from respool.pipeline import Pipeline

T = TypeVar("T")

_NOTE_BYTES = 64 * 2**20  # a fingerprint has a line for each function of a pipeline's code
RUN = f"{OWN}/run.json"
FORK = f"{OWN}/fork.json"
PROMOTED = f"{OWN}/promoted.json"


@dataclass(frozen=True)
class Run:
    """The pipeline that ran last on a checkpoint.

    Attributes:
        pipeline: Its name.
        topic: The topic that it reads.
        sink: Where it writes, for people.
        on_replay: What its sink does with a batch that comes again, for people.
        timezone: The zone in which results are rendered.
        results: How they relate to event time, for people.
        spark: The version of Spark.
        fingerprint: Its code and settings, as `respool.fingerprint` tells them; None when nothing is known.
        output: Where its results can be read again, `kafka:TOPIC` or `delta:TABLE`; empty when they cannot.
        output_key: The columns that identify a result there.
        fixed: What must stay as it is while the checkpoint lives.
        sink_identity: Where it writes, for comparisons; None when that was not kept.
        results_identity: How results relate to event time, for comparisons; None when nothing is known.
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

    @staticmethod
    def from_json(facts: Fields) -> "Run":
        """Return what was kept of a pipeline; another version of respool may have kept less, or more.

        Raises:
            Malformed: A field is of another type.
        """
        names = ("pipeline", "topic", "sink", "on_replay", "timezone", "results", "spark", "output")
        texts = {name: facts.optional_text(name) or "" for name in names}
        return Run(
            **texts,
            fingerprint=_fingerprint(facts.nested("fingerprint")) if "fingerprint" in facts else None,
            output_key=facts.texts("output_key") if "output_key" in facts else (),
            fixed=facts.text_by_name("fixed") if "fixed" in facts else {},
            sink_identity=_identity(facts, "sink_identity")
            or sinks.identity_from_text(texts["sink"], texts["on_replay"]),
            results_identity=_identity(facts, "results_identity") or results.identity_from_text(texts["results"]),
        )

    @staticmethod
    def of(pipeline: "Pipeline", home: Path | None = None) -> "Run":
        """Return what is kept of a pipeline; `home` is where sinks put files of their own."""
        relation, sink = pipeline.results, pipeline.sink
        output = sink.output(home) if home is not None and isinstance(sink, ReadableSink) else Output("")
        return Run(
            pipeline=pipeline.name,
            topic=pipeline.topic,
            sink=pipeline.sink.describe(),
            on_replay=pipeline.sink.on_replay(),
            timezone=pipeline.timezone,
            results=relation.describe() if relation is not None else "",
            output=output.address,
            output_key=output.key,
            spark=metadata.version("pyspark"),
            fixed=pipeline.fixed,
            sink_identity=sinks.identity_of(sink),
            results_identity=relation.identity() if relation is not None else None,
        )


@dataclass(frozen=True)
class Fork:
    """What a checkpoint is a fork of.

    Attributes:
        savepoint: The name of the savepoint.
        location: The savepoint's folder or URL.
        batch: The newest batch in it: what the fork did came after it.
        checkpoint: The checkpoint that the savepoint was made from.
        query_id: The id of that query.
        sink: Where that query writes, for people; empty when it is not known.
        created: When the savepoint was made.
        sink_identity: Where that query writes, for comparisons; None when it is not known.
    """

    savepoint: str
    location: str
    batch: int
    checkpoint: str
    query_id: str
    sink: str
    created: str
    sink_identity: Identity | None = None


@dataclass(frozen=True)
class Promoted:
    """Where a fork went: the checkpoint that it became, and the id of the journal that made it so."""

    checkpoint: str
    journal: str


def claim(checkpoint: str, pipeline: "Pipeline", home: Path | None = None, held: Lease | None = None) -> Lease | None:
    """Hold a checkpoint for a pipeline; None when another process holds it now.

    With the `home` of its sinks, where its results can be read is noted, too. `held` is the lease of a checkpoint that
    this process holds already.

    Raises CheckpointError when the checkpoint belongs to another pipeline, or when a rewind of it was cut off.
    """
    check(checkpoint, pipeline)
    held = held or lease.hold(checkpoint)
    if held is None or held.warning is not None:
        return held
    try:
        _record(_files(checkpoint), pipeline, home)
    except BaseException:
        held.close()
        raise
    return held


def check(checkpoint: str, pipeline: "Pipeline") -> None:
    """Raise CheckpointError when a pipeline must not run on a checkpoint; nothing is changed."""
    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        if folder.exists():
            raise CheckpointError(
                f"The checkpoint {folder} is a file; expected a folder. Name another with --checkpoint."
            )
        return
    try:
        files = _files(checkpoint)
        found = last_run(files)
        cut_off = history.pending(files)
        topics = _topics(files) if found is None else None
        fork, promoted = fork_of(files), promotion_of(files)
    except CheckpointError:
        if folder is not None:
            raise
        return  # Spark may well reach what this process cannot
    if cut_off is not None:
        raise UnfinishedChangeError(checkpoint, cut_off)
    if promoted is not None:
        raise CheckpointError(
            f"The fork {checkpoint} was promoted: its query goes on in {promoted.checkpoint}. Run it there, or take "
            f"the promotion back with: respool checkpoint undo {promoted.checkpoint}."
        )
    taken = fork.sink_identity if fork is not None else None
    if fork is not None and taken is not None and taken.is_same(sinks.identity_of(pipeline.sink)):
        raise CheckpointError(
            f"The checkpoint {checkpoint} is a fork of {fork.checkpoint}, which writes to the {fork.sink}; both would "
            "write there. Let the fork write to a place of its own, such as with --sink-suffix -v2, or make it the "
            f"pipeline's checkpoint: respool promote {checkpoint} {fork.checkpoint}."
        )
    _require_same(checkpoint, pipeline, found, topics)


def _require_same(checkpoint: str, pipeline: "Pipeline", found: Run | None, topics: set[str] | None) -> None:
    """Raise CheckpointError when a checkpoint is that of another pipeline, as far as it tells."""
    way_out = "Run that pipeline, or name another folder with --checkpoint."
    if found is not None and (found.pipeline, found.topic) != (pipeline.name, pipeline.topic):
        raise CheckpointError(
            f"The checkpoint {checkpoint} belongs to the pipeline {found.pipeline}, which reads {found.topic}; "
            f"expected {pipeline.name}, which reads {pipeline.topic}. {way_out}"
        )
    for name, value in (found.fixed if found is not None else {}).items():
        if pipeline.fixed.get(name) != value:
            raise CheckpointError(
                f"The checkpoint {checkpoint} was made with {name}={value}, which it keeps; found "
                f"{name}={pipeline.fixed.get(name, 'none')}. Run with --set {name}={value}, or name another folder "
                "with --checkpoint."
            )
    if topics is not None and pipeline.topic not in topics:
        raise CheckpointError(
            f"The checkpoint {checkpoint} is of a query that reads {', '.join(sorted(topics)) or 'no Kafka topic'}; "
            f"the pipeline {pipeline.name} reads {pipeline.topic}. {way_out}"
        )


def changed_since(checkpoint: str, pipeline: "Pipeline") -> list[str]:
    """Return what has changed in a pipeline since it ran last on a checkpoint; where it writes does not count."""
    from respool.fingerprint import fingerprint_of

    folder = local_path(checkpoint)
    if folder is not None and not folder.is_dir():
        return []
    try:
        run = last_run(_files(checkpoint))
    except CheckpointError:
        return []  # Spark may well reach what this process cannot
    return changed(run.fingerprint, fingerprint_of(pipeline).to_json()) if run is not None else []


def changed(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[str]:
    """Return what differs between two fingerprints; where results are written does not count."""
    from respool.fingerprint import Fingerprint, changes

    if not old or not new:
        return []
    return changes(*(Fingerprint.from_json(one).without("sink") for one in (old, new)))


def last_run(files: Reader) -> Run | None:
    """Return the pipeline that ran last on a checkpoint; None for a query that respool did not start."""
    return _note(files, RUN, Run.from_json)


def fork_of(files: Reader) -> Fork | None:
    """Return what a checkpoint is a fork of; None when it is none."""

    def read(facts: Fields) -> Fork:
        names = ("savepoint", "location", "checkpoint", "query_id", "sink", "created")
        texts = {name: facts.text(name) for name in names}
        sink = _identity(facts, "sink_identity") or sinks.identity_from_text(texts["sink"])
        return Fork(batch=facts.whole("batch"), sink_identity=sink, **texts)

    return _note(files, FORK, read)


def promotion_of(files: Reader) -> Promoted | None:
    """Return where a fork went; None when it was not promoted, or when that was taken back."""
    promoted = _note(files, PROMOTED, lambda facts: Promoted(facts.line("checkpoint"), facts.file_name("journal")))
    if promoted is None:
        return None
    try:
        past = history.past(open_writer(promoted.checkpoint))
    except CheckpointError:
        return promoted
    return promoted if any(one.id == promoted.journal and one.undone is None for one in past) else None


def _note(files: Reader, path: str, read: Callable[[Fields], T]) -> T | None:
    """Return the content of a small file of respool's own; None when it does not exist."""
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


def _topics(files: Reader) -> set[str] | None:
    """Return the Kafka topics of a checkpoint that respool did not make, or None when it has run no batch."""
    batches = layout.batches(files.names("offsets"))
    if not batches:
        return None
    path = f"offsets/{batches[-1]}"
    try:
        newest = logs.planned(path, logs.decode(path, files.read(path)))
    except CheckpointError:
        return None  # Spark will tell what is wrong with it
    return {topic for source in newest.sources for topic, _ in kafka_parts(source.end)}


def _files(checkpoint: str) -> Writer:
    folder = local_path(checkpoint)
    return open_writer(checkpoint) if folder is None else LocalFiles(folder)


def _record(files: Writer, pipeline: "Pipeline", home: Path | None) -> None:
    from respool.fingerprint import fingerprint_of

    facts = {
        "respool": __version__,
        **asdict(replace(Run.of(pipeline, home), fingerprint=fingerprint_of(pipeline).to_json())),
        "output_mode": pipeline.output_mode,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    files.replace(RUN, (json.dumps(facts, indent=1) + "\n").encode())
    files.sync()
