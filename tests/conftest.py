"""One broker and one Spark session for all tests; a fresh topic for each."""

import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from respool.kafka import topics
from respool.kafka.cluster import KafkaCluster
from respool.local import broker
from respool.settings import Settings
from respool.spark.session import spark_session
from support import jvm, object_store
from support.store_proxy import StoreProxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The duration of an example depends more on the machine than on the code.
hypothesis.settings.register_profile("respool", deadline=None)
hypothesis.settings.load_profile("respool")


@pytest.fixture(scope="session", autouse=True)
def _own_environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The settings of the user do not affect the tests; every JVM that they start is a quick one."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("RESPOOL_")}
    # As Spark's workers and a user's terminal have it, so that times are seen not to depend on it.
    os.environ["TZ"] = "America/New_York"
    time.tzset()
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))  # of the key that journals are sealed with
    with ExitStack() as stack:
        if any("unit" not in item.path.parts for item in request.session.items):
            archive = stack.enter_context(jvm.archive_in(request.config.rootpath / ".pytest_cache" / "jvm"))
            os.environ["JDK_JAVA_OPTIONS"] = jvm.options(archive)
        yield
    os.environ.update(kept)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a home for all tests."""
    return Settings(
        home=tmp_path_factory.mktemp("home"),
        master="local[2]",
        spark={
            # The default starts processes for each small file of a checkpoint; the files are the same.
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
            # Tests unload state stores while maintenance may wait for the same lock: Spark would wait for minutes.
            "spark.sql.streaming.stateStore.maintenanceShutdownTimeout": "2s",
            "spark.sql.streaming.stateStore.maintenanceForceShutdownTimeout": "2s",
        },
    )


@pytest.fixture(scope="session")
def kafka(settings: Settings) -> Iterator[KafkaCluster]:
    """A real broker."""
    with broker.running(settings) as started:
        yield KafkaCluster(started.address)


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    """A fresh topic of two partitions."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    topics.create(kafka, name, partitions=2)
    return name


@pytest.fixture(scope="session")
def spark(settings: Settings) -> "Iterator[SparkSession]":
    """A real Spark session; it has what object stores need."""
    with spark_session(settings, locations=("s3://any",)) as session:
        session.sparkContext.setLogLevel("WARN")
        yield session


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real S3 server; its address."""
    with object_store.serving(tmp_path_factory.mktemp("store")) as address:
        yield address


@pytest.fixture(scope="session")
def store_proxy(store_server: str) -> Iterator[StoreProxy]:
    """A proxy before the server, through which all tests reach it."""
    with StoreProxy(store_server).serving() as proxy:
        yield proxy


@pytest.fixture
def store(store_proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh folder on the server, as a URL; this process and those that it starts can reach it."""
    object_store.configure(monkeypatch, store_proxy.address)
    store_proxy.up()
    store_proxy.delay = 0.0
    return f"s3://{object_store.BUCKET}/{uuid.uuid4().hex[:12]}"


@pytest.fixture
def s3a(store: str, store_proxy: StoreProxy, request: pytest.FixtureRequest) -> str:
    """That folder, reached by the tests' Spark, too."""
    object_store.configure_spark(request.getfixturevalue("spark"), store_proxy.address)
    return store


@pytest.fixture(scope="session")
def respool() -> str:
    """The `respool` command of this environment."""
    return str(Path(sys.executable).parent / "respool")
