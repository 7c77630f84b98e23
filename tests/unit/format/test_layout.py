"""From names of files to state stores, runs and checksum files."""

import pytest

from respool.format import layout
from respool.format.model import StateFile


def test_only_names_of_digits_are_batches_and_they_are_sorted_by_number() -> None:
    names = ["10", "9", "2", ".3", ".4.crc", "5.tmp", "6.compact", "x", "²"]
    assert layout.batches(names) == (2, 9, 10)
    assert layout.batches([]) == ()


def test_the_files_of_a_store_are_sorted_by_version_with_their_ids() -> None:
    names = ["10.delta", "9.snapshot", "2_7f-a.changelog", ".9.snapshot.crc", "2_7f-a.zip", "x.delta", "_metadata", "y"]
    (store,) = layout.stores({"state/3/12": names})
    assert (store.operator, store.partition, store.name, store.folder) == (3, 12, "default", "state/3/12")
    assert [(file.version, file.uid, file.kind) for file in store.files] == [
        (2, "7f-a", "changelog"),
        (2, "7f-a", "zip"),
        (9, None, "snapshot"),
        (10, None, "delta"),
    ]
    assert store.strange == ("x.delta",)
    assert store.tables == frozenset()


def test_strange_files_alone_make_a_store() -> None:
    (store,) = layout.stores({"state/0/0": ["b.zip", "1.a.zip", "c.zip.x"], "state/0/0/left": []})[:1]
    assert store.strange == ("1.a.zip", "b.zip")
    assert store.files == ()


def test_stores_are_sorted_by_number_not_by_text() -> None:
    folders = {f"state/{operator}/{partition}": ["1.delta"] for operator in (10, 2) for partition in (10, 9)}
    places = [(store.operator, store.partition) for store in layout.stores(folders)]
    assert places == [(2, 9), (2, 10), (10, 9), (10, 10)]


def test_a_partition_with_named_stores_has_no_store_of_its_own() -> None:
    folders = {"state/0/0": [], "state/0/0/left": ["1.delta"], "state/0/0/right": [], "state/0/1": []}
    assert [(store.partition, store.name) for store in layout.stores(folders)] == [
        (0, "left"),
        (0, "right"),
        (1, "default"),
    ]


def test_a_partition_with_files_is_a_store_next_to_named_stores() -> None:
    folders = {"state/0/0": ["1.delta"], "state/0/0/left": ["1.delta"]}
    assert [store.name for store in layout.stores(folders)] == ["default", "left"]


def test_the_folders_of_rocksdb_are_no_stores_and_its_tables_belong_to_the_store() -> None:
    folders = {
        "state/0/0": [],
        "state/0/0/SSTs": ["000001-a.sst", "000002-b.sst"],
        "state/0/0/logs": ["1.log"],
        "state/0/0/_metadata": ["schema"],
        "state/0/_metadata": ["metadata"],
        "state/0/_stateSchema/default": ["0_a"],
        "other/0/0": ["1.delta"],
    }
    (store,) = layout.stores(folders)
    assert store.name == "default"
    assert store.tables == {"000001-a.sst", "000002-b.sst"}


@pytest.mark.parametrize("name", ["1.delta.tmp", "x1.delta", "1_.delta", "1.sst", "1", "1_a.b.delta"])
def test_other_names_are_no_state_files(name: str) -> None:
    assert layout.state_file(name) is None


def test_a_state_file_says_its_version_and_id() -> None:
    assert layout.state_file("12_ab-c.zip") == StateFile(12, "ab-c", "zip", "12_ab-c.zip")


def test_what_each_run_wrote_is_sorted_by_its_first_batch() -> None:
    folders = {
        "state/0/_metadata/v2": ["10", "2", ".2.crc", "x"],
        "state/1/_stateSchema/default": ["7_ab-c", "7_", "schema"],
        "state/1/_metadata": ["metadata", "3"],
        "offsets": ["4"],
    }
    assert layout.run_files(folders) == [
        (2, "state/0/_metadata/v2/2"),
        (7, "state/1/_stateSchema/default/7_ab-c"),
        (10, "state/0/_metadata/v2/10"),
    ]


def test_checksum_files_are_hadoops_and_sparks_and_hadoops_of_sparks() -> None:
    names = {"1.zip", ".1.zip.crc", "1.zip.crc", ".1.zip.crc.crc", ".2.zip.crc"}
    assert layout.companions("1.zip", names) == [".1.zip.crc", "1.zip.crc", ".1.zip.crc.crc"]
    assert layout.companions("2.zip", names) == [".2.zip.crc"]
    assert layout.is_companion(".1.zip.crc")
    assert not layout.is_companion("1.zip")


@pytest.mark.parametrize(
    ("name", "leftover"),
    [
        (".3.delta.6a.TID7.tmp", True),
        (".3.6a.tmp", True),
        (".3.6a.tmp.crc", True),
        ("..3.6a.tmp.crc", True),
        (".3.crc", False),
        ("3.tmp", False),
        ("3", False),
    ],
)
def test_hidden_temporary_files_are_left_over(name: str, leftover: bool) -> None:
    assert layout.is_leftover(name) is leftover


def test_a_checksum_file_is_hidden_next_to_its_file() -> None:
    assert layout.hidden_checksum("offsets/3") == "offsets/.3.crc"
    assert layout.hidden_checksum("metadata") == ".metadata.crc"
    assert layout.visible_checksum("state/0/0/1_a.zip") == "state/0/0/1_a.zip.crc"


def test_the_default_store_is_in_the_folder_of_its_partition() -> None:
    assert layout.store_folder(0, 2, "default") == "state/0/2"
    assert layout.store_folder(0, 2, "left-keyToNumValues") == "state/0/2/left-keyToNumValues"
