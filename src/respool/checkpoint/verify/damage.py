"""From the bytes of one file to the damage in it. Nothing is read here.

The standard is what Spark does with the file. On a local disk Hadoop keeps a checksum next to each file, but Spark
compares it only when it copies zips of state format 1 and SST files. Elsewhere, if the checksums inside the file match,
a checksum file that does not match is reported as stale.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from respool.errors import DamagedFileError
from respool.findings import READ_REMEDY, Finding
from respool.format import layout, state_files, state_stream
from respool.format.state_files import checksum, spark_checksum


@dataclass(frozen=True)
class FileDamage:
    """The damage of a file.

    Attributes:
        why: Why Spark cannot read it; None if it can.
        stale: Whether its hidden checksum does not match, which Spark ignores.
        tables: The SST files that a zip needs, with their sizes; None for other files and for a damaged zip.
    """

    why: str | None = None
    stale: bool = False
    tables: Mapping[str, int] | None = None


def of(
    name: str, data: bytes, codec: str = "lz4", hidden: bytes | None = None, visible: bytes | None = None
) -> FileDamage:
    """Return the damage of a file of a state store.

    Args:
        name: Its name.
        data: Its bytes.
        codec: The codec in the checkpoint's settings.
        hidden: The bytes of Hadoop's checksum file; None when there is no such file.
        visible: The bytes of Spark's checksum file; None when there is no such file.
    """
    if not data:
        return FileDamage("it is empty")
    mismatch = None if hidden is None else checksum(data, hidden)
    file = layout.state_file(name)
    if file is None:  # an SST
        return FileDamage(mismatch)
    differs = None if visible is None else spark_checksum(data, visible)
    if file.kind == "zip":
        counts, ignored = (mismatch, None) if file.uid is None else (differs, mismatch)
        try:
            return FileDamage(counts, counts is None and ignored is not None, state_files.sst_files(name, data))
        except DamagedFileError as error:
            return FileDamage(error.problem)
    trusted = hidden is not None and mismatch is None
    why = state_stream.broken(file.kind, data, codec, trusted) or differs
    if not state_stream.has_checksums(codec):
        why = why or mismatch  # Spark would read wrong bytes silently
    return FileDamage(why, stale=mismatch is not None and why is None)


def unreadable(path: str, why: str) -> Finding:
    """Return the finding about a file or folder that this account cannot read."""
    return Finding(f"{path} cannot be read: {why}.", READ_REMEDY)


def rewind(root: str, batch: int, *flags: str) -> str:
    """Return the command that rewinds a checkpoint."""
    return " ".join(["respool checkpoint rewind", shlex.quote(root), f"--to-batch {batch}", *flags])
