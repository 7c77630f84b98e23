"""Which versions of Spark can have written a checkpoint, and which state store the query uses.

A checkpoint does not record the version of Spark. But every batch records settings in `offsets`, and each version of
Spark records more of them: the newest batch shows which versions can have written it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from respool.format.model import OffsetLogEntry

TESTED = "4.0 to 4.2"

_PREFIX = "spark.sql.streaming."
_PROVIDER = f"{_PREFIX}stateStore.providerClass"
_PROVIDERS = ("HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider")
_SPARK = "org.apache.spark.sql.execution.streaming."
# A setting, the versions that record it but none of the settings above it, and whether respool is tested with them.
_SINCE = (
    ("stateStore.rowChecksum.enabled", "4.2 or later", True),
    ("stateStore.encodingFormat", "4.0 or 4.1", True),
    ("statefulOperator.useStrictDistribution", "3.1 to 3.5", False),
    ("stateStore.rocksdb.formatVersion", "3.2", False),
    ("stateStore.compression.codec", "3.1", False),
    ("join.stateFormatVersion", "3.0", False),
    ("aggregation.stateFormatVersion", "2.4", False),
)
_OLDEST = "2.3 or older"


@dataclass(frozen=True)
class WriterVersions:
    """The versions of Spark that can have written a batch.

    Attributes:
        versions: The versions, as text.
        tested: Whether respool is tested with them.
    """

    versions: str
    tested: bool

    @property
    def warning(self) -> str | None:
        """A warning about versions that respool is not tested with; None for tested versions."""
        if self.tested:
            return None
        return (
            f"By the settings in offsets, Spark {self.versions} wrote this checkpoint. respool is tested with Spark "
            f"{TESTED}; older checkpoints are read by the same rules, untested."
        )


def writer_of(planned: OffsetLogEntry) -> WriterVersions:
    """Return which versions of Spark can have written a batch."""
    if planned.version > 1:
        return WriterVersions("4.2 or later", True)
    for name, versions, tested in _SINCE:
        if f"{_PREFIX}{name}" in planned.conf:
            return WriterVersions(versions, tested)
    return WriterVersions(_OLDEST, False)


def unknown_provider(conf: Mapping[str, str]) -> str | None:
    """Return the class of the state store in a batch's settings when respool cannot read its files; else None."""
    name = conf.get(_PROVIDER)
    if name is None or (name.startswith(_SPARK) and name.rpartition(".")[2] in _PROVIDERS):
        return None
    return name


def unreadable(provider: str) -> str:
    """Return the message about a state store that respool cannot read."""
    return (
        f"The query keeps its state with {provider}, which respool cannot read; "
        f"it reads Spark's {' and '.join(_PROVIDERS)}"
    )
