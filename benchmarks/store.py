"""Requests to an object store, and their time, of the commands for a checkpoint that is on it.

The store is a real S3 server on this machine, behind a proxy that counts requests and delays each, as a network would.
`show` has a generated checkpoint, the other commands a recorded one, whose state every check accepts, with its two
partitions repeated. Compared are

- the requests with the fewest that do the work: one list for 1,000 keys, one read of each batch that is shown; for each
  file of a savepoint a read and a copy, for each move of a rewind or an undo a copy and a deletion;
- the seconds with those of the same requests one after another.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.rewind import make_checkpoint
from respool.operations.checkpoint import Checkpoint
from respool.operations.savepoints import Savepoints
from respool.settings import Settings
from support import checkpoints, object_store
from support.store_proxy import StoreProxy

_DELAY = 0.02  # seconds: what a request to a store in the same region takes
_AT_ONCE = 200  # uploads
_SHOWN = 100  # batches that `show` reads
_STOPPED: dict[str, Any] = {"sink": "console", "assume_stopped": True, "allow_data_loss": True}


def measure_all(batches: int, partitions: int, runs: int) -> list[dict[str, Any]]:
    """Return a row for each command.

    Args:
        batches: The batches of the checkpoint that is shown.
        partitions: The state partitions of all checkpoints.
        runs: How often each command is measured.
    """
    before = dict(os.environ)
    try:
        with tempfile.TemporaryDirectory() as made:
            return _measure(Path(made), batches, partitions, runs)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _measure(folder: Path, batches: int, partitions: int, runs: int) -> list[dict[str, Any]]:
    (folder / "store").mkdir()
    with object_store.serving(folder / "store") as address, StoreProxy(address).serving() as proxy:
        os.environ.update(object_store.environment(proxy.address))
        settings = Settings(home=folder / "home", storage=f"s3://{object_store.BUCKET}/respool")
        make_checkpoint(folder / "generated", batches, partitions)
        generated, recorded = _files(folder / "generated"), _repeated(folder, partitions)
        for name, files in (("generated", generated), ("recorded", recorded)):
            _upload(address, name, files)
        shown = Checkpoint(f"s3://{object_store.BUCKET}/generated", settings=settings)
        changed = Checkpoint(f"s3://{object_store.BUCKET}/recorded", settings=settings)
        shown.summary(), changed.summary()  # so that the bucket is known
        proxy.delay = _DELAY
        least = -(-len(generated) // 1000) + min(batches, _SHOWN)
        rows = [_row("show", len(generated), least, [_timed(proxy, shown.summary) for _ in range(runs)])]
        measured: dict[str, list[tuple[int, float]]] = {"savepoint create": [], "rewind": [], "undo": []}
        saved = moves = 0
        for run in range(runs):
            save = partial(Savepoints(settings=settings).create, changed, f"s{run}", sink="console")
            measured["savepoint create"].append(_timed(proxy, save))
            saved = len(Savepoints(settings=settings)[f"s{run}"].manifest.files)
            plan = changed.plan_rewind(to_batch=11, **_STOPPED)
            moves = len(plan.journal.moves)
            measured["rewind"].append(_timed(proxy, partial(changed.apply, plan)))
            undo = changed.plan_undo()
            measured["undo"].append(_timed(proxy, partial(changed.apply, undo)))
        leasts = {"savepoint create": 2 * saved, "rewind": 2 * moves, "undo": 2 * moves}
        rows += [_row(name, len(recorded), leasts[name], figures) for name, figures in measured.items()]
        return rows


def _timed(proxy: StoreProxy, call: Callable[[], object]) -> tuple[int, float]:
    proxy.forget()
    start = time.perf_counter()
    call()
    return len(proxy.requests), time.perf_counter() - start


def _row(command: str, files: int, least: int, figures: list[tuple[int, float]]) -> dict[str, Any]:
    requests = statistics.median(count for count, _ in figures)
    seconds = statistics.median(spent for _, spent in figures)
    return {
        "command": command,
        "files": files,
        "requests": round(requests),
        "least_requests": least,
        "times_least": round(requests / least, 2),
        "median_s": round(seconds, 2),
        "times_faster": round(requests * _DELAY / seconds, 1),
    }


def _files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder without Hadoop's checksum files, which s3a does not write."""
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _repeated(folder: Path, partitions: int) -> dict[str, bytes]:
    files = _files(checkpoints.unpack(folder, "hdfs"))
    first = {path: data for path, data in files.items() if path.startswith("state/0/0/") and "_metadata" not in path}
    for path, data in files.items():
        data = data.replace(b'"spark.sql.shuffle.partitions":"2"', b'"spark.sql.shuffle.partitions":"%d"' % partitions)
        files[path] = data.replace(b'"numPartitions":2', b'"numPartitions":%d' % partitions)
    for partition in range(2, partitions):
        files |= {path.replace("state/0/0/", f"state/0/{partition}/"): data for path, data in first.items()}
    return files


def _upload(address: str, name: str, files: Mapping[str, bytes]) -> None:
    store = object_store.filesystem(address)
    paths = list(files)
    for at in range(0, len(paths), _AT_ONCE):
        store.pipe({f"{object_store.BUCKET}/{name}/{path}": files[path] for path in paths[at : at + _AT_ONCE]})


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=10_000, metavar="N")
    parser.add_argument("--partitions", type=int, default=200, metavar="N", help="state partitions")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="measured runs")
    asked = parser.parse_args()
    for row in measure_all(asked.batches, asked.partitions, asked.runs):
        print(row)


if __name__ == "__main__":
    main()
