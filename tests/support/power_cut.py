"""A disk that loses power: what a process wrote is recorded, and any moment of it can be rebuilt with what was lost.

A file's bytes survive once the file was synced after they were written; the names in a folder survive once the folder
was synced after they changed. A rename is one change, and survives when both of its folders were synced. Of everything
else, changes of names reach the disk in their order, as file systems with a journal write them, up to any moment.
"""

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

Loss = Literal[
    "all", "data", "some"
]  # all that is not synced; the data, but no name; the data, and names after a moment


@dataclass(eq=False)
class _File:
    before: bytes = b""  # its durable bytes before the first operation


@dataclass(eq=False)
class _Folder:
    before: "dict[str, _File | _Folder]" = field(default_factory=dict)
    now: "dict[str, _File | _Folder]" = field(default_factory=dict)


@dataclass(frozen=True)
class _Names:
    """Names in folders change, all of them or none."""

    changes: tuple[tuple[_Folder, str, _File | _Folder | None], ...]


@dataclass(frozen=True)
class _SyncFile:
    file: _File
    data: bytes


@dataclass(frozen=True)
class _SyncFolder:
    folder: _Folder


class Recording:
    """All changes of a folder, in their order."""

    def __init__(self, root: Path) -> None:
        """Take the folder as it is, and as durable."""
        self.root = root
        self._tree = _snapshot(root)
        self._operations: list[_Names | _SyncFile | _SyncFolder] = []

    def __len__(self) -> int:
        """Return how many operations there were."""
        return len(self._operations)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record what this process does, for the length of a `with` block; nothing is really synced."""
        real = {
            name: getattr(os, name)
            for name in ("open", "fsync", "link", "unlink", "replace", "rename", "mkdir", "rmdir")
        }

        def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
            new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
            handle: int = real["open"](path, flags, *more, **named)
            if new:
                self._change((path, _File()))
            return handle

        def synced(handle: int) -> None:
            path = os.readlink(f"/proc/self/fd/{handle}")
            node = self._node(path)
            if isinstance(node, _Folder):
                self._operations.append(_SyncFolder(node))
            elif node is not None:
                self._operations.append(_SyncFile(node, Path(path).read_bytes()))

        def linked(source: Any, target: Any) -> None:
            real["link"](source, target)
            self._change((target, self._node(source)))

        def unlinked(path: Any, **named: Any) -> None:
            real["unlink"](path, **named)
            self._change((path, None))

        def moved(move: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
            def call(source: Any, target: Any) -> None:
                node = self._node(source)
                move(source, target)
                self._change((source, None), (target, node))

            return call

        def made(path: Any, *more: Any, **named: Any) -> None:
            real["mkdir"](path, *more, **named)
            self._change((path, _Folder()))

        def removed(path: Any, **named: Any) -> None:
            real["rmdir"](path, **named)
            self._change((path, None))

        lock = threading.Lock()  # so that the order is the one in which they happened
        with pytest.MonkeyPatch.context() as patch:
            functions: dict[str, Callable[..., Any]] = {
                "open": opened,
                "fsync": synced,
                "link": linked,
                "unlink": unlinked,
                "replace": moved(real["replace"]),
                "rename": moved(real["rename"]),
                "mkdir": made,
                "rmdir": removed,
            }
            for name, function in functions.items():
                patch.setattr(os, name, _one_at_a_time(lock, function))
            yield

    def rebuild(self, at: int, loss: Loss, seed: int = 0) -> None:
        """Put the folder to what a machine finds that lost its power after the first `at` operations."""
        done = self._operations[:at]
        names: dict[_Folder, dict[str, _File | _Folder]] = {}
        data: dict[_File, bytes] = {}
        written = random.Random(seed).randrange(at + 1)  # the names that reached the disk unsynced
        for number, operation in enumerate(done):
            if isinstance(operation, _SyncFile):
                data[operation.file] = operation.data
            elif isinstance(operation, _Names) and (
                loss == "data"
                or all(_SyncFolder(folder) in done[number:] for folder, _, _ in operation.changes)
                or (loss == "some" and number < written)
            ):
                for folder, name, node in operation.changes:
                    entries = names.setdefault(folder, dict(folder.before))
                    if node is None:
                        entries.pop(name, None)
                    else:
                        entries[name] = node
        shutil.rmtree(self.root)
        _write(self._tree, self.root, names, data)

    def _node(self, path: Any) -> _File | _Folder | None:
        parts = self._parts(path)
        node: _File | _Folder | None = self._tree if parts is not None else None
        for part in parts or ():
            node = node.now.get(part) if isinstance(node, _Folder) else None
        return node

    def _parts(self, path: Any) -> tuple[str, ...] | None:
        where = Path(os.path.abspath(path))
        return where.relative_to(self.root).parts if where.is_relative_to(self.root) else None

    def _change(self, *changes: tuple[Any, _File | _Folder | None]) -> None:
        seen = []
        for path, node in changes:
            folder = self._node(os.path.dirname(os.path.abspath(path)))
            if not isinstance(folder, _Folder):
                continue  # elsewhere
            name = os.path.basename(path)
            if node is None:
                folder.now.pop(name, None)
            else:
                folder.now[name] = node
            seen.append((folder, name, node))
        if seen:
            self._operations.append(_Names(tuple(seen)))


def _one_at_a_time(lock: threading.Lock, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*words: Any, **named: Any) -> Any:
        with lock:
            return function(*words, **named)

    return call


def _snapshot(folder: Path) -> _Folder:
    entries: dict[str, _File | _Folder] = {}
    for entry in folder.iterdir():
        entries[entry.name] = _snapshot(entry) if entry.is_dir() else _File(entry.read_bytes())
    return _Folder(entries, dict(entries))


def _write(
    folder: _Folder, where: Path, names: dict[_Folder, dict[str, _File | _Folder]], data: dict[_File, bytes]
) -> None:
    where.mkdir()
    for name, node in names.get(folder, folder.before).items():
        if isinstance(node, _Folder):
            _write(node, where / name, names, data)
        else:
            (where / name).write_bytes(data.get(node, node.before))
