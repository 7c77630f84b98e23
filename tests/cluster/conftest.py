"""One cluster for all tests of a process; each test finds both of its workers running."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.kafka.cluster import KafkaCluster
from support.cluster import StandaloneCluster, standalone_cluster
from support.cluster_driver import Driver


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A cluster, of which a test may have killed workers."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def cluster(standalone: StandaloneCluster) -> StandaloneCluster:
    """A cluster of two workers."""
    standalone.complete()
    return standalone


@pytest.fixture
def driver(cluster: StandaloneCluster, kafka: KafkaCluster, tmp_path: Path) -> Driver:
    """A machine with an empty working folder, apart from respool.toml."""
    driver = Driver(cluster, kafka, tmp_path)
    driver.configure()
    return driver
