"""What a snapshot of RocksDB names, Hadoop's checksums, and the schemas of a store."""

import io
import json
import struct
import zipfile
import zlib

import pytest

from respool.errors import DamagedFileError
from respool.format import state_files
from respool.format.state_files import ColumnFamily, checksum, families, files_named, sst_files
from support.small_checkpoint import rocksdb_zip


def packed(metadata: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", metadata)
    return buffer.getvalue()


def test_a_snapshot_names_its_tables_and_logs() -> None:
    data = rocksdb_zip({"a.sst": 7, "b.sst": 0}, ("c.log",))
    assert sst_files("1.zip", data) == {"a.sst": 7, "b.sst": 0}
    assert files_named("1.zip", data) == ["SSTs/a.sst", "SSTs/b.sst", "logs/c.log"]


def test_metadata_may_have_several_lines_and_no_logs() -> None:
    facts = {"sstFiles": [{"dfsSstFileName": "a.sst", "sizeBytes": 7}]}
    data = packed("v1\n" + json.dumps(facts, indent=1))
    assert files_named("1.zip", data) == ["SSTs/a.sst"]


@pytest.mark.parametrize("metadata", ["", "v1", "v1\n{}", 'v1\n{"sstFiles": [{"dfsSstFileName": "../a"}]}'])
def test_metadata_that_spark_would_not_write_is_damaged(metadata: str) -> None:
    with pytest.raises(DamagedFileError, match=r"1\.zip"):
        files_named("1.zip", packed(metadata))


def test_small_files_of_any_size_are_unpacked_and_large_ones_by_their_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    data = rocksdb_zip({"a.sst": 7})
    monkeypatch.setattr(state_files, "_MOST_SMALL", 0)
    assert sst_files("1.zip", data) == {"a.sst": 7}
    monkeypatch.setattr(state_files, "_MOST_PACKED", 0)
    with pytest.raises(DamagedFileError, match="bytes; at most 0 were expected"):
        sst_files("1.zip", data)


def hidden(data: bytes, size: int) -> bytes:
    """Return Hadoop's checksum file of a file, with a checksum for each `size` bytes."""
    sums = [zlib.crc32(data[at : at + size]) for at in range(0, len(data), max(size, 1))]
    return b"crc\0" + struct.pack(f">i{len(sums)}I", size, *sums)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 512])
def test_a_file_matches_its_hidden_checksum_file(size: int) -> None:
    assert checksum(b"abc", hidden(b"abc", size)) is None
    assert checksum(b"abc", hidden(b"abc", size) + b"\0") is None  # Hadoop reads whole checksums only
    assert checksum(b"abd", hidden(b"abc", size)) == (
        f"its bytes from {2 // size * size} on do not match its hidden checksum file"
    )


def test_a_file_is_as_long_as_its_hidden_checksum_file_says() -> None:
    assert checksum(b"", hidden(b"", 512)) is None
    assert checksum(b"a", hidden(b"", 512)) == "its bytes from 0 on do not match its hidden checksum file"
    assert checksum(b"ab", hidden(b"abc", 1)) == "it is shorter than its hidden checksum file says"


@pytest.mark.parametrize("ignored", [b"", b"crc\0\0\0\0", hidden(b"", 0) + b"\0\0\0\1", hidden(b"", -1), b"crc\1" * 3])
def test_a_hidden_checksum_file_that_hadoop_ignores_is_ignored(ignored: bytes) -> None:
    assert checksum(b"a", ignored) is None


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def texts(*values: str) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(map(text, values))


def test_schemas_of_each_version_are_read() -> None:
    default = ColumnFamily("default", {"k": 1}, {"v": 2})
    assert families(text("v1") + text('{"k":1}') + text('{"v":2}')) == (default,)
    assert families(text("v2") + texts('{"k"', ":1}") + texts('{"v":2}')) == (default,)
    family = text("timers") + b"\0\1" + texts('{"k":1}') + b"\0\1" + texts('{"v":', "2}") + texts("{}") * 2
    assert families(text("v3") + struct.pack(">i", 2) + family * 2) == (ColumnFamily("timers", {"k": 1}, {"v": 2}),) * 2
    assert families(text("v3") + struct.pack(">i", 0)) == ()
