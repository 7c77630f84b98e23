"""Install files in a checkpoint: stage them out of Spark's sight, then move them in; for restore, fork and promote."""

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
from respool.locations import for_spark, store_of
from respool.savepoint.copying import ProgressCallback, copy, copy_verified
from respool.savepoint.extras import files_that_stay, is_schema_log_entry, moved_schema_log
from respool.savepoint.manifest import SavedFile
from respool.storage.folder import FolderReader, FolderWriter

_RUN = re.compile(r"state/[0-9]+/_metadata/v2/[0-9]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')  # of JSON
_SCHEMA = re.compile(r"(.*)/(state/[0-9]+/_stateSchema/.+)")


@dataclass(frozen=True)
class InstallSet:
    """The files to install in a checkpoint.

    Attributes:
        source: The folder that they are copied from.
        paths: Their paths, in the order in which they are moved in.
        sizes: Their sizes in bytes.
        recorded: Their recorded sizes and hashes, by path; None for files whose bytes are not verified.
        written: New contents that replace those of the source, by path.
    """

    source: FolderReader = field(compare=False, repr=False)
    paths: tuple[str, ...]
    sizes: Mapping[str, int]
    recorded: Mapping[str, SavedFile] | None
    written: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """Their total size in bytes."""
        return sum(self.sizes.values())


def install_set(
    source: FolderReader, files: Sequence[SavedFile] | None, paths: Sequence[str], target: str, query_id: str | None
) -> InstallSet:
    """Return the files to install in a folder so that Spark can start there.

    Args:
        source: The folder that they are copied from.
        files: Their recorded sizes and hashes; None when there are none to verify.
        paths: Their paths.
        target: The folder or URL that they are installed in; metadata that names files by address is adapted to it.
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
    stale = {layout.hidden_checksum(path) for path in written}
    installed = tuple(path for path in paths if path not in stale)
    infos = source.facts(installed) if files is None else {}
    recorded = None if files is None else {file.path: file for file in files}
    sizes = {
        path: len(written[path]) if path in written else recorded[path].size if recorded else infos[path].size
        for path in installed
    }
    return InstallSet(source, installed, sizes, recorded, written)


def _text(source: FolderReader, path: str) -> str:
    try:
        return logs.decode(path, source.read(path))
    except FileNotFoundError:
        remedy = "Use another savepoint. Nothing was changed."
        raise UnreadableFileError(f"{source.root}/{path}", "is missing", remedy) from None


def moved_to(target: str, text: str) -> str:
    """Return an operator's metadata (version 2) with the addresses of its schemas changed to another checkpoint."""

    def adapted(match: re.Match[str]) -> str:
        try:
            schema = _SCHEMA.fullmatch(str(json.loads(match[0])))
        except ValueError:
            return match[0]
        if schema is None:
            return match[0]
        return json.dumps(f"{_address(target, schema[1])}/{schema[2]}", ensure_ascii=False)

    return _STRING.sub(adapted, text)


def _address(target: str, before: str) -> str:
    """Return the address that Spark uses for a folder, of the same kind as the address that it replaces."""
    address = for_spark(target)
    if store_of(address) is not None and store_of(before) == store_of(address):  # such as abfs:// and abfss://
        return f"{before.partition('://')[0]}://{address.partition('://')[2]}"
    return address


def stage(
    install_set: InstallSet, name: str, files: FolderWriter, on_file: ProgressCallback = lambda done, total: None
) -> None:
    """Copy files to the staging folder of a checkpoint, which Spark does not read; on any error nothing of it stays."""
    prefix = f"{history.STAGED}/{name}/"
    unchanged = [path for path in install_set.paths if path not in install_set.written]
    try:
        if install_set.recorded is None:
            copy(unchanged, install_set.source, files, prefix, on_file)
        else:
            recorded = [install_set.recorded[path] for path in unchanged]
            copy_verified(recorded, install_set.source, files, prefix, on_file)
        for path, data in install_set.written.items():
            files.replace(prefix + path, data)
        files.sync()
    except BaseException:
        apply.clear_staged(name, files)
        raise


def steps(
    checkpoint: CheckpointSnapshot | None, install_set: InstallSet, name: str, at_sink: Sequence[Step] = ()
) -> list[Step]:
    """Return the steps that move the files of a checkpoint to `_respool/aside/`, and the staged files in.

    Files that Spark does not define stay, unless they are replaced.
    """
    aside: list[Step] = []
    if checkpoint is not None:
        stay = set(files_that_stay(safe_move_order(checkpoint), install_set.paths))
        paths = [path for path in safe_move_order(checkpoint) if path not in stay]
        infos = checkpoint.files.facts(paths)
        aside = [Move(path, f"{history.ASIDE}/{name}/{path}", infos[path].size) for path in paths if path in infos]
    staged = f"{history.STAGED}/{name}/"
    moved_in = [Move(staged + path, path, install_set.sizes[path]) for path in install_set.paths]
    return [*aside, *at_sink, Prune("state"), Prune("sources"), *moved_in]


def safe_move_order(checkpoint: CheckpointSnapshot) -> list[str]:
    """Return all files of a checkpoint in the order that is safest to interrupt: state, commits, offsets, the rest."""
    order = {"state": 0, "commits": 1, "offsets": 2}

    def rank(path: str) -> tuple[int, int, str]:
        name = path.rpartition("/")[2]
        return (order.get(path.split("/")[0], 3), -(layout.batch(name) or 0), path)

    inside = (f"{folder}/{name}" if folder else name for folder, names in checkpoint.folders.items() for name in names)
    return sorted(inside, key=rank)


def carry_out(
    journal: Journal,
    install_set: InstallSet,
    files: FolderWriter,
    on_file: ProgressCallback = lambda done, total: None,
) -> None:
    """Stage the files, then apply the journal; on an error before its first step nothing is changed."""
    if history.pending(files) is None:
        apply.clear_leftovers(files)  # copies of an interrupted restore may take the space that this needs
    stage(install_set, journal.id, files, on_file)
    apply.apply(journal, files)


def carry_out_fork(
    journal: Journal,
    install_set: InstallSet,
    files: FolderWriter,
    on_file: ProgressCallback = lambda done, total: None,
) -> None:
    """Install files in an empty folder; on an error nothing stays.

    The fence is created before the first file is copied: no query can start on an interrupted fork as if it were
    empty. A fork that was interrupted is finished.
    """
    if history.pending(files) is None:
        journal = apply.begin(journal, files)
    else:
        files.sync(everything=True)  # the process that started it may have been killed before its own sync
    if not files.facts(install_set.paths):  # otherwise all files are staged, and some are moved in
        try:
            stage(install_set, journal.id, files, on_file)
        except BaseException:
            files.delete(journal.fence)
            files.sync()
            files.delete(history.PENDING)
            files.sync()
            raise
    apply.finish(journal, files)


def promote(
    journal: Journal,
    install_set: InstallSet,
    files: FolderWriter,
    fork: FolderWriter,
    on_file: ProgressCallback = lambda done, total: None,
) -> None:
    """Install a fork's files in a checkpoint, and record in the fork where its query continues.

    The record is valid only while the journal is in the checkpoint's history and not undone, so it is written first.
    """
    record = PromotionRecord(files.root, journal.id)
    fork.replace(PROMOTED, (json.dumps(asdict(record)) + "\n").encode())
    fork.sync()
    carry_out(journal, install_set, files, on_file)
