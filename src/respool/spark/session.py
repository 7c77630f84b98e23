"""The only place that builds a SparkSession."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from respool.errors import MachineError
from respool.local import jars
from respool.locations import for_spark, scheme_of, store_of
from respool.settings import Settings
from respool.spark import cluster, connect, gateway, internals, jvm_classes
from respool.storage import lease, object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# For one machine and small batches; the [spark] table overrides them, and a cluster keeps its own defaults.
_LOCAL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # written for every batch, and shown by that UI only
    "spark.driver.memory": "2g",  # all tasks run in the driver; with Spark's 1g it collects garbage twice as often
}
# The JVM's default collector is optimized for short pauses; this collector takes less time overall.
_COLLECTOR = "-XX:+UseParallelGC"
# Ten times the JVM's own. Spark's planner is large and runs a few times for each batch: optimizing it fully
# costs more than it saves. Code that runs for each record is fully optimized within a second all the same.
_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_ALWAYS = {
    "spark.app.name": "respool",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.showConsoleProgress": "false",
    "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop sets file modes, whatever the process's umask is
    # With it, pyspark sends each column of a plan to the JVM with its line of Python, by several calls: a tenth
    # of a second and more for each batch. A failing transform has Python's own stack trace.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # For a Python process and the JVM to authenticate; the default, 15 seconds, is too short on a busy machine. That a
    # worker must connect within 10 seconds is fixed in Spark's code: there the query is restarted.
    "spark.python.authenticate.socketTimeout": "1m",
}
# Warnings that a user can act on: a batch falls behind its trigger, Kafka is out of reach, records are lost.
_SHOWN = (
    "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor",
    "org.apache.spark.sql.kafka010.KafkaMicroBatchStream",
    "org.apache.kafka.clients.NetworkClient",
)
# They log every poll.
_VERBOSE = (
    "org.apache.kafka.clients.consumer.internals.ClassicKafkaConsumer",
    "org.apache.kafka.clients.consumer.internals.SubscriptionState",
)
# A warning as the other lines of a run are with log_format = "json".
_JSON_LINE = (
    """{"time":"%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z","level":"%level{WARN=warning,lowerCase=true}","""
    """"logger":"spark.%c{1}","message":"%enc{%m}{JSON}"}%n%ex{0}"""
)
_PATIENCE = 20.0  # seconds
_CONNECTORS = {
    "s3": "the jars that `respool jars --with s3` lists",
    "gs": "the jar gcs-connector (com.google.cloud.bigdataoss)",
    "abfs": "the jar hadoop-azure (org.apache.hadoop) and what it needs",
}

# Every run imports this module. A JVM that pyspark already uses, as under spark-submit, holds checkpoints, too.
lease.register_jvm(internals.running_jvm)


@contextmanager
def any_session(settings: Settings, locations: Iterable[str] = ()) -> "Iterator[SparkSession]":
    """Yield a session on the Spark Connect server that is named, or start Spark: for what needs no JVM.

    Args:
        settings: As for `spark_session`.
        locations: As for `spark_session`.
    """
    address = connect.server_of(settings)
    started = spark_session(settings, locations=locations) if address is None else connect.connect_session(address)
    with started as session:
        yield session


@contextmanager
def spark_session(
    settings: Settings, patience: float = _PATIENCE, locations: Iterable[str] = ()
) -> "Iterator[SparkSession]":
    """Start Spark for the length of a `with` block; no process is left behind, except once: see jvm_classes.

    Under spark-submit the JVM runs already: it keeps its own jars and logging, and only settings of a session are set.
    The JVM holds every checkpoint that this process holds, so that none is free before it ends.

    Args:
        settings: Spark's master and its settings, and the home.
        patience: How many seconds the JVM has to end on its own.
        locations: Folders and URLs that it reads and writes, besides those of the settings: Hadoop's connector is added
            for the stores among them.

    Raises:
        MachineError: The JVM did not start, or was killed meanwhile.
        SettingsError: Spark Connect is asked for.
    """
    connect.refuse(settings)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        cluster.require_master(settings.master)
    conf = _conf(settings, submitted, stores_of(settings, locations))
    with _default_python() as is_default:
        if submitted:
            session = _session(conf, is_default)
            try:
                require_connectors(session, stores_of(settings, locations))
                yield session
            finally:
                session.stop()
            return
        with gateway.running_jvm(conf, settings, patience) as jvm:
            session = _session(conf, is_default)
            jvm.serve(session)
            require_connectors(session, stores_of(settings, locations))
            yield session
    if _archives_classes(conf):
        jvm_classes.make_archive_later()


@contextmanager
def _default_python() -> Iterator[bool]:
    """Let Python workers be of this environment unless PYSPARK_PYTHON names another; yield whether none was named.

    Without it, stateful workers use the first python3 of the PATH.
    """
    is_default = "PYSPARK_PYTHON" not in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        yield is_default
    finally:
        if is_default:
            os.environ.pop("PYSPARK_PYTHON", None)


def _session(conf: Mapping[str, str], default_python: bool) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    with _kept_interrupt_handler():
        session = builder.getOrCreate()
    if default_python and cluster.is_cluster(session):
        # This environment is not on the hosts of the executors.
        context = session.sparkContext
        context.pythonExec = str(context.getConf().get("spark.pyspark.python", "python3"))
    jvm = internals.running_jvm()
    if jvm is not None:
        lease.extend_all(jvm)
    return session


@contextmanager
def _kept_interrupt_handler() -> Iterator[None]:
    """Keep the handler of SIGINT: pyspark's own calls the JVM in the middle of another call."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def session_for(spark: "SparkSession", timezone: str, conf: Mapping[str, str]) -> "SparkSession":
    """Return a new session in the same application, with a time zone and settings that apply to it alone."""
    session = connect.separate_session(spark)
    # A new session of a JVM starts from the application's settings, not from those of the session it came from.
    for name, value in {"spark.sql.session.timeZone": timezone, **conf}.items():
        session.conf.set(name, value)
    return session


