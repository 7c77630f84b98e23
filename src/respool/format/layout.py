"""From file names to state stores, and from a file to its checksum files.

state/<operator>/<partition>/[<store>/]<version>[_<uid>].{delta,snapshot,changelog,zip}
state/<operator>/<partition>/[<store>/]SSTs/<number>-<uuid>.sst
state/<operator>/_metadata/metadata, state/<operator>/_metadata/v2/<batch>
state/<operator>/_stateSchema/<store>/<batch>_<uuid>
"""

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import cast

from respool.format.model import StateFile, StateKind, StateStore

_SMALL = "0|[1-9][0-9]{0,4}"  # operators and partitions
_LONG = "0|[1-9][0-9]{0,17}"  # batches and versions; short enough that no arithmetic with them overflows in the JVM
_STORE = re.compile(rf"state/({_SMALL})/({_SMALL})(?:/([^/]+))?")
_FILE = re.compile(rf"({_LONG})(?:_([^.]+))?\.(delta|snapshot|changelog|zip)")
_RUN = re.compile(rf"state/(?:{_SMALL})/(?:_metadata/v2|_stateSchema/[^/]+)")
_RUN_FILE = re.compile(rf"({_LONG})(?:_.+)?", re.DOTALL)
_BATCH = re.compile(_LONG)
_OPERATOR = re.compile(_SMALL)
_NO_STORE = frozenset({"SSTs", "logs", "_metadata"})
_KINDS = ("delta", "snapshot", "changelog", "zip")


def batches(names: Iterable[str]) -> tuple[int, ...]:
    """Return the ids of the batches in a log's folder, sorted; only names as Spark writes them count."""
    is_batch = _BATCH.fullmatch
    return tuple(sorted([int(name) for name in names if is_batch(name)]))


def batch(name: str) -> int | None:
    """Return the number of a batch or a log entry from its file name; None for any other name."""
    return int(name) if _BATCH.fullmatch(name) else None


def operator(name: str) -> int | None:
    """Return the number of an operator, or of a partition, from the name of its folder; None for any other name."""
    return int(name) if _OPERATOR.fullmatch(name) else None


def stores(folders: Mapping[str, list[str]]) -> tuple[StateStore, ...]:
    """Return the state stores of a checkpoint, by operator, partition and name."""
    result = []
    for folder, names in folders.items():
        place = _STORE.fullmatch(folder)
        if place is None or place[3] in _NO_STORE:
            continue
        files, strange = _state_files(names)
        # The folder of a partition with named stores holds none of its own.
        if not files and not strange and place[3] is None and _has_named(folder, folders):
            continue
        tables = frozenset(folders.get(f"{folder}/SSTs", ()))
        result.append(StateStore(int(place[1]), int(place[2]), place[3] or "default", folder, files, tables, strange))
    return tuple(sorted(result, key=lambda store: (store.operator, store.partition, store.name)))


def state_file(name: str) -> StateFile | None:
    """Return a file of a state store from its name; None for any other name."""
    match = _FILE.fullmatch(name)
    return StateFile(int(match[1]), match[2], cast(StateKind, match[3]), name) if match else None


def run_files(folders: Mapping[str, list[str]]) -> list[tuple[int, str]]:
    """Return the files that a query writes once in each run, with the first batch of that run."""
    files = []
    for folder, names in folders.items():
        if _RUN.fullmatch(folder):
            numbers = ((_RUN_FILE.fullmatch(name), name) for name in names)
            files += [(int(number[1]), f"{folder}/{name}") for number, name in numbers if number]
    return sorted(files)


def store_folder(operator: int, partition: int, store: str) -> str:
    """Return the folder of a state store."""
    return f"state/{operator}/{partition}" + ("" if store == "default" else f"/{store}")


def hidden_checksum(path: str) -> str:
    """Return the path of Hadoop's checksum file of a file: `folder/.name.crc`."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def visible_checksum(path: str) -> str:
    """Return the path of Spark's own checksum file of a file: `folder/name.crc`."""
    return f"{path}.crc"


def companions(name: str, names: "frozenset[str] | set[str]") -> list[str]:
    """Return the checksum files of a file, among the names of its folder: Hadoop's hidden ones and Spark's own."""
    own = visible_checksum(name)
    return [companion for companion in (hidden_checksum(name), own, hidden_checksum(own)) if companion in names]


def is_companion(name: str) -> bool:
    """Return whether a name is that of a checksum file."""
    return name.endswith(".crc")


def is_leftover(name: str) -> bool:
    """Return whether a name is that of an unfinished file of a killed process; Spark ignores such files."""
    return name.startswith(".") and (".tmp" in name or name.endswith(".tmp.crc"))


def _state_files(names: Iterable[str]) -> tuple[tuple[StateFile, ...], tuple[str, ...]]:
    files, strange = [], []
    for name in names:
        if name[0] == ".":  # half of them: checksums
            continue
        file = state_file(name)
        if file is not None:
            files.append(file)
        elif name.rpartition(".")[2] in _KINDS:
            strange.append(name)
    return tuple(sorted(files, key=itemgetter(0))), tuple(sorted(strange))


def _has_named(folder: str, folders: Mapping[str, list[str]]) -> bool:
    inside = f"{folder}/"
    return any(other.startswith(inside) and other[len(inside) :] not in _NO_STORE for other in folders)
