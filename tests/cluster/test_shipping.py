"""Code on the executors of a cluster, whose Python has neither respool nor anything of the driver's folder."""

import json
import re
import shutil
import sys
import urllib.request
from pathlib import Path

import pytest

from respool.kafka import consumer, producer
from respool.kafka.cluster import KafkaCluster
from support.cluster_driver import Driver, ended

JOB = Path(__file__).parents[2] / "jobs" / "kafka_consumer_micro_batch.py"
PIPELINE = """
import respool
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from shop_prices import price_of

def priced(events):
    import shop.labels
    price = F.udf(price_of, "int")
    label = F.udf(lambda page: shop.labels.label_of(page), StringType())
    return events.select("visit_id", "event_time", price("page").alias("price"), label("page").alias("label"))

def orders(topic: str, output: str):
    return respool.Pipeline(
        name="orders", topic=topic, transform=priced, stateless=True, sink=respool.KafkaSink(output, key=("visit_id",)),
        decode=respool.JsonDecoder("visit_id STRING, event_time TIMESTAMP, page STRING", event_time="event_time"),
    )
"""


def visits(count: int) -> list[bytes]:
    rows = ({"visit_id": f"v{number}", "event_time": "2025-09-04T07:00:00Z", "page": "home"} for number in range(count))
    return [json.dumps(row).encode() for row in rows]


def test_a_pipeline_with_its_helpers_and_a_package_runs_where_nothing_of_it_is_installed(
    driver: Driver, kafka: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (driver.folder / "shop").mkdir()
    (driver.folder / "shop" / "__init__.py").touch()
    (driver.folder / "shop" / "pipelines.py").write_text(PIPELINE)
    # A helper that is imported in a function, and a module beside the package that needs a package of another author.
    (driver.folder / "shop" / "labels.py").write_text("def label_of(page):\n    return page.title()\n")
    (driver.folder / "shop_prices.py").write_text(
        "import tariffs\n\ndef price_of(page):\n"
        "    print(f'priced {page} by {__file__}')\n    return tariffs.PRICES[page]\n"
    )
    # As `pip install --target packages tariffs` leaves it; here it is installed, too.
    (driver.folder / "packages" / "tariffs").mkdir(parents=True)
    (driver.folder / "packages" / "tariffs" / "__init__.py").write_text("PRICES = {'home': 7}\n")
    monkeypatch.setenv("PYTHONPATH", str(driver.folder / "packages"))
    shutil.make_archive(str(driver.folder / "packages"), "zip", driver.folder / "packages")
    driver.configure(**{"spark.submit.pyFiles": str(driver.folder / "packages.zip")})
    producer.produce_together(kafka, topic, visits(3))

    output, error = driver.run(
        *("shop.pipelines:orders", "--available-now", "--set", f"topic={topic}", "--set", f"output={topic}-out")
    )
    results = [json.loads(record.value or b"") for record in consumer.read(kafka, f"{topic}-out")]
    assert [(row["visit_id"], row["price"], row["label"]) for row in results] == [
        (f"v{number}", 7, "Home") for number in range(3)
    ]
    # Imported from what the worker was sent, and not from the driver's folder, which is on the same disk.
    sources = re.findall(r"priced home by (.*)", printed(error))
    assert len(sources) == 3
    # The zip is in the working directory of the executor.
    assert all(source.startswith("./shop_prices-") and ".zip/" in source for source in sources), sources
    assert "orders batch 0  3 rows" in error
    assert output == ""


def test_a_package_that_is_missing_on_the_executors_is_named(driver: Driver, kafka: KafkaCluster, topic: str) -> None:
    (driver.folder / "parcels.py").write_text(
        "import respool\nfrom pyspark.sql import functions as F\n\n"
        "def weigh(page):\n    import confluent_kafka\n    return 1\n\n"
        "def parcels(topic: str):\n"
        "    transform = lambda records: records.select(F.udf(weigh, 'int')('value').alias('weight'))\n"
        "    sink = respool.ConsoleSink()\n"
        "    return respool.Pipeline('parcels', topic, transform, sink, stateless=True)\n"
    )
    producer.produce_together(kafka, topic, visits(1))
    _, error = ended(driver.start("parcels:parcels", "--available-now", "--set", f"topic={topic}"), code=1)
    assert "A task needs a Python module that is not installed where it ran." in error
    assert "Spark says: ModuleNotFoundError: No module named 'confluent_kafka'" in error


def test_a_job_under_spark_submit_prints_where_its_tasks_print(driver: Driver, kafka: KafkaCluster, topic: str) -> None:
    producer.produce_together(kafka, topic, visits(2))
    binaries = Path(sys.executable).parent
    jars, _ = ended(driver.start_program(str(binaries / "respool"), "jars"))
    settings = {**driver.cluster.spark, "spark.pyspark.driver.python": sys.executable}
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    job = [str(JOB), "--available-now", "--set", f"topic={topic}"]
    output, error = ended(
        driver.start_program(
            *(str(binaries / "spark-submit"), "--master", driver.cluster.address, "--jars", jars.strip(), *conf, *job)
        )
    )
    reported = output + error  # spark-submit makes one stream of a script's two
    assert "micro-batch batch 0  2 rows" in reported
    log = printed(reported)
    assert len(re.findall(r"Partition\[\d\] > Printing visit=Row\(visit_id='v\d'", log)) == 2


def printed(error: str) -> str:
    """Return what tasks have printed, from the addresses that a run has reported."""
    [line] = [line for line in error.splitlines() if line.startswith("Tasks print to the logs of their executors: ")]
    pages = []
    for address in line.partition(": ")[2].split():
        raw = address.replace("/logPage/", "/log/") + "&byteLength=1000000"
        with urllib.request.urlopen(raw, timeout=20) as answer:
            pages.append(answer.read().decode())
    return "\n".join(pages)
