"""A checkpoint that was moved or copied, as Spark's state reader can read it.

Metadata of operators of version 2 names the files of state schemas by the address where the query ran. In a folder that
was moved or copied, it names files that are elsewhere, or nowhere. A view is a folder of links to such a checkpoint in
which that metadata names its own files; the checkpoint stays as it is.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from respool.checkpoint import logs
from respool.checkpoint.files import OWN


@contextmanager
def view_of(root: Path) -> Iterator[Path]:
    """Make a view of a checkpoint on a local disk, for the length of a `with` block."""
    with tempfile.TemporaryDirectory(prefix="respool-state-") as name:
        folder = Path(name)
        _link(root.absolute(), folder, without=("state", OWN))
        (folder / "state").mkdir()
        for operator in (root / "state").iterdir():
            if operator.is_dir():
                _view_operator(operator.absolute(), folder / "state" / operator.name, folder)
        yield folder


def _view_operator(source: Path, target: Path, view: Path) -> None:
    runs = "_metadata/v2"
    target.mkdir()
    _link(source, target, without=("_metadata",))
    if not (source / "_metadata").is_dir():
        return
    (target / runs).mkdir(parents=True) if (source / runs).is_dir() else (target / "_metadata").mkdir()
    _link(source / "_metadata", target / "_metadata", without=("v2",))
    for run in (source / runs).glob("[0-9]*"):
        text = run.read_text(encoding="utf-8")
        for address in logs.schema_paths(str(run), text):
            text = text.replace(address, f"file:{view}/state/{address.rpartition('/state/')[2]}")
        (target / runs / run.name).write_text(text, encoding="utf-8")


def _link(source: Path, target: Path, without: tuple[str, ...]) -> None:
    for one in source.iterdir():
        if one.name not in without:
            (target / one.name).symlink_to(one)
