"""The bytes of a delta, a snapshot or a changelog: records up to an end mark, compressed by Spark.

On most filesystems Spark reads these files without a checksum of the whole file. Only their records show whether they
are complete.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import xxhash

from respool.format.model import StateKind

_INT = struct.Struct(">i")
_UTF = struct.Struct(">H")
_BLOCK = struct.Struct("<8sBiiI")  # of lz4-java: magic, method and level, size in the file, size, checksum
_LZ4, _ZSTD, _LZF = b"LZ4Block", b"\x28\xb5\x2f\xfd", b"ZV"
_SNAPPY = b"\x82SNAPPY\0"
_SNAPPY_HEADER = 16
_RAW, _COMPRESSED = 0x10, 0x20
_LEAST_BITS = 10  # of the size of a block
_MOST = 1 << 26  # larger than any block that Spark writes with snappy
_MOST_PLAIN = 1 << 31  # bytes held in memory to read the records of one file
_PIECE = 2**20  # bytes that are decompressed at a time
_MOST_PACKED = {"lz4_raw": 255, "snappy": 22}  # the largest compression ratio, by format
_SEED = 0x9747B28C
_SUM_BITS = 0x0FFFFFFF  # lz4-java keeps 28 bits of the checksum
_CODECS = ("lz4", "zstd", "snappy", "lzf")


class _TooLargeError(Exception):
    """A file has more bytes than are held in memory to read its records."""


class _BrokenError(Exception):
    """The bytes are damaged; the message has the reason."""


def broken(kind: StateKind, data: bytes, codec: str = "lz4", trusted: bool = False) -> str | None:
    """Return why Spark cannot read a state file; None if it can.

    Args:
        kind: The kind of file.
        data: Its bytes.
        codec: The codec in the checkpoint's settings, by its short name or its class.
        trusted: Whether a checksum has confirmed the bytes.
    """
    name = _codec(codec)
    if name is None:
        return None
    try:
        if trusted and (name != "lz4" or _is_ended(data)):
            return None  # these are the bytes that Spark wrote; decompressing them would show nothing more
        if name == "lzf":
            _require_chunks(data)
        else:
            _walk(kind, {"lz4": _lz4, "zstd": _zstd, "snappy": _snappy}[name](data))
    except _BrokenError as error:
        return str(error)
    except _TooLargeError:
        return None  # the blocks are sound as far as they were decompressed
    return None


def is_known(codec: str) -> bool:
    """Return whether files of a codec can be checked."""
    return _codec(codec) is not None


def _codec(codec: str) -> str | None:
    return next((name for name in _CODECS if name in codec.lower()), None)


def has_checksums(codec: str) -> bool:
    """Return whether files of a codec contain checksums, which reveal a changed byte."""
    return "lz4" in codec.lower()


def _lz4(data: bytes) -> bytes:
    import pyarrow

    codec = pyarrow.Codec("lz4_raw")
    parts: list[bytes] = []
    held = 0
    for method, block, size, expected in _blocks(data):
        held = _held(held, size)
        part = bytes(block) if method == _RAW else _unpacked(codec, block, size)
        if len(part) != size:
            raise _BrokenError("a block of it is shorter than it says")
        if size:  # the end mark has none
            if checksum(part) != expected:
                raise _BrokenError("a block of it does not match its checksum")
            parts.append(part)
    return b"".join(parts)


def checksum(block: bytes) -> int:
    """Return the checksum that lz4-java stores with a block of these bytes."""
    return xxhash.xxh32_intdigest(block, _SEED) & _SUM_BITS


def _blocks(data: bytes) -> Iterator[tuple[int, memoryview, int, int]]:
    """Yield the method, the bytes, the size and the checksum of each block that lz4-java wrote."""
    _require_magic(data, _LZ4)
    view, at = memoryview(data), 0
    while len(data) - at >= _BLOCK.size:  # Spark treats less than a block's header as the end
        magic, token, packed, size, expected = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        method, most = token & 0xF0, 1 << (_LEAST_BITS + (token & 0x0F))
        whole = 0 <= packed <= len(data) - at and 0 <= size <= most
        if magic != _LZ4 or method not in (_RAW, _COMPRESSED) or not whole:
            raise _BrokenError(f"a block of it is incomplete, {len(data) - at + _BLOCK.size} bytes before its end")
        yield method, view[at : at + packed], size, expected
        at += packed


def _is_ended(data: bytes) -> bool:
    """Return whether blocks of lz4-java fill a file up to their end mark."""
    return [size for _, _, size, _ in _blocks(data)][-1:] == [0]


def _zstd(data: bytes) -> bytes:
    import pyarrow

    _require_magic(data, _ZSTD)
    try:
        with pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd") as stream:
            parts, held = [], 0
            # `read` reserves as many bytes as it is asked for.
            while piece := stream.read(_PIECE):
                held = _held(held, len(piece))
                parts.append(piece)
    except (OSError, ValueError) as error:
        raise _BrokenError(f"it cannot be decompressed ({error})") from error
    return b"".join(parts)


def _snappy(data: bytes) -> bytes:
    import pyarrow

    codec = pyarrow.Codec("snappy")
    _require_magic(data, _SNAPPY)
    at, held = _SNAPPY_HEADER, 0
    parts: list[bytes] = []
    while len(data) - at >= _INT.size:
        (packed,) = _INT.unpack_from(data, at)
        at += _INT.size
        if not 0 <= packed <= len(data) - at:
            raise _BrokenError(f"a block of it is incomplete, {len(data) - at} bytes before its end")
        block = data[at : at + packed]
        size = _varint(block)
        held = _held(held, size)
        parts.append(_unpacked(codec, block, size))
        at += packed
    return b"".join(parts)


def _held(before: int, size: int) -> int:
    if before + size > _MOST_PLAIN:
        raise _TooLargeError
    return before + size


def _unpacked(codec: Any, block: "bytes | memoryview", size: int) -> bytes:
    if size > _MOST_PACKED[codec.name] * len(block) + 64:  # an impossible size is not allocated
        raise _BrokenError("a block of it declares more bytes than it can hold")
    try:
        return bytes(codec.decompress(block, decompressed_size=size, asbytes=True)) if size else b""
    except (OSError, ValueError) as error:
        raise _BrokenError("a block of it cannot be decompressed") from error


def _require_magic(data: bytes, magic: bytes) -> None:
    if not data.startswith(magic):
        raise _BrokenError(f"it begins with {data[:8]!r}, expected {magic!r}")


def _require_chunks(data: bytes) -> None:
    """Raise _BrokenError when the chunks of LZF do not fill the file; their content is not checked."""
    at = 0
    while at < len(data):
        header = 7 if data[at + 2 : at + 3] == b"\x01" else 5
        if data[at : at + 2] != _LZF or len(data) - at < header:
            raise _BrokenError(f"a chunk of it is incomplete, {len(data) - at} bytes before its end")
        at += header + int.from_bytes(data[at + 3 : at + 5], "big")
    if at > len(data):
        raise _BrokenError("its last chunk is incomplete")


def _varint(block: bytes) -> int:
    value = 0
    for place, byte in enumerate(block[:5]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80 and value <= _MOST:
            return value
    raise _BrokenError("a block of it has an impossible size")


def _walk(kind: StateKind, plain: bytes) -> None:
    """Read all records; raise _BrokenError when they do not end with an end mark."""
    try:
        at, version = _head(plain) if kind == "changelog" else (0, 1)
        records = _typed if version in (2, 4) else _untyped
        for size in records(plain, at):
            if size < (0 if kind == "snapshot" else -1):
                raise _BrokenError(f"a record of it has the size {size}")
    except (struct.error, IndexError) as error:
        raise _BrokenError("it ends in the middle of its records") from error


def _head(plain: bytes) -> tuple[int, int]:
    """Return where the records of a changelog begin, and its version."""
    text, at = _utf(plain, 0)
    if not (text[:1] == b"v" and text[1:].isdigit() and len(text) < 4):
        return 0, 1  # version 1 has no such line
    version = int(text[1:])
    if version not in (2, 3, 4):
        raise _BrokenError(f"it is of version {version}, expected 1 to 4")
    if version > 2:
        _, at = _utf(plain, at)  # the lineage: the versions that it builds on
    return at, version


def _utf(plain: bytes, at: int) -> tuple[bytes, int]:
    try:
        (size,) = _UTF.unpack_from(plain, at)
    except struct.error:
        return b"", at
    return plain[at + 2 : at + 2 + size], at + 2 + size


def _untyped(plain: bytes, at: int) -> Iterator[int]:
    """Yield the sizes of values, -1 for a deletion, until the end mark."""
    read = _INT.unpack_from
    while True:
        (key,) = read(plain, at)
        if key == -1:
            return
        if key < 0:
            raise _BrokenError(f"a record of it has a key of the size {key}")
        (value,) = read(plain, at + 4 + key)
        yield value
        at += 8 + key + max(value, 0)


def _typed(plain: bytes, at: int) -> Iterator[int]:
    """The same for records that begin with their type."""
    read: Callable[[bytes, int], tuple[Any, ...]] = _INT.unpack_from
    while plain[at] != 0:
        if plain[at] not in (0x01, 0x10, 0x11, 0x20):
            raise _BrokenError(f"a record of it is of the type {plain[at]}")
        (key,) = read(plain, at + 1)
        if key < 0:
            raise _BrokenError(f"a record of it has a key of the size {key}")
        (value,) = read(plain, at + 5 + key)
        yield value
        at += 9 + key + max(value, 0)
