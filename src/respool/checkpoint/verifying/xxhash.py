"""The xxHash of 32 bits, by which lz4-java knows a damaged block."""

import struct
from collections.abc import Sequence

_MASK = 0xFFFFFFFF
_ONE, _TWO, _THREE, _FOUR, _FIVE = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_LANES = 16  # bytes taken at a time, as four numbers
_TURNS = (1, 7, 12, 18)
_FEW = 4  # so many blocks are sooner done one by one


def hashes(blocks: Sequence[bytes], seed: int) -> list[int]:
    """Return the hash of each block; many blocks of the same size, as in a large file, go side by side."""
    size = len(blocks[0]) if blocks else 0
    alike = [one for one in blocks if len(one) == size]
    if len(alike) <= _FEW or size < _LANES:
        return [_hash(one, seed) for one in blocks]
    together = iter(_side_by_side(alike, seed))
    return [next(together) if len(one) == size else _hash(one, seed) for one in blocks]


def _hash(data: bytes, seed: int) -> int:
    whole = len(data) - len(data) % _LANES
    if not whole:
        return _finished(seed + _FIVE, data, 0)
    a, b, c, d = _start(seed)
    for w, x, y, z in struct.iter_unpack("<4I", memoryview(data)[:whole]):
        a = (a + w * _TWO) & _MASK
        a = (a << 13 | a >> 19) * _ONE & _MASK
        b = (b + x * _TWO) & _MASK
        b = (b << 13 | b >> 19) * _ONE & _MASK
        c = (c + y * _TWO) & _MASK
        c = (c << 13 | c >> 19) * _ONE & _MASK
        d = (d + z * _TWO) & _MASK
        d = (d << 13 | d >> 19) * _ONE & _MASK
    return _finished(_joined((a, b, c, d)), data, whole)


def _side_by_side(blocks: Sequence[bytes], seed: int) -> list[int]:
    import numpy

    whole = len(blocks[0]) - len(blocks[0]) % _LANES
    words = numpy.stack([numpy.frombuffer(one, "<u4", whole // 4) for one in blocks])
    steps = words.reshape(len(blocks), -1, 4).transpose(1, 0, 2).astype(numpy.uint32, order="C")
    lanes = numpy.tile(numpy.array(_start(seed), numpy.uint32), (len(blocks), 1))
    one, two = numpy.uint32(_ONE), numpy.uint32(_TWO)
    left, right = numpy.uint32(13), numpy.uint32(19)
    for step in steps:  # numbers of 32 bits wrap around by themselves
        lanes += step * two
        lanes = (lanes << left | lanes >> right) * one
    found = zip(lanes.tolist(), blocks, strict=True)
    return [_finished(_joined(four), block, whole) for four, block in found]


def _start(seed: int) -> tuple[int, int, int, int]:
    return (seed + _ONE + _TWO) & _MASK, (seed + _TWO) & _MASK, seed, (seed - _ONE) & _MASK


def _joined(lanes: Sequence[int]) -> int:
    return sum((lane << turn | lane >> (32 - turn)) & _MASK for lane, turn in zip(lanes, _TURNS, strict=True))


def _finished(found: int, data: bytes, at: int) -> int:
    """Return the hash, with the bytes from `at` on that did not fill the lanes."""
    words = len(data) - (len(data) - at) % 4
    found = (found + len(data)) & _MASK
    for (word,) in struct.iter_unpack("<I", data[at:words]):
        found = (found + word * _THREE) & _MASK
        found = (found << 17 | found >> 15) * _FOUR & _MASK
    for byte in data[words:]:
        found = (found + byte * _FIVE) & _MASK
        found = (found << 11 | found >> 21) * _ONE & _MASK
    for shift, factor in ((15, _TWO), (13, _THREE), (16, 1)):
        found = (found ^ found >> shift) * factor & _MASK
    return found
