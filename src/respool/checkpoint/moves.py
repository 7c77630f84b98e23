"""Which files move aside in a rewind."""

from collections.abc import Mapping, Sequence

from respool.checkpoint import history, layout
from respool.checkpoint.file_log import Trim
from respool.checkpoint.model import SNAPSHOTS
from respool.checkpoint.read import Checkpoint
from respool.checkpoint.steps import Move

_STATE_KINDS = {"zip": "zips", "changelog": "changelogs", "delta": "deltas", "snapshot": "snapshots", "sst": "SSTs"}


def moves(
    checkpoint: Checkpoint,
    batch: int,
    same_range: bool,
    damaged: Mapping[str, str],
    trims: Mapping[str, Trim],
    name: str,
) -> list[Move]:
    """Return the moves, in the order that does least harm: state before commits before offsets, the newest first."""
    paths = _state_paths(checkpoint, batch, damaged)
    paths += [path for first, path in reversed(layout.run_files(checkpoint.folders)) if first >= batch > 0]
    paths += [f"commits/{one}" for one in reversed(checkpoint.commits) if one >= batch]
    paths += [f"offsets/{one}" for one in reversed(checkpoint.offsets) if one >= batch + (1 if same_range else 0)]
    paths += [path for trim in trims.values() for path in trim.moves]
    whole = with_companions(checkpoint, paths)
    facts = checkpoint.files.facts(whole)
    aside = f"{history.ASIDE}/{name}/"
    return [Move(path, aside + path, facts[path].size) for path in whole if path in facts]


def _state_paths(checkpoint: Checkpoint, batch: int, damaged: Mapping[str, str]) -> list[str]:
    if batch == 0:
        inside = [f for f in checkpoint.folders if f == "state" or f.startswith("state/")]
        return [f"{folder}/{name}" for folder in inside for name in checkpoint.folders[folder]]
    later = [
        (one.kind not in SNAPSHOTS, -one.version, f"{store.folder}/{one.name}")
        for store in checkpoint.stores
        for one in store.files
        if one.version > batch
    ]
    strange = [f"{store.folder}/{name}" for store in checkpoint.stores for name in store.strange]
    return [*strange, *sorted(damaged), *(path for *_, path in sorted(later))]


def with_companions(checkpoint: Checkpoint, paths: Sequence[str]) -> list[str]:
    """Return the paths, each with its checksum files, which are of no use without it."""
    names: dict[str, set[str]] = {}
    found: dict[str, None] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder not in names:
            names[folder] = set(checkpoint.folders.get(folder, ()))
        found[path] = None
        for one in layout.companions(name, names[folder]):
            found[f"{folder}/{one}" if folder else one] = None
    return list(found)


def kind(path: str) -> str:
    """Return a word for what a file is, for the plan's summary."""
    folder, _, name = path.rpartition("/")
    if layout.is_companion(name):
        return "checksums"
    if folder in ("offsets", "commits"):
        return folder
    if folder.startswith("sources/"):
        return "source log"
    return _STATE_KINDS.get(name.rpartition(".")[2], "state metadata")
