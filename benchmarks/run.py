"""`make bench`: respool and its alternatives, measured on this machine, in a single report.

Events are generated once into a topic of an embedded broker. Engines take turns, and each run is a separate process
tree. A figure counts only if the result was right. Engines that cannot be run are listed with the reason.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks import data, fleet, growth, on_cluster, report, reprocess, rewind, start, store
from benchmarks.comparing import Bench, compare
from benchmarks.engines import ENGINES, RESPOOL, Engine
from benchmarks.environments import NotAvailable, Place
from benchmarks.results import Results
from respool.kafka.cluster import KafkaCluster
from respool.local import broker
from respool.settings import Settings
from respool.spark.session import spark_session

JOBS = ("counts", "sessions", "archive", "growth", "reprocess", "rewind", "store", "start", "cluster", "fleet")
COMPARED = ("counts", "sessions", "archive")
_VISITS = 25_000  # concurrent visits


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [engine.name for engine in ENGINES]
    parser.add_argument("--events", type=int, default=2_000_000, metavar="N", help="events of the compared jobs")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each engine (3)")
    parser.add_argument("--only", type=_some(JOBS), default=list(JOBS), metavar="JOB,…", help=", ".join(JOBS))
    parser.add_argument("--engines", type=_some(names), default=names, metavar="NAME,…", help=", ".join(names))
    parser.add_argument("--limit", type=float, default=200, metavar="SECONDS", help="time limit of a run (200)")
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="environments, data, the broker (.bench)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the report goes (report in the folder)")
    parser.add_argument("--growth-events", type=int, default=1_000_000, metavar="N", help="events of the smallest size")
    parser.add_argument("--growth-runs", type=int, metavar="N", help="runs of each size (as --runs)")
    parser.add_argument(
        "--days", type=_numbers, default=[1, 10, 100], metavar="N,…", help="days of reprocess's archives"
    )
    parser.add_argument(
        "--per-hour", type=int, default=2_000, metavar="N", help="visits per hour of event time in the archives"
    )
    parser.add_argument(
        "--batches",
        type=_numbers,
        default=[1_000, 10_000, 100_000],
        metavar="N,…",
        help="batches of the checkpoints of rewind; of store, the largest up to 10,000",
    )
    parser.add_argument("--partitions", type=int, default=200, metavar="N", help="state partitions of rewind and store")
    parser.add_argument("--publish", action="store_true", help="copy the chart and the figures to docs/")
    parser.add_argument("--add", action="store_true", help="add to the existing report")
    parser.add_argument("--offline", action="store_true", help="download nothing")
    return parser.parse_args(words)


def _numbers(text: str) -> list[int]:
    return sorted({int(number) for number in text.split(",")})


def _some(known: Sequence[str]) -> Any:
    def parse(text: str) -> list[str]:
        asked = text.split(",")
        unknown = [name for name in asked if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown name {unknown[0]!r}; expected any of {', '.join(known)}")
        return [name for name in known if name in asked]

    return parse


def say(text: str) -> None:
    """Print progress to standard error."""
    print(f"{datetime.now(timezone.utc):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def prepare(place: Place, names: Sequence[str], results: Results) -> list[Engine]:
    """Install what the engines need, and return the engines that can run."""
    available = []
    for engine in ENGINES:
        if engine.name not in names:
            continue
        properties: dict[str, Any] = {"title": engine.title, "recovers": engine.recovers, "runs_on": "", "not_run": ""}
        properties["promises"] = {job: promise.text for job, promise in engine.promises.items()}
        results.engines[engine.name] = properties
        try:
            properties["runs_on"] = engine.prepare(place)
            available.append(engine)
        except NotAvailable as error:
            properties["not_run"] = str(error)
            say(f"{engine.name} is not run: {error}")
    return available


def measure(asked: argparse.Namespace, results: Results) -> None:
    """Measure the selected jobs, and add each measurement to the results immediately."""
    place = Place(asked.folder.absolute(), asked.offline)
    engines = prepare(place, asked.engines, results)
    if "start" in asked.only:
        results.start += start.commands(max(asked.runs, 5))
    if "rewind" in asked.only:
        say("rewind")
        results.rewind = rewind.measure_all(asked.batches, asked.partitions, max(asked.runs, 3), RESPOOL)
    if "store" in asked.only:
        say("store")
        results.store = store.measure_all(min(10_000, max(asked.batches)), asked.partitions, max(asked.runs, 3))
    if "reprocess" in asked.only:
        say("reprocess")
        results.reprocess = _reprocess(place, asked)
    if set(asked.only) & {*COMPARED, "growth", "start", "cluster", "fleet"}:
        with broker.running(Settings(home=place.folder / "broker")) as started:
            bench = Bench(place, KafkaCluster(started.address), started.pid, asked.limit, say)
            data.tidy(bench.kafka, place.folder)
            _with_broker(bench, asked, engines, results)


def _with_broker(bench: Bench, asked: argparse.Namespace, engines: Sequence[Engine], results: Results) -> None:
    jobs = [job for job in COMPARED if job in asked.only]
    if "start" in asked.only:
        results.start += start.first_batches(bench, asked.runs)
    if "fleet" in asked.only:
        fleet.measure_all(bench, results.fleet)
    if jobs or "cluster" in asked.only:
        visits = min(_VISITS, max(1, asked.events // 80))  # with fewer events, fewer visits of the same length
        events = data.prepare(bench.kafka, bench.place.folder / "data", asked.events, visits, say)
        for job in jobs:
            able = [engine for engine in engines if job in engine.promises]
            compare(bench, job, able, events, asked.runs, results.runs)
        if "cluster" in asked.only:
            on_cluster.measure_all(bench, events, asked.runs, results.cluster)
    if "growth" in asked.only:
        growth.grow(bench, asked.growth_events, asked.growth_runs or asked.runs, results.growth)


def _reprocess(place: Place, asked: argparse.Namespace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=place.folder) as made:
        archives = reprocess.make_archives(Path(made), asked.days, asked.per_hour)
        with spark_session(Settings(home=Path(made) / "home")) as spark:
            count = reprocess.expected(asked.per_hour)
            return reprocess.measure_all(spark, archives, count, max(asked.runs, 3), warm_up=3)


def _machine() -> dict[str, Any]:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "model": models[0] if models else platform.machine(),
        "memory_gb": round(memory / 1e9, 1),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _results(asked: argparse.Namespace, out: Path) -> Results:
    """Return the results to add to: empty or, with --add, those of the existing report."""
    new = Results(_machine(), {name: _plain(value) for name, value in vars(asked).items()})
    if not asked.add:
        return new
    try:
        old = Results.from_json(json.loads((out / "report.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        sys.exit(f"There is no report in {out} to add to. Run without --add.")
    for name in ("events", "runs"):
        if old.options[name] != new.options[name]:
            sys.exit(f"The report in {out} has --{name} {old.options[name]}. Use the same value, or run without --add.")
    return old.without(asked.only, asked.engines)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, write the report, and print its tables; after a failure or Ctrl-C, with the measurements so far."""
    asked = options(words)
    out = asked.out or asked.folder / "report"
    results = _results(asked, out)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: ends running processes, too
    try:
        measure(asked, results)
    finally:
        signal.signal(signal.SIGTERM, before)
        print(report.write(results, out))
    if asked.publish:
        report.publish(out, Path(__file__).parents[1] / "docs")


if __name__ == "__main__":
    main()
