"""Open a folder for reading or for writing, on a local disk or another filesystem."""

from pathlib import Path

from respool.errors import CheckpointError, CheckpointNotFoundError, UnreadableFileError
from respool.locations import local_path, scheme_of, store_of
from respool.storage.folder import FolderReader, FolderWriter, short_message
from respool.untrusted import file_name


def open_reader(location: str) -> FolderReader:
    """Return a reader of an existing folder; raise CheckpointError when the folder does not exist."""
    path = local_path(location)
    if path is None:
        from respool.storage.remote import RemoteReader

        return RemoteReader(location)
    from respool.storage.local import LocalReader

    return LocalReader(_existing(path))


def open_writer(location: str) -> FolderWriter:
    """Return a writer of an existing folder; raise CheckpointError when the folder does not exist."""
    path = local_path(location)
    return new_writer(location if path is None else str(_existing(path)))


def new_writer(location: str) -> FolderWriter:
    """Return a writer of a folder that may be missing: the first write creates it."""
    path = local_path(location)
    if path is None:
        from respool.storage.remote import RemoteWriter

        return RemoteWriter(location)
    from respool.storage.local import LocalWriter

    return LocalWriter(_existing(path) if _exists(path) else path)


def open_referenced(location: str, root: str) -> FolderReader:
    """Return a reader of a folder that is named in a file, which somebody else may have written.

    Raises:
        CheckpointError: The URL is of another kind than `require_referenced` accepts, or the folder does not exist.
    """
    require_referenced(location, root)
    return open_reader(location)


def require_referenced(location: str, root: str) -> None:
    """Raise CheckpointError for a place that must not be contacted only because a file names it.

    Only a local disk, an object store and the kind of filesystem that holds the file are contacted: any other URL could
    lead to a server of the author's choice, which need not answer.

    Args:
        location: The folder or URL that the file names.
        root: The folder or URL that holds the file.
    """
    if local_path(location) is None and store_of(location) is None and scheme_of(location) != scheme_of(root):
        raise CheckpointError(
            f"{location} is named by a file in {root}, which somebody else may have written; only folders of this "
            "machine and of object stores are read because of such a file. Nothing was changed."
        )


def _exists(path: Path) -> bool:
    """Return whether a path exists; raise UnreadableFileError when that cannot be determined."""
    try:
        return path.exists()
    except OSError as error:
        raise UnreadableFileError(
            str(path), f"cannot be opened: {short_message(error)}", "Check the path and its permissions."
        ) from error


def _existing(path: Path) -> Path:
    if not _exists(path):
        raise CheckpointNotFoundError(str(path), "the folder does not exist", "Name a pipeline, a folder or a URL.")
    if not path.is_dir():
        raise CheckpointNotFoundError(str(path), "it is a file; expected a checkpoint's folder")
    return path


def open_inside(location: str, name: str) -> FolderReader:
    """Return a reader of a folder in another folder, whose name was read from a file.

    Raises:
        CheckpointError: The name is not a single file name, or the folder is a symbolic link or does not exist.
    """
    try:
        file_name(name)
    except ValueError as error:
        raise CheckpointError(f"{location}: {error}. Nothing was done with it.") from None
    path = local_path(location)
    if path is not None and (path / name).is_symlink():
        problem = "is a symbolic link; respool does not follow links inside a checkpoint or a savepoint"
        raise UnreadableFileError(str(path / name), problem, "Replace the link by the folder itself.")
    return open_reader(f"{location}/{name}")
