"""From the bytes of one file to what is wrong with it. Nothing is read here.

What counts is what Spark does with the file. On a local disk Hadoop keeps a checksum beside each file, but Spark
compares it only when it copies zips of state format 1 and SST files. Elsewhere, where the file has checksums in it that
fit, one beside it that does not fit is told as stale.
"""

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from respool.checkpoint import layout, loading
from respool.checkpoint.verifying import state_stream
from respool.errors import DamagedFileError
from respool.untrusted import LONG, Fields, Malformed, parse_json

_HADOOP = b"crc\0"
_INT = struct.Struct(">i")


@dataclass(frozen=True)
class Verdict:
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
) -> Verdict:
    """Return what is wrong with a file of a state store.

    Args:
        name: Its name.
        data: Its bytes.
        codec: The codec in the checkpoint's settings.
        hidden: The bytes of Hadoop's checksum file of it, if there is one.
        visible: The bytes of Spark's checksum file of it, if there is one.
    """
    if not data:
        return Verdict("it is empty")
    amiss = None if hidden is None else checksum(data, hidden)
    file = layout.state_file(name)
    if file is None:  # an SST
        return Verdict(amiss)
    differs = None if visible is None else spark_checksum(data, visible)
    if file.kind == "zip":
        counts, ignored = (amiss, None) if file.uid is None else (differs, amiss)
        try:
            return Verdict(counts, counts is None and ignored is not None, loading.tables_named(name, data))
        except DamagedFileError as error:
            return Verdict(error.problem)
    trusted = hidden is not None and amiss is None
    why = state_stream.broken(file.kind, data, codec, trusted) or differs
    if not state_stream.has_checksums(codec):
        why = why or amiss  # Spark would read wrong bytes without a word
    return Verdict(why, stale=amiss is not None and why is None)


def checksum(data: bytes, hidden: bytes) -> str | None:
    """Return how a file differs from what Hadoop's checksum file says; None if not, or if that is not one."""
    if not hidden.startswith(_HADOOP) or len(hidden) < 8:
        return None  # Hadoop takes it for none
    (size,) = _INT.unpack_from(hidden, len(_HADOOP))
    if size <= 0:
        return None
    sums = memoryview(hidden)[8:]
    expected = (one for (one,) in struct.iter_unpack(">I", sums[: len(sums) - len(sums) % 4]))
    view = memoryview(data)
    for at in range(0, len(data), size):
        if zlib.crc32(view[at : at + size]) != next(expected, None):
            return f"its bytes from {at} on do not fit its hidden checksum file"
    return "it is shorter than its hidden checksum file says" if list(islice(expected, 1)) else None


def spark_checksum(data: bytes, visible: bytes) -> str | None:
    """Return how a file differs from what Spark's own checksum file says; None if not."""
    import google_crc32c

    try:
        facts = Fields(parse_json(visible, max_bytes=2**20))
        algorithm, expected = facts.text("algorithm"), facts.whole("value", least=-LONG)
        size = facts.whole("mainFileSize")
    except Malformed:
        return "its checksum file is damaged"
    if size != len(data):
        return f"it has {len(data):,} bytes, its checksum file says {size:,}"
    if algorithm != "CRC32C":
        return None
    found = int(google_crc32c.value(data))
    return None if found == expected & 0xFFFFFFFF else "it does not fit its checksum file"
