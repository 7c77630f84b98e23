"""Files of a state store: the SST files that a RocksDB snapshot names, checksum files, and schema files.

A schema file starts with its version. Versions 1 and 2 hold the schemas of the key and the value; version 3 holds those
of each column family. A `text` is JSON in one piece, `texts` are JSON in several pieces.
"""

import io
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from itertools import islice
from typing import Any

from respool.errors import DamagedFileError
from respool.untrusted import LONG, Fields, Malformed, parse_json

# The exceptions that Python raises on the bytes of a damaged zip.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    KeyError,
    ValueError,
    IndexError,
    OSError,
    OverflowError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    struct.error,
)


_MOST_PACKED = 100  # the largest compression ratio of RocksDB's small files
_MOST_SMALL = 16 * 2**20  # bytes that any zip may hold


def sst_files(path: str, data: bytes) -> dict[str, int]:
    """Return the SST files that a zip of RocksDB needs, with their sizes; raise CheckpointError for a damaged zip."""
    return _named(path, data)[0]


def files_named(path: str, data: bytes) -> list[str]:
    """Return all files that a zip of RocksDB needs, relative to its store's folder."""
    tables, logs = _named(path, data)
    return [*(f"SSTs/{name}" for name in tables), *(f"logs/{name}" for name in logs)]


def _named(path: str, data: bytes) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the SST files of a zip with their sizes, and its log files."""
    try:
        _, _, text = _zip_metadata(data).partition(b"\n")
        facts = Fields(parse_json(text), "its metadata")
        tables = facts.objects("sstFiles", lambda table: (table.file_name("dfsSstFileName"), table.whole("sizeBytes")))
        logs = facts.objects("logFiles", lambda log: log.file_name("dfsLogFileName")) if "logFiles" in facts else ()
        return dict(tables), logs
    except (Malformed, *_DAMAGED) as error:
        raise DamagedFileError(path, str(error)) from error


def _zip_metadata(data: bytes) -> bytes:
    """Return the metadata in a zip, after checking the checksums of all its entries."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
        most = _MOST_PACKED * len(data) + _MOST_SMALL
        if size > most:
            raise Malformed(f"it declares {size:,} bytes; at most {most:,} were expected")
        wrong = archive.testzip()
        if wrong is not None:
            raise Malformed(f"{wrong[:60]!a} in it does not match its checksum")
        return archive.read("metadata")


_HADOOP = b"crc\0"
_INT = struct.Struct(">i")


def checksum(data: bytes, hidden: bytes) -> str | None:
    """Return how a file differs from Hadoop's checksum file; None if it matches or the checksum file is invalid."""
    if not hidden.startswith(_HADOOP) or len(hidden) < 8:
        return None  # Hadoop ignores it
    (size,) = _INT.unpack_from(hidden, len(_HADOOP))
    if size <= 0:
        return None
    sums = memoryview(hidden)[8:]
    expected = (value for (value,) in struct.iter_unpack(">I", sums[: len(sums) - len(sums) % 4]))
    view = memoryview(data)
    for at in range(0, len(data), size):
        if zlib.crc32(view[at : at + size]) != next(expected, None):
            return f"its bytes from {at} on do not match its hidden checksum file"
    return "it is shorter than its hidden checksum file says" if list(islice(expected, 1)) else None


def spark_checksum(data: bytes, visible: bytes) -> str | None:
    """Return how a file differs from Spark's own checksum file; None if it matches."""
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
    actual = int(google_crc32c.value(data))
    return None if actual == expected & 0xFFFFFFFF else "it does not match its checksum file"


_UTF = struct.Struct(">H")
_PARTS = {
    "v1": ("text", "text"),
    "v2": ("texts", "texts"),
    "v3": ("name", "id and texts", "id and texts", "texts", "texts"),
}
DEFAULT = "default"


class UnknownSchemaError(ValueError):
    """A schema file has a version that this respool does not support: it is not damaged."""


@dataclass(frozen=True)
class ColumnFamily:
    """A column family of a state store: a table of keys and values.

    Attributes:
        name: Its name; `default` in a store with a single column family.
        key: The schema of its keys, as in Spark's JSON.
        value: The schema of its values.
    """

    name: str
    key: Any
    value: Any


def families(data: bytes) -> tuple[ColumnFamily, ...]:
    """Return the column families of a schema file; raise ValueError with the problem."""
    try:
        version, at = _text(data, 0)
        if version in _PARTS:
            return _families(data, at, version)
    except (struct.error, ValueError) as error:
        raise ValueError("it ends too early or is not a schema") from error
    if re.fullmatch("v[0-9]{1,3}", version):
        raise UnknownSchemaError(f"has format version {version}; this respool supports {', '.join(_PARTS)}")
    raise ValueError(f"it begins with {version[:20]!a}, expected {', '.join(_PARTS)}")


def _families(data: bytes, at: int, version: str) -> tuple[ColumnFamily, ...]:
    count, at = _number(data, at) if version == "v3" else (1, at)
    families = []
    for _ in range(count):
        name, schemas = DEFAULT, []
        for part in _PARTS[version]:
            text, at = _part(data, at, part)
            if part == "name":
                name = text
            else:
                schemas.append(parse_json(text))
        families.append(ColumnFamily(name, schemas[0], schemas[1]))
    return tuple(families)


def _part(data: bytes, at: int, part: str) -> tuple[str, int]:
    if part in ("name", "text"):
        return _text(data, at)
    at += _UTF.size if part == "id and texts" else 0
    chunks, at = _number(data, at)
    texts = []
    for _ in range(chunks):
        text, at = _text(data, at)
        texts.append(text)
    return "".join(texts), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    (number,) = _INT.unpack_from(data, at)
    if not 0 <= number <= len(data):
        raise ValueError(number)
    return number, at + _INT.size


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _UTF.unpack_from(data, at)
    end = at + _UTF.size + size
    if end > len(data):
        raise ValueError(end)
    return data[at + _UTF.size : end].decode(errors="replace"), end
