"""What is brought into a checkpoint names files by that checkpoint's address."""

import json
from pathlib import Path

import pytest

from respool.savepoint.bring import moved_to

SCHEMA = "state/0/_stateSchema/default/0_1b4e28ba-2fa1-11d2-883f-0016d3cca427"


def metadata(*addresses: str) -> str:
    """The metadata of an operator, as Spark writes it."""
    store = {"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": list(addresses)}
    facts = {"operatorInfo": {"operatorId": 0}, "stateStoreInfo": [store], "operatorPropertiesJson": '{"a":"b/c"}'}
    return "v2\n" + json.dumps(facts, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("before", ["file:/old", 'file:/a "quoted" \\ folder', "file:/café/état", "s3a://bucket/old"])
@pytest.mark.parametrize("folder", ["new", 'a "quoted" \\ folder', "café"])
def test_the_addresses_of_schemas_are_those_of_the_target(before: str, folder: str, tmp_path: Path) -> None:
    target = tmp_path / folder
    moved = moved_to(str(target), metadata(f"{before}/{SCHEMA}"))
    assert moved == metadata(f"file:{target}/{SCHEMA}")


@pytest.mark.parametrize(
    ("before", "after"),
    [("s3a://old", "s3a://bucket/new"), ("s3://old", "s3://bucket/new"), ("file:/old", "s3a://bucket/new")],
)
def test_the_address_of_a_store_keeps_its_kind(before: str, after: str) -> None:
    assert moved_to("s3://bucket/new/", metadata(f"{before}/{SCHEMA}")) == metadata(f"{after}/{SCHEMA}")


def test_what_names_no_schema_stays(tmp_path: Path) -> None:
    for text in (
        metadata(),
        metadata("file:/old/state/0/other"),
        'v2\n{"a": "\t/state/0/_stateSchema/x"}',
        "v2\nno JSON",
    ):
        assert moved_to(str(tmp_path), text) == text
