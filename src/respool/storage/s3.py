"""The requests to S3 that a folder needs, one for each operation: fsspec's own methods send up to four."""

from collections.abc import Iterator
from inspect import signature
from typing import Any, NamedTuple

from respool.storage.folder import FileInfo

LARGE = 50 * 2**20  # bytes from which a file is read in parallel, in parts
_COPIED_WHOLE = 5 * 2**30  # the most bytes that one request copies


class Listing(NamedTuple):
    """A page of a listing: the objects by their keys, and the common prefixes, which end with a slash."""

    objects: dict[str, FileInfo]
    prefixes: list[str]


def pages(fs: Any, path: str, deep: bool) -> Iterator[Listing]:
    """List a folder in pages of 1,000 keys.

    Args:
        fs: s3fs's filesystem.
        path: The bucket and the folder.
        deep: Whether to list the folders in it, too.
    """
    bucket, _, folder = path.partition("/")
    wanted: dict[str, str] = {"Bucket": bucket, "Prefix": f"{folder}/" if folder else ""}
    if not deep:
        wanted["Delimiter"] = "/"
    while True:
        page = fs.call_s3("list_objects_v2", **wanted)
        objects = {entry["Key"]: _info(entry, entry["Size"]) for entry in page.get("Contents", ())}
        yield Listing(objects, [entry["Prefix"] for entry in page.get("CommonPrefixes", ())])
        if not page.get("IsTruncated"):
            return
        wanted["ContinuationToken"] = page["NextContinuationToken"]


def info(fs: Any, path: str) -> FileInfo | None:
    """Return the facts of an object; None when it does not exist."""
    bucket, _, key = path.partition("/")
    try:
        head = fs.call_s3("head_object", Bucket=bucket, Key=key)
    except FileNotFoundError:
        return None
    return _info(head, head["ContentLength"])


def copy(fs: Any, source: str, target: str, before: FileInfo) -> str | None:
    """Copy an object inside the store; return the version of the copy, None when the store does not return it.

    Args:
        fs: s3fs's filesystem.
        source: The bucket and the key.
        target: Those of the copy.
        before: The facts of the source: a version that has been replaced since is not copied.
    """
    if before.size > _COPIED_WHOLE:
        fs.cp_file(source, target)
        return None
    bucket, _, key = source.partition("/")
    to_bucket, _, to_key = target.partition("/")
    condition = {"CopySourceIfMatch": f'"{before.version}"'} if before.version else {}
    place = {"Bucket": bucket, "Key": key}
    answer = fs.call_s3("copy_object", Bucket=to_bucket, Key=to_key, CopySource=place, **condition)
    return _version(answer.get("CopyObjectResult", {}))


def reading_whole(fs: Any) -> dict[str, Any]:
    """Return the arguments with which s3fs reads a file by one request: to read it in parts it asks for its size first.

    Older versions of s3fs never read a file in parts.
    """
    return {"max_concurrency": 1} if "max_concurrency" in signature(fs.cat_file).parameters else {}


def delete(fs: Any, path: str) -> None:
    """Delete an object, or a marker of a folder, if it exists."""
    bucket, _, key = path.partition("/")
    fs.call_s3("delete_object", Bucket=bucket, Key=key)


def _info(entry: dict[str, Any], size: int) -> FileInfo:
    modified = entry.get("LastModified")
    return FileInfo(size, modified.timestamp() if modified is not None else None, _version(entry))


def _version(entry: dict[str, Any]) -> str | None:
    return str(entry.get("ETag") or "").strip('"') or None  # some stores leave the quotes out
