"""Record the golden checkpoints: one of each kind in `support/queries`, by the Spark of this Python.

python tests/golden/record.py [KIND …]

Each becomes `<version of Spark>/<kind>.tar.xz`, the whole folder with its hidden files, and `<kind>.json`, which tells
what Spark said of it: the rows of every batch, and of the state after committed batches the number of rows and a digest
(of its lines as `queries.states` returns them).

Skipped are kinds that this Spark does not know, and kinds with Kafka where respool is not installed, as it is respool
that starts the broker. Recorded with 4.2.0, and with the last 4.0 and 4.1 of the time, each in an environment of its
own with pyspark, pandas<3, pyarrow and protobuf.
"""

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.queries import KINDS, Kind, Source, kafka_input, run, states, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 14
# Absolute paths go into a checkpoint, and must not name the machine that recorded it.
PLACE = Path("/tmp/golden")


def main(names: list[str]) -> None:
    """Record the kinds of these names, or all."""
    import pyspark

    version = pyspark.__version__
    folder = Path(__file__).parent / version
    folder.mkdir(exist_ok=True)
    known = tuple(int(part) for part in version.split(".")[:2])
    shutil.rmtree(PLACE, ignore_errors=True)
    with _spark() as spark:
        for kind in KINDS:
            if (names and kind.name not in names) or kind.since > known:
                continue
            if kind.source == "kafka" and find_spec("respool") is None:
                print(f"{kind.name}: skipped, there is no respool here to start a broker")
                continue
            results = _record(spark, kind, known)
            archive = _archive(PLACE / kind.name / "checkpoint")
            (folder / f"{kind.name}.tar.xz").write_bytes(archive)
            (folder / f"{kind.name}.json").write_text(json.dumps({"spark": version, **results}, indent=1) + "\n")
            print(f"{kind.name}: {len(archive)} bytes", flush=True)
    shutil.rmtree(PLACE, ignore_errors=True)


@contextmanager
def _spark() -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as home:
        conf = {
            "spark.master": "local[2]",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.warehouse.dir": home,
        }
        if find_spec("respool"):
            from respool.local.jars import spark_jars
            from respool.settings import Settings

            conf["spark.jars"] = ",".join(str(jar) for jar in spark_jars(Settings(home=Path(home))))
        builder = SparkSession.builder
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()


def _record(spark: "SparkSession", kind: Kind, version: tuple[int, ...]) -> dict[str, object]:
    checkpoint = PLACE / kind.name / "checkpoint"
    with ExitStack() as stack:
        source: Source = {}
        if kind.source == "kafka":
            source = stack.enter_context(kafka_input(FILES))
        elif kind.source == "files":
            source = write_files(PLACE / kind.name / "input", range(FILES // 2 if kind.repartition else FILES))
        results = run(spark, kind, source, checkpoint, until=FILES - 1)
        if kind.repartition:
            spark._streamingCheckpointManager.repartition(str(checkpoint), kind.repartition)
            write_files(PLACE / kind.name / "input", range(FILES // 2, FILES))
            results |= run(spark, kind, source, checkpoint)
    kept = sorted(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    chosen = kept if len(kind.reads) == 1 else [kept[0], kept[len(kept) // 2], kept[-1]]  # many readings take minutes
    rows_by_batch = states(spark, kind, checkpoint, chosen) if kind.readable(version) else {}
    return {
        "kind": kind.name,
        "batches": dict(sorted(results.items())),
        "state": {
            batch: {"rows": len(rows), "sha256": hashlib.sha256("\n".join(rows).encode()).hexdigest()}
            for batch, rows in sorted(rows_by_batch.items())
        },
    }


def _archive(checkpoint: Path) -> bytes:
    """Return the folder as an archive; the same folder gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", format=tarfile.USTAR_FORMAT, preset=9) as archive:
        for path in sorted(checkpoint.rglob("*")):
            if path.suffix == ".tmp":
                continue
            entry = archive.gettarinfo(path, str(path.relative_to(checkpoint)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if path.is_dir() else 0o644
            with path.open("rb") if path.is_file() else io.BytesIO() as content:
                archive.addfile(entry, content)
    return buffer.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])
