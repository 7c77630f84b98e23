"""Local paths and URLs of other filesystems: the one place that distinguishes them.

The same object store has several names: Spark's connector for S3 is `s3a`, fsspec and delta-rs call it `s3`. A URL may
be given in any of them. respool keeps and compares the canonical form, `s3://bucket/folder`; `for_spark` returns the
form that Spark expects. A local path is passed to Spark as a `file:` URI, since `fs.defaultFS` applies to a path
without a scheme.

| store                   | names                 | canonical | Spark   |
|-------------------------|-----------------------|-----------|---------|
| S3                      | s3, s3a, s3n          | s3        | s3a     |
| Google Cloud Storage    | gs, gcs               | gs        | gs      |
| Azure Data Lake Storage | abfs, abfss, az       | abfs      | abfss   |
"""

import re
from pathlib import Path

from respool.errors import CheckpointError, SettingsError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_CANONICAL = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfs"}
_CANONICAL |= {"az": "abfs"}
_OF_SPARK = {"s3": "s3a", "abfs": "abfss"}
# What begins like the URL of a store, with its colon and slashes.
_OF_STORE = re.compile(rf"({'|'.join(_CANONICAL)})(:/*|//+)(.*)", re.IGNORECASE | re.DOTALL)


def scheme_of(location: str) -> str | None:
    """Return the scheme of a URL in lower case, such as s3 for `s3://bucket/folder`; None for a path.

    `dbfs:/folder`, with one slash, is a URL, too. A scheme has two letters at least: `c:/folder` is a path.
    """
    match = _SCHEME.match(location)
    return match[1].lower() if match else None


def store_of(location: str) -> str | None:
    """Return the canonical scheme of an object store, such as s3 for `s3a://bucket/folder`; None for anything else."""
    return _CANONICAL.get(scheme_of(location) or "")


def canonical_location(location: str) -> str:
    """Return the canonical form of a path or URL, for comparisons; a relative path stays relative."""
    store = store_of(location)
    if store is not None:
        place = location.split(":", 1)[1].lstrip("/")
        return f"{store}://{re.sub('/+', '/', place).rstrip('/')}"  # Hadoop merges slashes, too
    if scheme_of(location) is not None:
        return location.rstrip("/")
    return str(expand_user(Path(location)))


OWN = "_respool"  # respool's folder in a checkpoint, which Spark ignores


def expand_user(path: Path) -> Path:
    """Return a path with `~` or `~USER` at its start replaced by the home folder; raise SettingsError without one."""
    try:
        return path.expanduser()
    except RuntimeError:
        name = path.parts[0]
        whose = "this account" if name == "~" else f"a user {name[1:]}"
        raise SettingsError(
            f"{path} starts with {name}, but this machine has no home folder for {whose}. Write the path in full, or "
            f"{'set HOME' if name == '~' else f'a folder of that name as ./{path}'}."
        ) from None


def local_path(location: str) -> Path | None:
    """Return the path of a folder on a local disk, or None for a URL of another filesystem.

    Raises:
        CheckpointError: It looks like the URL of an object store, but is not.
    """
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    if re.match(r"dbfs:/(?!/)", location):
        raise CheckpointError(
            f"{location} can be read in Databricks only. Name the same folder as it is mounted there, "
            f"/dbfs/{location.removeprefix('dbfs:/')}, or a copy of it on a disk or an object store."
        )
    _require_complete(location)
    return Path(location) if scheme_of(location) is None else None


def _require_complete(location: str) -> None:
    """Raise CheckpointError for a URL of an object store that is misspelled: it would name a local folder."""
    match = _OF_STORE.fullmatch(location)
    if match is None:
        return
    scheme, separator, place = match.groups()
    if not place.strip("/"):
        raise CheckpointError(f"{location} names no bucket. Write the URL as {scheme}://BUCKET/FOLDER.")
    if separator != "://":
        raise CheckpointError(
            f"{location} is not a URL: after {scheme} it has '{separator}'; expected '://'. Write it as "
            f"{scheme}://{place}, or a local folder as ./{location}."
        )
    if {".", ".."} & set(place.split("/")):
        raise CheckpointError(
            f"{location} has a part '.' or '..', which an object store takes as a name. Write the URL without it."
        )


def absolute(location: str) -> str:
    """Return an absolute path, or a URL in canonical form."""
    path = local_path(location)
    return canonical_location(location) if path is None else str(expand_user(path).absolute())


def under(store: str, name: str) -> str:
    """Return the location of a folder, by its name in a store, by its path or by its URL.

    Args:
        store: The folder or URL under which a relative path is.
        name: A URL, an absolute path, or a relative path.
    """
    path = local_path(name)
    if path is None:
        return canonical_location(name)
    path = expand_user(path)
    return str(path) if path.is_absolute() else absolute(f"{store.rstrip('/')}/{path}")


def for_spark(location: str) -> str:
    """Return a location in the form that Spark and Hadoop expect; it is not percent-encoded, as Hadoop's own are."""
    path = local_path(location)
    if path is not None:
        return f"file:{expand_user(path).absolute()}"
    location = canonical_location(location)
    scheme, _, place = location.partition("://")
    return f"{_OF_SPARK.get(scheme, scheme)}://{place}" if place else location


def is_occupied(output: str) -> bool:
    """Return whether a path of this machine is a file or a folder that is not empty; for a URL, False."""
    path = local_path(output)
    return path is not None and (path.is_file() or (path.is_dir() and any(path.iterdir())))
