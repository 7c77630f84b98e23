"""What is wrong with a file of the state, from its bytes."""

import json
import os
import struct
import zlib
from pathlib import Path

import google_crc32c
import pyarrow
import pytest
import xxhash

from respool.checkpoint.verify.state_scan import damage_of
from respool.format import state_files, state_stream
from respool.format.model import StateKind
from support import checkpoints
from support.checkpoints import only_file

END_MARK = 21  # bytes that Spark does not need
RECORDS = struct.pack(">i3si2s", 3, b"key", 2, b"ab") + struct.pack(">i3si", 3, b"old", -1) + struct.pack(">i", -1)


def lz4(plain: bytes) -> bytes:
    """One block as lz4-java writes it, not compressed, and its end mark."""
    checksum = xxhash.xxh32_intdigest(plain, 0x9747B28C) & 0x0FFFFFFF
    block = struct.pack("<8sBiiI", b"LZ4Block", 0x15, len(plain), len(plain), checksum) + plain
    return block + struct.pack("<8sBiiI", b"LZ4Block", 0x15, 0, 0, 0)


def snappy(plain: bytes) -> bytes:
    block = bytes(pyarrow.Codec("snappy").compress(plain, asbytes=True))
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


def lzf(plain: bytes) -> bytes:
    return b"ZV\0" + struct.pack(">H", len(plain)) + plain


def zstd(plain: bytes) -> bytes:
    return bytes(pyarrow.Codec("zstd").compress(plain, asbytes=True))


CODECS = {"lz4": lz4, "snappy": snappy, "zstd": zstd, "org.apache.spark.io.LZFCompressionCodec": lzf}


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_are_read_to_their_end(codec: str) -> None:
    written = CODECS[codec](RECORDS)
    assert state_stream.broken("delta", written, codec) is None
    for size in range(1, len(written) - (END_MARK if codec == "lz4" else 0)):
        assert state_stream.broken("delta", written[:size], codec), f"{size} of {len(written)} bytes"


@pytest.mark.parametrize("codec", ["lz4", "snappy", "zstd"])
def test_records_without_their_end_mark_are_broken(codec: str) -> None:
    assert state_stream.broken("delta", CODECS[codec](RECORDS[:-4]), codec) == "it ends in the middle of its records"


def test_an_unknown_codec_is_not_judged() -> None:
    assert state_stream.broken("delta", b"whatever", "com.example.MyCodec") is None


@pytest.mark.parametrize(
    ("kind", "file"),
    [("hdfs", "14.delta"), ("hdfs", "12.snapshot"), ("session", "15.delta"), ("join-families", "15.changelog")],
)
def test_a_file_of_spark_is_whole_and_each_part_of_it_is_not(tmp_path: Path, kind: str, file: str) -> None:
    data = (checkpoints.unpack(tmp_path, kind) / "state/0/0" / file).read_bytes()
    codec = "zstd" if kind == "session" else "lz4"
    what: StateKind = "delta" if file.endswith("delta") else "snapshot" if file.endswith("snapshot") else "changelog"
    assert state_stream.broken(what, data, codec) is None
    for size in range(1, len(data) - END_MARK):
        assert state_stream.broken(what, data[:size], codec)


def test_a_changed_byte_in_a_block_is_found() -> None:
    written = bytearray(lz4(RECORDS))
    written[30] ^= 1
    assert state_stream.broken("delta", bytes(written)) == "a block of it does not match its checksum"
    assert damage_of("7.delta", bytes(written)).why == "a block of it does not match its checksum"


@pytest.mark.parametrize(("kind", "file"), [("hdfs", "14.delta"), ("join-families", "15.changelog")])
def test_the_checksum_of_a_block_that_spark_wrote_is_checked(tmp_path: Path, kind: str, file: str) -> None:
    written = bytearray((checkpoints.unpack(tmp_path, kind) / "state/0/0" / file).read_bytes())
    what: StateKind = "delta" if file.endswith("delta") else "changelog"
    assert state_stream.broken(what, bytes(written)) is None
    written[17] ^= 1  # the lowest byte of the checksum in the header of the first block
    assert state_stream.broken(what, bytes(written)) == "a block of it does not match its checksum"


def hidden(data: bytes, size: int = 512) -> bytes:
    sums = [zlib.crc32(data[at : at + size]) for at in range(0, len(data), size)]
    return b"crc\0" + struct.pack(">i", size) + struct.pack(f">{len(sums)}I", *sums)


def test_hadoops_checksums_are_compared_piece_by_piece() -> None:
    data = os.urandom(1300)
    assert state_files.checksum(data, hidden(data)) is None
    changed = data[:600] + bytes([data[600] ^ 1]) + data[601:]
    assert state_files.checksum(changed, hidden(data)) == "its bytes from 512 on do not match its hidden checksum file"
    assert state_files.checksum(data[:1024], hidden(data)) == "it is shorter than its hidden checksum file says"
    assert state_files.checksum(data + data, hidden(data)) is not None
    assert state_files.checksum(data, b"no checksums") is None


def test_sparks_checksums_are_compared() -> None:
    data = os.urandom(700)
    value = int(google_crc32c.value(data))
    facts = {"algorithm": "CRC32C", "value": value - (1 << 32 if value >> 31 else 0), "mainFileSize": 700}
    assert state_files.spark_checksum(data, json.dumps(facts).encode()) is None
    assert (
        state_files.spark_checksum(data[:-1], json.dumps(facts).encode())
        == "it has 699 bytes, its checksum file says 700"
    )
    assert state_files.spark_checksum(bytes(700), json.dumps(facts).encode()) == "it does not match its checksum file"
    assert state_files.spark_checksum(data, b"") == "its checksum file is damaged"


@pytest.mark.parametrize("kind", ["hdfs", "transform"])
def test_a_schema_of_spark_is_whole_and_each_part_of_it_is_not(tmp_path: Path, kind: str) -> None:
    checkpoint = checkpoints.unpack(tmp_path, kind)
    where = "state/0/0/_metadata/schema" if kind == "hdfs" else "state/0/_stateSchema/default/0_*"
    data = only_file(checkpoint, where).read_bytes()
    assert state_files.families(data)
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"it ends too early|it begins with"):
            state_files.families(data[:size])
