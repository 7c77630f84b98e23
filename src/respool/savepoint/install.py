"""Make a fork the checkpoint of its pipeline."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from respool.checkpoint.journal import apply, history
from respool.checkpoint.journal.steps import Journal, Move, Prune, Step
from respool.checkpoint.ownership import PROMOTED, PromotionRecord
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import UnreadableFileError
from respool.format import layout, logs
from respool.locations import local_path
from respool.savepoint.copying import Tell, copy, copy_known
from respool.savepoint.extras import is_schema_log_entry, moved_schema_log, staying
from respool.savepoint.manifest import SavedFile
from respool.storage.folder import FolderReader, FolderWriter

_RUN = re.compile(r"state/[0-9]+/_metadata/v2/[0-9]+")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')  # of JSON
_SCHEMA = re.compile(r"(.*)/(state/[0-9]+/_stateSchema/.+)")


@dataclass(frozen=True)
class InstallSet:
    """What is brought in.

    Attributes:
        source: Where the files are.
        paths: Their paths, in the order in which they are to be moved in.
        sizes: Their sizes in bytes.
        known: What is known of their bytes; None for files that are as they are.
        written: What is written in place of files of the source.
    """

    source: FolderReader = field(compare=False, repr=False)
    paths: tuple[str, ...]
    sizes: Mapping[str, int]
    known: Mapping[str, SavedFile] | None
    written: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """How many bytes are brought in."""
        return sum(self.sizes.values())


def cargo(
    source: FolderReader, files: Sequence[SavedFile] | None, paths: Sequence[str], target: str, query_id: str | None
) -> InstallSet:
    """Return what to bring into a folder so that Spark can start there.

    Args:
        source: Where the files are.
        files: What is known of their bytes, if anything is.
        paths: Their paths.
        target: The folder or URL that they are brought into: metadata in them that names files by address is adapted.
        query_id: A new id for the query; None to keep its own.
    """
    written: dict[str, bytes] = {}
    for path in paths:
        if _RUN.fullmatch(path):
            written[path] = moved_to(target, _text(source, path)).encode()
        elif is_schema_log_entry(path):
            text = source.read(path).decode(errors="surrogateescape")
            moved = moved_schema_log(lambda before: _address(target, before), text)
            if moved != text:
                written[path] = moved.encode(errors="surrogateescape")
    if query_id is not None:
        written["metadata"] = logs.metadata(query_id).encode()
    stale = {f"{folder}{slash}.{name}.crc" for folder, slash, name in (path.rpartition("/") for path in written)}
    brought = tuple(path for path in paths if path not in stale)
    facts = source.facts(brought) if files is None else {}
    known = None if files is None else {one.path: one for one in files}
    sizes = {
        path: len(written[path]) if path in written else known[path].size if known else facts[path].size
        for path in brought
    }
    return InstallSet(source, brought, sizes, known, written)


def _text(source: FolderReader, path: str) -> str:
    try:
        return logs.decode(path, source.read(path))
    except FileNotFoundError:
        remedy = "Use another savepoint. Nothing was changed."
        raise UnreadableFileError(f"{source.root}/{path}", "is missing", remedy) from None


def moved_to(target: str, text: str) -> str:
    """Return an operator's metadata of version 2 with its schemas' addresses in another checkpoint's folder."""

    def adapted(found: re.Match[str]) -> str:
        try:
            schema = _SCHEMA.fullmatch(str(json.loads(found[0])))
        except ValueError:
            return found[0]
        if schema is None:
            return found[0]
        return json.dumps(f"{_address(target, schema[1])}/{schema[2]}", ensure_ascii=False)

    return _TEXT.sub(adapted, text)


def _address(target: str, before: str) -> str:
    """Return the address by which Spark knows a folder, of the same kind as the address that was there before."""
    path = local_path(target)
    if path is not None:
        return f"file:{path.absolute()}"
    scheme, _, rest = target.partition("://")
    if scheme == "s3":  # fsspec's word; Spark's own is s3a
        scheme = before.split("://")[0] if before.startswith("s3") else "s3a"
    return f"{scheme}://{rest.rstrip('/')}"


