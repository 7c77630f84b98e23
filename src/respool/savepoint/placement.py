"""Where a checkpoint or a savepoint store may be put: not inside another one, not around one, not in a table.

A checkpoint inside another checkpoint is moved, restored and deleted with it. Inside a savepoint it is reported as
damage. Inside a store it looks like an unfinished savepoint, which the next savepoint of that name removes.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from respool.errors import CheckpointError
from respool.locations import expand_user, local_path
from respool.savepoint.manifest import parse
from respool.storage.folder import FolderReader
from respool.storage.open import new_writer

_MANIFEST = "manifest.json"
_CHECKPOINT = frozenset({"offsets", "commits", "metadata"})
_MOST_CHILDREN = 200  # folders searched for a savepoint
_MOST_FOLDERS = 1_000  # folders searched for a checkpoint inside
_DEPTH = 4


def require_place(location: str) -> None:
    """Raise CheckpointError when a folder or URL cannot hold a checkpoint: it is inside another one, or around one.

    The contents of the folder itself are the caller's concern, as long as it is a checkpoint or empty.
    """
    rule = "A checkpoint needs its own folder"
    files, own = _own_kind(location)
    if own == "savepoint":
        raise _refused(location, "is a savepoint", rule)
    _require_outside(location, rule)
    if own is not None:
        return
    if local_path(location) is not None and _holds_savepoints(files):
        raise _refused(location, "is a savepoint store", rule)
    inside = next(_checkpoints_in(files), None)
    if inside is not None:
        raise _refused(location, f"contains the checkpoint {inside}", rule)


def require_store_place(location: str) -> None:
    """Raise CheckpointError when a folder or URL cannot be a savepoint store: it is something else, or inside it."""
    rule = "Savepoints need their own folder"
    _, own = _own_kind(location)
    if own is not None:
        raise _refused(location, f"is a {own}", rule)
    _require_outside(location, rule)


def _own_kind(location: str) -> tuple[FolderReader, str | None]:
    files = new_writer(location)
    try:
        return files, _kind(files)
    except _Unreadable:
        return files, None  # the caller reports it as soon as it reads or writes there


def _require_outside(location: str, rule: str) -> None:
    for outer, below in _ancestors(location):
        try:
            files = new_writer(outer)
            own = _kind(files)
            if own is not None:
                raise _refused(location, f"is inside the {own} {outer}", rule)
            if below[:1] not in ("_", ".") and _is_table(files):
                raise _refused(location, f"is inside the table {outer}", rule)
            if local_path(outer) is not None and _holds_savepoints(files):
                raise _refused(location, f"is inside the savepoint store {outer}", rule)
        except _Unreadable:
            continue


def _refused(location: str, why: str, rule: str) -> CheckpointError:
    return CheckpointError(f"{location} {why}. {rule}; name another. Nothing was changed.")


class _Unreadable(Exception):
    """A parent folder cannot be read, as is usual for an account that only has its own folder."""


def _ancestors(location: str) -> Iterator[tuple[str, str]]:
    """Yield the folders above a location, the nearest first, each with the name of its subfolder on the path."""
    path = local_path(location)
    if path is None:
        scheme, _, rest = location.partition("://")
        parts = PurePosixPath(rest.strip("/")).parts
        for count in range(len(parts) - 1, 0, -1):
            yield f"{scheme}://{'/'.join(parts[:count])}", parts[count]
        return
    written = Path(os.path.normpath(expand_user(path).absolute()))
    seen = set()
    for folder in (written, Path(os.path.realpath(written))):  # a link can lead into a checkpoint, or be inside it
        for below, outer in zip((folder, *folder.parents), folder.parents, strict=False):
            if outer not in seen:
                seen.add(outer)
                yield str(outer), below.name


def _kind(files: FolderReader) -> str | None:
    """Return whether a folder is a checkpoint or a savepoint; None for neither."""
    try:
        if files.facts(["metadata"]) and {"offsets", "commits"} & set(files.folders("")):
            return "checkpoint"
        if files.facts([_MANIFEST]) and _is_savepoint(files, _MANIFEST):
            return "savepoint"
    except (OSError, CheckpointError) as error:
        raise _Unreadable from error
    return None


def _is_table(files: FolderReader) -> bool:
    """Return whether a folder is a Delta table, or the output of a file sink."""
    logs = ("_delta_log/_last_checkpoint", f"_delta_log/{0:020}.json", "_spark_metadata/0")
    try:
        return bool(files.facts(logs))
    except (OSError, CheckpointError) as error:
        raise _Unreadable from error


def _holds_savepoints(files: FolderReader) -> bool:
    try:
        names = files.folders("")[:_MOST_CHILDREN]
        manifests = [f"{name}/{_MANIFEST}" for name in names]
        return any(_is_savepoint(files, path) for path in files.facts(manifests))
    except (OSError, CheckpointError):
        return False  # cannot be read, as is usual for an account that only has its own folder


def _is_savepoint(files: FolderReader, path: str) -> bool:
    try:
        parse(path, files.read(path))
    except (OSError, CheckpointError):
        return False
    return True


def _checkpoints_in(files: FolderReader) -> Iterator[str]:
    """Yield the checkpoints below a folder, up to a few levels deep."""
    level, visited = [""], 0
    for _ in range(_DEPTH):
        below = []
        for folder in level:
            visited += 1
            if visited > _MOST_FOLDERS:
                return
            try:
                names = files.folders(folder)
            except (OSError, CheckpointError):
                continue
            inside = {*names, *(files.names(folder) if "offsets" in names or "commits" in names else ())}
            if folder and len(_CHECKPOINT & inside) > 1:
                yield f"{files.root}/{folder}"
            below += [f"{folder}/{name}" if folder else name for name in names if name != "_respool"]
        level = below
