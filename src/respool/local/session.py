"""The only place that builds a SparkSession."""

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from respool.errors import MachineError
from respool.local import class_archive, jars, own_classes
from respool.local.java import find_java
from respool.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline import Pipeline

# For one machine and small batches; a cluster's own defaults and the [spark] table win over them.
_LOCAL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.ui.explainMode": "simple",  # written for every batch, and shown by that UI only
    "spark.driver.memory": "2g",  # all tasks run in the driver; with Spark's 1g it collects garbage twice as often
    **own_classes.CONF,
}
# The JVM takes the collector for short pauses by default; this one leaves more time for the work.
_COLLECTOR = "-XX:+UseParallelGC"
# Ten times the JVM's own. Spark's planner is large and runs a few times for each batch: to compile it with all care
# costs more than it saves. What runs for each record gets there within a second all the same.
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
    # Every column of a plan would be told to the JVM with its line of Python, by several calls: a tenth of a second and
    # more for each batch. What fails in a transform has Python's own stack trace.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# Warnings that a user can act on: a batch falls behind its trigger, Kafka is out of reach, records are lost.
_TOLD = (
    "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor",
    "org.apache.spark.sql.kafka010.KafkaMicroBatchStream",
    "org.apache.kafka.clients.NetworkClient",
)
# They tell of every poll.
_TALKATIVE = (
    "org.apache.kafka.clients.consumer.internals.ClassicKafkaConsumer",
    "org.apache.kafka.clients.consumer.internals.SubscriptionState",
)
_PATIENCE = 20.0  # seconds
# What the JVM and pyspark say by themselves at their start, of no use to anybody.
_NOISE = (
    b"WARNING: Using incubator modules",
    b"Picked up JAVA_TOOL_OPTIONS",
    b"NOTE: Picked up JDK_JAVA_OPTIONS",
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)


@contextmanager
def spark_session(settings: Settings, patience: float = _PATIENCE) -> "Iterator[SparkSession]":
    """Start Spark for the length of a `with` block; no process is left behind, but for one, once: see class_archive.

    Under spark-submit the JVM runs already: it keeps its own jars and logging, and only the settings that a session can
    still take are set.

    Args:
        settings: Spark's master and its settings, and the home.
        patience: How many seconds the JVM has to end by itself.
    """
    from pyspark.sql import SparkSession

    # Stateful workers take the first python3 of the PATH otherwise.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    conf = _conf(settings, submitted)
    jvm = None if submitted else _start_jvm(conf, settings)
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        _stop(session, jvm, patience)
        if jvm is not None and _archives_classes(conf):
            class_archive.make_later()


def session_of(spark: "SparkSession", pipeline: "Pipeline") -> "SparkSession":
    """Return a session of the pipeline's own, in its time zone and with its settings, in the same application."""
    session = spark.newSession()
    # A new session starts from the application's settings, not from those of the session it came from.
    for name, value in {"spark.sql.session.timeZone": pipeline.timezone, **pipeline.spark}.items():
        session.conf.set(name, value)
    return session


def _conf(settings: Settings, submitted: bool) -> dict[str, str]:
    if submitted:
        return {**_ALWAYS, **settings.spark}
    local = re.match(r"local(\[|$)", settings.master) is not None
    needed = jars.spark_jars(settings)
    files = ",".join(str(jar) for jar in (needed if local else (*needed, own_classes.JAR)))
    conf = {**_ALWAYS, **(_LOCAL if local else {}), "spark.master": settings.master, **settings.spark}
    extra = conf.get("spark.jars")
    conf["spark.jars"] = f"{files},{extra}" if extra else files
    conf.setdefault("spark.sql.warehouse.dir", (settings.home / "warehouse").absolute().as_uri())
    if local and os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
        conf.setdefault("spark.python.daemon.module", "respool.local.python_daemon")
    if local:
        # The JVM's own class path, as Hadoop looks for the classes before Spark has loaded its jars.
        wanted = (str(own_classes.JAR), conf.get("spark.driver.extraClassPath", ""))
        conf["spark.driver.extraClassPath"] = os.pathsep.join(filter(None, wanted))
    conf["spark.driver.extraJavaOptions"] = _java_options(conf, settings, local)
    return conf


