"""What a snapshot of RocksDB names."""

import io
import json
import zipfile

import pytest

from respool.errors import DamagedFileError
from respool.format.state_files import files_named, sst_files
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