def stores_of(settings: Settings, locations: Iterable[str] = ()) -> set[str]:
    """Return the object stores that a session needs, by their canonical schemes."""
    places = (settings.storage, settings.checkpoints, settings.savepoints, settings.archive, *locations)
    return {store for place in places if place is not None and (store := store_of(place)) is not None}


def require_connectors(spark: "SparkSession", stores: Iterable[str]) -> None:
    """Raise MachineError when Spark lacks Hadoop's connector for an object store.

    A server of Spark Connect is not asked: it reports a missing connector itself.

    Args:
        spark: A session, which may be a caller's own.
        stores: The canonical schemes of the stores.
    """
    if connect.is_connect(spark):
        return
    for store in sorted(stores):
        scheme = scheme_of(for_spark(f"{store}://bucket"))
        assert scheme is not None
        if not internals.has_filesystem(spark, scheme):
            raise MachineError(
                f"Spark has no connector for {scheme}:// addresses. Start it with {_CONNECTORS[store]}, as --jars of "
                "spark-submit or as spark.jars in the [spark] table of respool.toml."
            )


def _conf(settings: Settings, submitted: bool, stores: set[str]) -> dict[str, str]:
    access = object_store.hadoop_conf(settings, os.environ, stores)
    if submitted:
        return {**_ALWAYS, **access, **settings.spark}
    local = cluster.is_local(settings.master)
    needed = jars.spark_jars(settings)
    if "s3" in stores:
        needed = [*needed, *jars.s3_jars(settings), jvm_classes.S3_JAR]
        access |= jvm_classes.S3_CONF
    names = ",".join(str(jar) for jar in (needed if local else (*needed, jvm_classes.JAR)))
    # The executors of other clusters may use files before they have the jars of the application.
    files = jvm_classes.CONF if local or settings.master.startswith("spark://") else {}
    conf = {
        **_ALWAYS,
        **access,
        **(_LOCAL if local else {}),
        **files,
        "spark.master": settings.master,
        **settings.spark,
    }
    extra = conf.get("spark.jars")
    conf["spark.jars"] = f"{names},{extra}" if extra else names
    conf.setdefault("spark.sql.warehouse.dir", (settings.home / "warehouse").absolute().as_uri())
    if local and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
        conf.setdefault("spark.python.daemon.module", "respool.spark.python_daemon")
    if files:
        # The JVM's own class path, since Hadoop loads the classes before Spark has loaded its jars.
        wanted = (str(jvm_classes.JAR), conf.get("spark.driver.extraClassPath", ""))
        conf["spark.driver.extraClassPath"] = os.pathsep.join(filter(None, wanted))
    conf["spark.driver.extraJavaOptions"] = _java_options(conf, settings, local)
    return conf


