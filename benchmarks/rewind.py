"""Time of `respool checkpoint show` and of planning a rewind, by the number of retained batches.

The checkpoints are generated: files with the names, sizes and contents that Spark 4.2 writes for a windowed count with
RocksDB and changelogs, including hidden checksum files, with 100 versions of state in each partition. Each command is a
separate process, as a user starts it; the figures are medians of several runs, after a run that is not measured.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

_CONF = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
}
_FIRST_MS = 1_757_000_000_000
_VERSIONS = 100
_EACH_SNAPSHOT = 10


def make_checkpoint(folder: Path, batches: int, partitions: int) -> int:
    """Write a checkpoint with so many batches and state partitions; return the number of its files."""
    files = 0
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    _write(folder / "metadata", json.dumps({"id": str(UUID(int=1))}).encode())
    conf = {**_CONF, "spark.sql.shuffle.partitions": str(partitions)}
    for batch in range(batches):
        head = {"batchWatermarkMs": _FIRST_MS, "batchTimestampMs": _FIRST_MS + 1000 * batch, "conf": conf}
        ends = {"visits": {str(part): 100 * (batch + 1) for part in range(4)}}
        _write(folder / "offsets" / str(batch), f"v1\n{json.dumps(head)}\n{json.dumps(ends)}".encode())
        _write(folder / "commits" / str(batch), b'v1\n{"nextBatchWatermarkMs":1757000000000}')
        files += 4
    for part in range(partitions):
        files += _write_store(folder / "state" / "0" / str(part), batches)
    (folder / "state" / "0" / "_metadata").mkdir()
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}, "stateStoreInfo": [store]}
    _write(folder / "state" / "0" / "_metadata" / "metadata", f"v1\n{json.dumps(operator)}".encode())
    return files + 4


def _write_store(folder: Path, batches: int) -> int:
    tables = folder / "SSTs"
    tables.mkdir(parents=True)
    files = 0
    for version in range(max(1, batches - _VERSIONS + 1), batches + 1):
        _write(folder / f"{version}.changelog", bytes(200))
        files += 2
        if version % _EACH_SNAPSHOT == 0:
            table = f"{version:06}-{UUID(int=version)}.sst"
            _write(tables / table, bytes(1200))
            _write(folder / f"{version}.zip", _zip(table))
            files += 4
    return files


def _zip(table: str) -> bytes:
    buffer = BytesIO()
    named = {"localFileName": table[:6] + ".sst", "dfsSstFileName": table, "sizeBytes": 1200}
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", f"v1\n{json.dumps({'sstFiles': [named], 'numKeys': 10})}")
        archive.writestr("MANIFEST-000005", bytes(400))
        archive.writestr("OPTIONS-000007", bytes(6000))
    return buffer.getvalue()


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    (file.parent / f".{file.name}.crc").write_bytes(b"crc\0\0\0\2\0" + bytes(4 * (len(data) // 512 + 1)))


def measure(command: list[str], runs: int) -> tuple[list[float], int]:
    """Return the seconds that a command takes in each run, and its peak memory in bytes."""
    seconds, memory = [], 0
    for _ in range(runs + 1):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds.append(time.perf_counter() - start)
        memory = max(memory, usage.ru_maxrss * 1024)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return seconds[1:], memory


def measure_all(sizes: list[int], partitions: int, runs: int, respool: str) -> list[dict[str, Any]]:
    """Return a row for each command and number of batches."""
    rows = []
    for batches in sizes:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / "checkpoint"
            files = make_checkpoint(folder, batches, partitions)
            commands = {
                "show": ["show", str(folder)],
                "plan": ["rewind", str(folder), "--to-batch", str(batches - 50), "--dry-run", "--stopped"],
            }
            for name, words in commands.items():
                seconds, memory = measure([respool, "checkpoint", *words], runs)
                rows.append(
                    {
                        "command": name,
                        "batches": batches,
                        "partitions": partitions,
                        "files": files,
                        "median_s": round(statistics.median(seconds), 3),
                        "least_s": round(min(seconds), 3),
                        "most_s": round(max(seconds), 3),
                        "memory_mib": round(memory / 2**20),
                    }
                )
    return rows


def main() -> None:
    """Measure, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1_000, 10_000, 100_000], metavar="N")
    parser.add_argument("--partitions", type=int, default=200, metavar="N", help="state partitions")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="measured runs")
    asked = parser.parse_args()
    respool = str(Path(sys.executable).parent / "respool")
    rows = measure_all(asked.batches, asked.partitions, asked.runs, respool)
    bare, _ = measure([respool, "--help"], asked.runs)
    print(
        f"respool --help: {statistics.median(bare):.2f} s, the minimum of every command; load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'command':8} {'batches':>8} {'files':>8} {'median s':>9} {'least':>7} {'most':>7} {'MiB':>5}")
    for row in rows:
        print(
            f"{row['command']:8} {row['batches']:8,} {row['files']:8,} {row['median_s']:9.2f} {row['least_s']:7.2f} "
            f"{row['most_s']:7.2f} {row['memory_mib']:5}"
        )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