def _java_options(conf: Mapping[str, str], settings: Settings, local: bool) -> str:
    """Return the options of Spark's JVM; those of the user come last, and win."""
    own = [f"-Dlog4j2.configurationFile={_logging(settings).as_uri()}"]
    if local and not re.search(r"-XX:\+Use\w+GC\b", _given_options(conf)):  # a JVM with two collectors does not start
        own.append(_COLLECTOR)
    if local and "-XX:Tier" not in _given_options(conf):
        own += _COMPILER
    if _archives_classes(conf):
        own += class_archive.options()
    return " ".join((*own, conf.get("spark.driver.extraJavaOptions", ""))).strip()


def _archives_classes(conf: Mapping[str, str]) -> bool:
    # Only a local run has all that the archive is made of on its class path.
    local = str(own_classes.JAR) in conf.get("spark.driver.extraClassPath", "").split(os.pathsep)[:1]
    return local and class_archive.is_wanted(_given_options(conf))


def _given_options(conf: Mapping[str, str]) -> str:
    """Return all options that a user gives to the JVM, wherever."""
    settings = (conf.get(name, "") for name in ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"))
    return " ".join((*settings, *(os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"))))


def _logging(settings: Settings) -> Path:
    """Write how Spark logs: all to a file under the home, and to the terminal only what its user can act on."""
    folder = settings.logs.absolute()
    folder.mkdir(parents=True, exist_ok=True)
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
        "appender.terminal.layout.pattern = spark: %m%n%ex{0}",
        # The same trouble every second is told a few times, then now and then.
        "appender.terminal.filter.burst.type = BurstFilter",
        "appender.terminal.filter.burst.level = warn",
        "appender.terminal.filter.burst.rate = 0.05",
        "appender.terminal.filter.burst.maxBurst = 5",
        "rootLogger.level = info",
        "rootLogger.appenderRef.file.ref = file",
        # Spark lowers the root logger to this one's level at its start, and says so on the terminal.
        "logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer",
        "logger.gateway.level = info",
    ]
    for number, logger in enumerate(_TALKATIVE):
        lines += [f"logger.talkative{number}.name = {logger}", f"logger.talkative{number}.level = warn"]
    for number, logger in enumerate(_TOLD):
        lines += [
            f"logger.told{number}.name = {logger}",
            f"logger.told{number}.level = info",
            f"logger.told{number}.appenderRef.terminal.ref = terminal",
            f"logger.told{number}.appenderRef.terminal.level = warn",
        ]
    file = folder / "log4j2.properties"
    text = "\n".join(lines) + "\n"
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    return file


def _start_jvm(conf: Mapping[str, str], settings: Settings) -> "subprocess.Popen[bytes]":
    """Start the JVM that pyspark will use; its settings travel in a private file, as command lines are public."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    os.environ.setdefault("JAVA_HOME", str(find_java().home))
    with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:
        for name, value in conf.items():
            escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
            file.write(f"{name}={escaped}\n")
        file.flush()
        before = os.environ.get("PYSPARK_SUBMIT_ARGS")
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {file.name} pyspark-shell"
        try:
            gateway = launch_gateway(popen_kwargs={"stderr": subprocess.PIPE})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise MachineError(
                f"Spark's JVM did not start. See what it said above, and {settings.logs / 'spark.log'}. "
                "Check Java and the [spark] table of respool.toml with: respool doctor."
            ) from error
        finally:
            if before is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before
    jvm: subprocess.Popen[bytes] = gateway.proc
    threading.Thread(target=_pass_on, args=(jvm.stderr,), name="jvm-stderr", daemon=True).start()
    SparkContext._ensure_initialized(gateway=gateway)
    return jvm


def _pass_on(lines: IO[bytes]) -> None:
    """Copy what the JVM and the tasks print to our standard error, but for the noise."""
    with lines:
        noise = False
        for line in lines:
            noise = line.startswith(_NOISE) or (noise and line == b"\n")  # pyspark's have an empty line behind them
            if not noise:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()


def _stop(session: "SparkSession", jvm: "subprocess.Popen[bytes] | None", patience: float) -> None:
    session.stop()
    if jvm is None:
        return
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        jvm.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
