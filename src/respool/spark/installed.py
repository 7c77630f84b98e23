"""The pyspark that is installed: `pip install respool` has none, `respool[spark]` adds it."""

from importlib import metadata
from pathlib import Path

from respool.errors import MachineError
from respool.local import jars
from respool.settings import Settings

PACKAGES = ("pyspark", "py4j", "pandas")  # what the extra `spark` installs
SUPPORTED = ("4.0", "4.1", "4.2")  # whose checkpoints are read and changed, and that run where their jars are available


def version() -> str:
    """Return the version of pyspark; empty when it is not installed."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return ""


def missing(what: str) -> MachineError:
    """Return the error of something that needs Spark, where it is not installed."""
    return MachineError(f"{what} needs Spark, which is not installed. Install it with: pip install 'respool[spark]'")


def require(what: str) -> None:
    """Raise MachineError when pyspark is not installed."""
    if not version():
        raise missing(what)


def own_jars(settings: Settings) -> list[Path]:
    """Return respool's jars for the installed Spark; none for a version whose jars the user names.

    Raises:
        MachineError: They are of another version of Spark, and the user names no jars.
    """
    installed, locked = (".".join(text.split(".")[:2]) for text in (version(), jars.spark_version()))
    if installed == locked:
        return jars.spark_jars(settings)
    if installed not in SUPPORTED:
        raise MachineError(
            f"pyspark {version()} is installed; expected one of the versions {', '.join(SUPPORTED)}. Install it with: "
            f"pip install 'pyspark=={jars.spark_version()}'"
        )
    if not any(settings.spark.get(name) for name in ("spark.jars", "spark.jars.packages")):
        raise MachineError(
            f"respool's jars of Delta Lake and of Spark's Kafka connector are for Spark {locked}; pyspark {version()} "
            f"is installed. Install pyspark {jars.spark_version()}, or name the jars for {installed} as "
            "spark.jars.packages in the [spark] table of respool.toml."
        )
    return []
