"""Local paths and URLs of other filesystems: the one place that distinguishes them."""

import re
from pathlib import Path

from respool.errors import CheckpointError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def scheme_of(location: str) -> str | None:
    """Return the scheme of a URL in lower case, such as s3 for `s3://bucket/folder`; None for a path.

    `dbfs:/folder`, with one slash, is a URL, too. A scheme has two letters at least: `c:/folder` is a path.
    """
    match = _SCHEME.match(location)
    return match[1].lower() if match else None


def canonical_location(location: str) -> str:
    """Return the canonical form of a path or URL, for comparisons; a relative path stays relative."""
    if scheme_of(location) is not None:
        return location.rstrip("/")
    return str(Path(location).expanduser())


OWN = "_respool"  # respool's folder in a checkpoint, which Spark ignores


def local_path(location: str) -> Path | None:
    """Return the path of a folder on a local disk, or None for a URL of another filesystem."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    if re.match(r"dbfs:/(?!/)", location):
        raise CheckpointError(
            f"{location} can be read in Databricks only. Name the same folder as it is mounted there, "
            f"/dbfs/{location.removeprefix('dbfs:/')}, or a copy of it on a disk or an object store."
        )
    return Path(location) if scheme_of(location) is None else None


def absolute(location: str) -> str:
    """Return an absolute path, or the URL itself."""
    path = local_path(location)
    return location.rstrip("/") if path is None else str(path.expanduser().absolute())


def locate_output(output: str) -> str:
    """Return the location of a folder for results: an absolute path, or a URL."""
    return output if scheme_of(output) is not None else str(Path(output).expanduser().absolute())


def is_occupied(output: str) -> bool:
    """Return whether a path of this machine is a file or a folder that is not empty; for a URL, False."""
    path = Path(output)
    return scheme_of(output) is None and (path.is_file() or (path.is_dir() and any(path.iterdir())))