def _java_options(conf: Mapping[str, str], settings: Settings, local: bool) -> str:
    """Return the options of Spark's JVM; the user's options come last, and override others."""
    own = [f"-Dlog4j2.configurationFile={_logging(settings).as_uri()}"]
    if local and not re.search(r"-XX:\+Use\w+GC\b", _given_options(conf)):  # a JVM with two collectors does not start
        own.append(_COLLECTOR)
    if local and "-XX:Tier" not in _given_options(conf):
        own += _COMPILER
    if _archives_classes(conf):
        own += jvm_classes.archive_options()
    return " ".join((*own, conf.get("spark.driver.extraJavaOptions", ""))).strip()


def _archives_classes(conf: Mapping[str, str]) -> bool:
    # Only a local run has everything that the archive contains on its class path.
    local = str(jvm_classes.JAR) in conf.get("spark.driver.extraClassPath", "").split(os.pathsep)[:1]
    return local and cluster.is_local(conf["spark.master"]) and jvm_classes.is_archive_wanted(_given_options(conf))


def _given_options(conf: Mapping[str, str]) -> str:
    """Return all options that a user gives to the JVM, in settings or variables."""
    settings = (conf.get(name, "") for name in ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"))
    return " ".join((*settings, *(os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"))))


def _logging(settings: Settings) -> Path:
    """Write the configuration of Spark's log: all to a file under the home, actionable warnings to the terminal."""
    folder = settings.logs.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    as_json = settings.log_format == "json"
    lines = [
        "appender.file.type = RollingFile",
        "appender.file.name = file",
        f"appender.file.fileName = {folder}/spark.log",
        f"appender.file.filePattern = {folder}/spark-%i.log",
        "appender.file.layout.type = PatternLayout",
        "appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %c{1}: %m%n%ex",
        "appender.file.policies.type = SizeBasedTriggeringPolicy",
        "appender.file.policies.size = 32MB",
        "appender.file.strategy.type = DefaultRolloverStrategy",
        "appender.file.strategy.max = 3",
        "appender.terminal.type = Console",
        "appender.terminal.name = terminal",
        "appender.terminal.target = SYSTEM_ERR",
        "appender.terminal.layout.type = PatternLayout",
        f"appender.terminal.layout.pattern = {_JSON_LINE if as_json else 'spark: %m%n%ex{0}'}",
        # A warning that is repeated every second is shown a few times, then rarely.
        "appender.terminal.filter.burst.type = BurstFilter",
        "appender.terminal.filter.burst.level = warn",
        "appender.terminal.filter.burst.rate = 0.05",
        "appender.terminal.filter.burst.maxBurst = 5",
        "rootLogger.level = info",
        "rootLogger.appenderRef.file.ref = file",
        # Spark lowers the root logger to this logger's level at its start, and prints that on the terminal.
        "logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer",
        "logger.gateway.level = info",
    ]
    for number, logger in enumerate(_VERBOSE):
        lines += [f"logger.verbose{number}.name = {logger}", f"logger.verbose{number}.level = warn"]
    for number, logger in enumerate(_SHOWN):
        lines += [
            f"logger.shown{number}.name = {logger}",
            f"logger.shown{number}.level = info",
            f"logger.shown{number}.appenderRef.terminal.ref = terminal",
            f"logger.shown{number}.appenderRef.terminal.level = warn",
        ]
    file = folder / ("log4j2-json.properties" if as_json else "log4j2.properties")
    text = "\n".join(lines) + "\n"
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    return file
