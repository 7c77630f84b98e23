"""Where a checkpoint or a store of savepoints may be put: not inside another one, not around one, not in a table.

A checkpoint inside another one is moved, restored and deleted with it; inside a savepoint it counts as damage to it;
inside a store it looks like a savepoint that was cut off, which the next savepoint of that name removes.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from respool.errors import CheckpointError
from respool.locations import local_path
from respool.savepoint.manifest import parse
from respool.storage.folder import FolderReader
from respool.storage.open import new_writer

_MANIFEST = "manifest.json"
_CHECKPOINT = frozenset({"offsets", "commits", "metadata"})
_MOST_CHILDREN = 200  # folders that are looked into for a savepoint
_MOST_FOLDERS = 1_000  # folders that are looked into for a checkpoint inside
_DEPTH = 4


def require_place(where: str) -> None:
    """Raise CheckpointError when a checkpoint must not be put into a folder or URL: it is inside another, or around it.

    What is in the folder itself is the caller's concern, as long as it is a checkpoint or nothing.
    """
    what = "A checkpoint needs a folder of its own"
    files, own = _own_kind(where)
    if own == "savepoint":
        raise _refused(where, "is a savepoint", what)
    _require_outside(where, what)
    if own is not None:
        return
    if local_path(where) is not None and _holds_savepoints(files):
        raise _refused(where, "is a store of savepoints", what)
    inside = next(_checkpoints_in(files), None)
    if inside is not None:
        raise _refused(where, f"contains the checkpoint {inside}", what)


def require_store_place(where: str) -> None:
    """Raise CheckpointError when savepoints must not be kept in a folder or URL: it is something else, or inside it."""
    what = "Savepoints need a folder of their own"
    _, own = _own_kind(where)
    if own is not None:
        raise _refused(where, f"is a {own}", what)
    _require_outside(where, what)


def _own_kind(where: str) -> tuple[FolderReader, str | None]:
    files = new_writer(where)
    try:
        return files, _kind(files)
    except _Unreadable:
        return files, None  # the caller reports it as soon as it reads or writes there


def _require_outside(where: str, what: str) -> None:
    for outer, below in _ancestors(where):
        try:
            files = new_writer(outer)
            own = _kind(files)
            if own is not None:
                raise _refused(where, f"is inside the {own} {outer}", what)
            if below[:1] not in ("_", ".") and _is_table(files):
                raise _refused(where, f"is inside the table {outer}", what)
            if local_path(outer) is not None and _holds_savepoints(files):
                raise _refused(where, f"is inside the store of savepoints {outer}", what)
        except _Unreadable:
            continue


def _refused(where: str, why: str, what: str) -> CheckpointError:
    return CheckpointError(f"{where} {why}. {what}; name another. Nothing was changed.")


class _Unreadable(Exception):
    """A folder above cannot be looked into, as is usual for an account that only has its own folder."""


def _ancestors(where: str) -> Iterator[tuple[str, str]]:
    """Yield the folders above a place, the nearest first, and the name of the folder below it on the way there."""
    path = local_path(where)
    if path is None:
        scheme, _, rest = where.partition("://")
        parts = PurePosixPath(rest.strip("/")).parts
        for count in range(len(parts) - 1, 0, -1):
            yield f"{scheme}://{'/'.join(parts[:count])}", parts[count]
        return
    written = Path(os.path.normpath(path.expanduser().absolute()))
    seen = set()
    for one in (written, Path(os.path.realpath(written))):  # a link can lead into a checkpoint, or be in one
        for below, outer in zip((one, *one.parents), one.parents, strict=False):
            if outer not in seen:
                seen.add(outer)
                yield str(outer), below.name


def _kind(files: FolderReader) -> str | None:
    """Return what a folder is, if it is a checkpoint or a savepoint."""
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
        return False  # cannot be looked into, as is usual for an account that only has its own folder


def _is_savepoint(files: FolderReader, path: str) -> bool:
    try:
        parse(path, files.read(path))
    except (OSError, CheckpointError):
        return False
    return True


def _checkpoints_in(files: FolderReader) -> Iterator[str]:
    """Yield the checkpoints below a folder, a few levels deep."""
    level, looked = [""], 0
    for _ in range(_DEPTH):
        below = []
        for folder in level:
            looked += 1
            if looked > _MOST_FOLDERS:
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
