"""From the bytes of one file to what is wrong with it. Nothing is read here.

What counts is what Spark does with the file. On a local disk Hadoop keeps a checksum beside each file, but Spark
compares it only when it copies zips of state format 1 and SST files. Elsewhere, where the file has checksums in it that
fit, one beside it that does not fit is told as stale.
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
    """What is wrong with a file.

    Attributes:
        why: What keeps Spark from reading it; None if nothing was found.
        stale: Whether its hidden checksum does not fit, though Spark does not mind.
        tables: The SST files that a zip needs, with their sizes; None for what is no zip, or none any more.
    """

    why: str | None = None
    stale: bool = False
    tables: Mapping[str, int] | None = None


def of(
    name: str, data: bytes, codec: str = "lz4", hidden: bytes | None = None, visible: bytes | None = None
) -> FileDamage:
    """Return what is wrong with a file of a state store.

    Args:
        name: Its name.
        data: Its bytes.
        codec: The codec in the checkpoint's settings.
        hidden: The bytes of Hadoop's checksum file of it, if there is one.
        visible: The bytes of Spark's checksum file of it, if there is one.
    """
    if not data:
        return FileDamage("it is empty")
    amiss = None if hidden is None else checksum(data, hidden)
    file = layout.state_file(name)
    if file is None:  # an SST
        return FileDamage(amiss)
    differs = None if visible is None else spark_checksum(data, visible)
    if file.kind == "zip":
        counts, ignored = (amiss, None) if file.uid is None else (differs, amiss)
        try:
            return FileDamage(counts, counts is None and ignored is not None, state_files.sst_files(name, data))
        except DamagedFileError as error:
            return FileDamage(error.problem)
    trusted = hidden is not None and amiss is None
    why = state_stream.broken(file.kind, data, codec, trusted) or differs
    if not state_stream.has_checksums(codec):
        why = why or amiss  # Spark would read wrong bytes without a word
    return FileDamage(why, stale=amiss is not None and why is None)


def unreadable(path: str, why: str) -> Finding:
    """Return the finding of a file or folder that may not be read."""
    return Finding(f"{path} cannot be read: {why}.", READ_REMEDY)


def rewind(root: str, batch: int, *flags: str) -> str:
    """Return the command that rewinds a checkpoint."""
    return " ".join(["respool checkpoint rewind", shlex.quote(root), f"--to-batch {batch}", *flags])