def stage(brought: InstallSet, name: str, files: FolderWriter, on_file: Tell = lambda done, total: None) -> None:
    """Copy what is brought in into the folder, out of Spark's sight; on any error nothing of it stays."""
    prefix = f"{history.STAGED}/{name}/"
    plain = [path for path in brought.paths if path not in brought.written]
    try:
        if brought.known is None:
            copy(plain, brought.source, files, prefix, on_file)
        else:
            copy_known([brought.known[path] for path in plain], brought.source, files, prefix, on_file)
        for path, data in brought.written.items():
            files.replace(prefix + path, data)
        files.sync()
    except BaseException:
        apply.clear_staged(name, files)
        raise


def steps(
    checkpoint: CheckpointSnapshot | None, brought: InstallSet, name: str, at_sink: Sequence[Step] = ()
) -> list[Step]:
    """Return the steps that move the files of a checkpoint aside, and what is staged in.

    What Spark does not define stays, unless something is brought in its place.
    """
    aside: list[Step] = []
    if checkpoint is not None:
        stay = set(staying(safe_move_order(checkpoint), brought.paths))
        paths = [path for path in safe_move_order(checkpoint) if path not in stay]
        facts = checkpoint.files.facts(paths)
        aside = [Move(path, f"{history.ASIDE}/{name}/{path}", facts[path].size) for path in paths if path in facts]
    staged = f"{history.STAGED}/{name}/"
    moved_in = [Move(staged + path, path, brought.sizes[path]) for path in brought.paths]
    return [*aside, *at_sink, Prune("state"), Prune("sources"), *moved_in]


def safe_move_order(checkpoint: CheckpointSnapshot) -> list[str]:
    """Return all files of a checkpoint, in the order that does least harm: state, commits, offsets, then the rest."""
    order = {"state": 0, "commits": 1, "offsets": 2}

    def rank(path: str) -> tuple[int, int, str]:
        name = path.rpartition("/")[2]
        return (order.get(path.split("/")[0], 3), -(layout.batch(name) or 0), path)

    inside = (f"{folder}/{name}" if folder else name for folder, names in checkpoint.folders.items() for name in names)
    return sorted(inside, key=rank)


def carry_out(
    journal: Journal, brought: InstallSet, files: FolderWriter, on_file: Tell = lambda done, total: None
) -> None:
    """Stage what is brought in, then carry the journal out; on an error before its first step nothing is changed."""
    if history.pending(files) is None:
        apply.clear_leftovers(files)  # copies of an interrupted restore may take the room that this needs
    stage(brought, journal.id, files, on_file)
    apply.apply(journal, files)


def carry_out_fork(
    journal: Journal, brought: InstallSet, files: FolderWriter, on_file: Tell = lambda done, total: None
) -> None:
    """Bring files into a folder that has none; on an error nothing stays.

    The fence is up before the first file is there: a fork that is cut off is none, and no query starts on it from
    nothing. Cut off before, it is finished.
    """
    if history.pending(files) is None:
        journal = apply.begin(journal, files)
    else:
        files.sync(everything=True)  # the process that began it may have been killed before it did
    if not files.facts(brought.paths):  # else all is staged, and some is moved in
        try:
            stage(brought, journal.id, files, on_file)
        except BaseException:
            files.delete(journal.fence)
            files.sync()
            files.delete(history.PENDING)
            files.sync()
            raise
    apply.finish(journal, files)


def promote(
    journal: Journal,
    brought: InstallSet,
    files: FolderWriter,
    fork: FolderWriter,
    on_file: Tell = lambda done, total: None,
) -> None:
    """Bring a fork's files into a checkpoint, and note in the fork where its query goes on.

    The note counts only while the journal is in the checkpoint's history, and not undone: so it is made first.
    """
    note = PromotionRecord(files.root, journal.id)
    fork.replace(PROMOTED, (json.dumps(asdict(note)) + "\n").encode())
    fork.sync()
    carry_out(journal, brought, files, on_file)
