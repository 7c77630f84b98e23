"""Every private part of Spark and every call through py4j that respool makes.

No other module touches them: `tests/unit/contracts/test_private_spark.py` fails otherwise. Each docstring names the
versions of Spark that the part was tested with, and what stops working when a new version of Spark changes it.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from respool.errors import SettingsError
from respool.locations import for_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_TRY_AGAIN = 0.02  # seconds

# The JVM and its connection


def spark_home() -> str:
    """Return the folder of Spark's programs.

    Tested with Spark 4.2.0. Without it, respool cannot find spark-submit and so cannot start a JVM.
    """
    from pyspark.find_spark_home import _find_spark_home

    home: str = _find_spark_home()
    return home


def connect(process: "subprocess.Popen[bytes]", port: int, secret: str) -> None:
    """Let pyspark use a JVM that already listens, in place of starting one.

    Tested with Spark 4.2.0. Without it, pyspark starts the JVM in its own process group, where Ctrl-C ends the JVM
    before the queries have stopped.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}  # with these it starts no JVM
    os.environ.update(variables)
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in variables:
            del os.environ[name]
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)


def jvm_process() -> "subprocess.Popen[bytes] | None":
    """Return the process of the JVM that pyspark uses; None when there is none, or when spark-submit started it.

    Tested with Spark 4.2.0. Without it, a run that has lost its lease cannot end a batch that does not stop, and the
    class data archive is kept although the JVM that wrote it has failed.
    """
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def disconnect() -> None:
    """Close pyspark's connection to the JVM.

    Tested with Spark 4.2.0. Without it, the JVM ends only when its standard input is closed.
    """
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()


def forget_jvm() -> None:
    """Remove pyspark's references to a JVM that has ended, whether it could be stopped or not.

    Tested with Spark 4.2.0. Without it, the process cannot start Spark a second time after its JVM was killed.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def forget_options(builder: "SparkSession.Builder") -> None:
    """Remove all options from the builder of sessions, which exists once in a process.

    Tested with Spark 4.2.0. Without it, a session on another Spark Connect server gets the address of the first.
    """
    builder._options.clear()


class SparkJvm:
    """The JVM that pyspark uses, which holds checkpoints together with this process.

    Tested with Spark 4.2.0. Without it, a checkpoint counts as free while the JVM of a killed run still writes to it.

    Attributes:
        pid: The id of its process.
    """

    def __init__(self, jvm: Any) -> None:
        """Ask the JVM for its process id."""
        self._java = jvm.java
        self.pid = int(jvm.java.lang.ProcessHandle.current().pid())

    def lock(self, path: Path, attempts: int) -> Callable[[], object] | None:
        """Lock a file until the returned function is called or the JVM ends; None when another process holds it."""
        # The returned function keeps the object alive in the JVM: if it were collected, the lock would be released.
        file = self._java.io.RandomAccessFile(str(path.absolute()), "rw")
        for _ in range(attempts):
            if file.getChannel().tryLock() is not None:
                return lambda: file.close()
            time.sleep(_TRY_AGAIN)
        return None


def running_jvm() -> SparkJvm | None:
    """Return the JVM that pyspark uses in this process; None when there is none, as with Spark Connect.

    Tested with Spark 4.2.0. For what fails without it, see `SparkJvm`.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    jvm = getattr(context, "_jvm", None)
    return None if jvm is None else SparkJvm(jvm)


def running_executors(spark: "SparkSession") -> list[tuple[str, int, str]]:
    """Return the executors of an application: the id, the number of cores and the address of the log of each.

    Tested with Spark 4.2.0. Without it, the number of state partitions follows from the topic alone, and the logs that
    tasks print to are found on the cluster's own web page only.
    """
    context: Any = spark.sparkContext
    listed: Any = context._jsc.sc().statusStore().executorList(True)
    running = []
    for position in range(listed.size()):
        executor: Any = listed.apply(position)
        if executor.id() != "driver":
            log = executor.executorLogs().get("stderr")
            running.append((executor.id(), executor.totalCores(), log.get() if log.isDefined() else ""))
    return running


# Errors


def silence_lost_connections() -> None:
    """Keep py4j from logging each lost connection with its stack trace, by its own logger and by the root logger.

    Tested with Spark 4.2.0. Without it, the end of the JVM prints pages of stack traces before respool's message.
    """
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def silence_accumulator_server(spark: "SparkSession") -> None:
    """Keep the server to which Python workers report from printing a stack trace when a connection is lost.

    Tested with Spark 4.2.0. Without it, a killed JVM leaves a stack trace above respool's message.
    """
    server: Any = spark.sparkContext._accumulatorServer
    handle = server.handle_error

    def handle_others(*request: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            handle(*request)

    server.handle_error = handle_others


def is_lost_connection(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, says that the JVM does not answer.

    Tested with Spark 4.2.0. Without it, a killed JVM is reported by py4j's own errors.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, Py4JError | ConnectionError | EOFError) and not isinstance(error, Py4JJavaError):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def translate_errors(translate: Callable[[Exception], Exception], connection: bool = False) -> Iterator[None]:
    """Raise what `translate` returns for an error that Spark raises in a `with` block.

    Tested with Spark 4.2.0. Without it, exceptions that pyspark does not convert itself reach users as py4j's own.

    Args:
        translate: Called with the error.
        connection: Translate a lost connection to the JVM, too. It does not say whether the call took effect.
    """
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    translated = (PySparkException, Py4JError if connection else Py4JJavaError)
    try:
        yield
    except translated as error:
        raise translate(error) from error


@contextmanager
def ignore_ended_jvm() -> Iterator[None]:
    """Ignore errors of calls to a JVM that may have ended, for the length of a `with` block.

    Tested with Spark 4.2.0. Without it, threads that stop queries print stack traces when the JVM was killed.
    """
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        yield


# Streaming queries

_MOST_TEXT = 1000  # characters; Spark's expression overflows a thread's stack of 1 MiB at about 1,500


@contextmanager
def short_errors() -> Iterator[None]:
    """Shorten the Java error that a foreachBatch function raises; Spark's log keeps the whole of it.

    When a query is stopped, Spark searches the text of the error that its batch ends with for an interruption, by a
    regular expression that recurses at every character: an ordinary stack trace overflows the stack of the query's
    thread, and the terminal gets a thousand lines.

    Tested with Spark 4.2.0. Without it, stopping a query within a batch prints a StackOverflowError.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    try:
        yield
    except Py4JJavaError as error:
        text = str(error)
        if len(text) > _MOST_TEXT:

            class ShortJavaError(Py4JJavaError):  # type: ignore[misc]
                """The same error, with a text that Spark recognizes: by py4j's name of the class."""

                __module__, __qualname__ = Py4JJavaError.__module__, Py4JJavaError.__qualname__

                def __str__(self) -> str:
                    return self.text  # type: ignore[no-any-return]

            jvm: Any = SparkContext._jvm
            logger = jvm.org.apache.logging.log4j.LogManager.getLogger("respool.batch")
            logger.warn("A batch has failed", error.java_exception)
            shortened: Any = error
            shortened.__class__, shortened.text = ShortJavaError, _causes_only(text)
        raise


def _causes_only(text: str) -> str:
    """Return the text of a Java error without its stack: what failed, and the innermost cause."""
    lines = text.splitlines()
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return "\n".join(line[: _MOST_TEXT // 3 - 1] for line in (*lines[:2], *causes[-1:]))


def stop_after_batch(query: "StreamingQuery", spark: "SparkSession") -> None:
    """Stop a query once its running batch is committed, and start no other batch.

    `query.stop()` alone interrupts the running batch. Spark's own loop ends before the next batch when the query's
    state says so, which only its internals can set; `stop()` then ends the wait for the next trigger.

    Tested with Spark 4.2.0. Without it, Ctrl-C interrupts the running batch, which is repeated at the next start.
    """
    internal: Any = query
    jvm: Any = spark._jvm
    ended = getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "TERMINATED$")
    internal._jsq.streamingQuery().state().set(getattr(ended, "MODULE$"))
    while query.status["isTriggerActive"]:
        time.sleep(_TRY_AGAIN)
    query.stop()


def query_listener(
    on_progress: "Callable[[StreamingQueryProgress], None]", on_idle: Callable[[], None], on_end: Callable[[str], None]
) -> "StreamingQueryListener":
    """Return a listener that gets the progress of each batch, that there is no new record, and the run id at the end.

    pyspark's own listener asks the JVM for each part of an event by a separate call, two hundred for a batch. The JSON
    of an event has all parts in one call.

    Tested with Spark 4.2.0. Without it, use pyspark's own listener: every batch takes up to 0.1 s longer.
    """
    from pyspark import SparkContext
    from pyspark.sql.streaming import listener

    class ProgressListener:
        """Called by the JVM."""

        def onQueryStarted(self, event: Any) -> None:
            """Nothing to report: starting is synchronous."""

        def onQueryProgress(self, event: Any) -> None:
            """Report a finished batch."""
            on_progress(listener.StreamingQueryProgress.fromJson(json.loads(event.progress().json())))

        def onQueryIdle(self, event: Any) -> None:
            """Report that there are no new records, which Spark notes every ten seconds."""
            on_idle()

        def onQueryTerminated(self, event: Any) -> None:
            """Report the end of the query."""
            on_end(event.runId().toString())

        class Java:
            """The Java interface, for py4j."""

            implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    class Listener(listener.StreamingQueryListener):
        """The type that pyspark accepts as a listener; the JVM calls `ProgressListener` directly."""

        @property
        def _jlistener(self) -> Any:
            jvm: Any = SparkContext._jvm
            return jvm.PythonStreamingQueryListenerWrapper(ProgressListener())

        def onQueryStarted(self, event: Any) -> None:
            """Not called."""

        onQueryProgress = onQueryIdle = onQueryTerminated = onQueryStarted

    return Listener()


@dataclass(frozen=True)
class WriterFacts:
    """How a query writes.

    Tested with Spark 4.2.0. For what fails without it, see `writer_facts` and `running_facts`.

    Attributes:
        format: The format of a writer, or what Spark calls the sink of a running query.
        options: The options, by their names in lower case.
        output_mode: Spark's output mode, in lower case.
        checkpoint: The checkpoint of a running query; empty for a writer.
    """

    format: str
    options: dict[str, str]
    output_mode: Any
    checkpoint: str = ""


def writer_facts(writer: "DataStreamWriter") -> WriterFacts:
    """Return the format and the options of a writer that has not been started.

    Tested with Spark 4.2.0. Without it, `respool run --job` needs the checkpoint as --checkpoint, and cannot tell which
    replayed batches the sink of a job skips.
    """
    internal: Any = writer
    fields = _private_fields(internal._jwrite, ("source", "extraOptions", "outputMode", "foreachBatchWriter"))
    is_function = fields["foreachBatchWriter"] is not None
    return WriterFacts(
        format="foreachBatch" if is_function else str(fields["source"]),
        options=_options_of(fields["extraOptions"]),
        output_mode=str(fields["outputMode"]).lower(),
    )


def running_facts(query: "StreamingQuery") -> WriterFacts:
    """Return the sink, the options and the checkpoint of a running query.

    Tested with Spark 4.2.0. Without it, `respool.attach` needs the checkpoint and the sink as arguments.
    """
    internal: Any = query
    execution: Any = internal._jsq
    if hasattr(execution, "streamingQuery"):
        execution = execution.streamingQuery()
    fields = _private_fields(execution, ("sink", "extraOptions", "outputMode", "resolvedCheckpointRoot"))
    return WriterFacts(
        format=str(fields["sink"]),
        options=_options_of(fields["extraOptions"]),
        output_mode=str(fields["outputMode"]).lower(),
        checkpoint=str(fields["resolvedCheckpointRoot"]),
    )


def _private_fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return fields of an object of the JVM, by their names, wherever in its class hierarchy they are."""
    fields: dict[str, Any] = {}
    kind = value.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName() in names:
                field.setAccessible(True)
                fields[field.getName()] = field.get(value)
        kind = kind.getSuperclass()
    return fields


def _options_of(options: Any) -> dict[str, str]:
    entries = options.iterator()
    values: dict[str, str] = {}
    while entries.hasNext():
        entry = entries.next()
        values[str(entry._1()).lower()] = str(entry._2())
    return values


# Rows and files


def rows_as_table(frame: "DataFrame", rows: int) -> str:
    """Return the first rows of a frame as a table, as Spark's console sink draws it.

    All rows are collected first, so that every partition of the state is committed: `frame.show()` reads only some.

    Tested with Spark 4.2.0. Without it, collect the rows to Python and make a new frame of them, which is slower.
    """
    session, internal = frame.sparkSession, frame
    collected: Any = session._jsparkSession.createDataFrame(internal._jdf.collectAsList(), internal._jdf.schema())
    table: str = collected.showString(rows, 0, False)
    return table


def write_file_batch(
    frame: "DataFrame", folder: str, file_format: str, partition_by: Sequence[str], batch: int
) -> None:
    """Write a batch to a folder as Spark's own file sink does: its files, then its entry in `_spark_metadata`.

    A batch that the log has is skipped, and then not computed.

    Tested with Spark 4.2.0. Without it, `respool.FileSink` cannot write; a query that writes with Spark's own file sink
    can be rewound still.

    Args:
        frame: The rows.
        folder: The folder or URL, in the form that Spark expects.
        file_format: `parquet` or `json`.
        partition_by: The columns by which the files are put in folders.
        batch: The id of the batch.
    """
    session, internal = frame.sparkSession, frame
    if not hasattr(session, "_jsparkSession"):
        raise SettingsError(
            f"{folder} cannot be written over Spark Connect: that needs Spark's JVM. Run this with a JVM of its own, "
            "without SPARK_REMOTE and with --master 'local[*]' or a cluster."
        )
    jvm: Any = session._jvm
    formats = jvm.org.apache.spark.sql.execution.datasources
    chosen = {"parquet": formats.parquet.ParquetFileFormat, "json": formats.json.JsonFileFormat}[file_format]()
    columns, options = jvm.PythonUtils.toSeq(list(partition_by)), jvm.PythonUtils.toScalaMap({})
    sinks = jvm.org.apache.spark.sql.execution.streaming.sinks
    sinks.FileStreamSink(session._jsparkSession, folder, chosen, columns, options).addBatch(batch, internal._jdf)


def has_filesystem(spark: "SparkSession", scheme: str) -> bool:
    """Return whether Hadoop has a filesystem for URLs of a scheme.

    Tested with Spark 4.2.0. Without it, the first access to such a URL fails with a Java exception.
    """
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            scheme, spark._jsparkSession.sessionState().newHadoopConf()
        )
    except Py4JJavaError:
        return False
    return True


def set_application_defaults(spark: "SparkSession", classes: Mapping[str, str]) -> bool:
    """Set settings of a running application that name a class, unless they are set; return whether all could be.

    Tested with Spark 4.2.0. Without it, an application that `spark-submit` has started needs them on its command line.

    Args:
        spark: A session of the application.
        classes: The settings, each with its class; a setting whose class is not on the class path is not set.
    """
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    conf: Any = jvm.org.apache.spark.SparkEnv.get().conf()
    for name, value in classes.items():
        if conf.contains(name):
            continue
        try:
            jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(value)
        except Py4JJavaError:
            return False
        conf.set(name, value)
    return True


class HadoopPath:
    """A path or URL as Hadoop's filesystems in the JVM see it, with the credentials of the session.

    Tested with Spark 4.2.0. Without it, use fsspec, whose credentials are configured separately from Spark's.
    """

    def __init__(self, spark: "SparkSession", location: str) -> None:
        """Find the filesystem of a path or URL; raise SettingsError over Spark Connect, which has no JVM to ask."""
        if not hasattr(spark, "_jsparkSession"):
            raise SettingsError(
                f"{location} cannot be checked over Spark Connect: that needs Spark's JVM. Run this with a JVM of its "
                "own, without SPARK_REMOTE and with --master 'local[*]' or a cluster."
            )
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path(for_spark(location))
        self._filesystem = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def is_occupied(self) -> bool:
        """Return whether it is a file, or a folder that is not empty."""
        return bool(self._filesystem.exists(self._path) and len(self._filesystem.listStatus(self._path)))

    def delete(self) -> None:
        """Delete it, with everything in it."""
        self._filesystem.delete(self._path, True)

    def read_text(self) -> str | None:
        """Return the text of a file; None when it does not exist."""
        from py4j.protocol import Py4JJavaError

        try:
            stream = self._filesystem.open(self._path)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
                return None
            raise
        with contextlib.closing(stream):
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text


# Schemas


class _SchemaSource:
    """Implements `respool.SchemaSource`, of respool's own classes in the JVM."""

    def __init__(self, find: Callable[[str, int], str]) -> None:
        self.find = find

    Java = SimpleNamespace(implements=["respool.SchemaSource"])


_SERVED: list[tuple[Any, _SchemaSource]] = []  # the gateway, and what it calls


def serve_schemas(find: Callable[[str, int], str]) -> None:
    """Let respool's classes in the JVM look schemas up in this process.

    Tested with Spark 4.2.0. Without it, decoders cannot use a schema registry.

    Args:
        find: Answers as `respool.SchemaSource` says.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = SparkContext._gateway
    if any(served is gateway for served, _ in _SERVED):
        return
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    source = _SchemaSource(find)
    gateway.jvm.respool.Schemas.setSource(source)
    _SERVED[:] = [(gateway, source)]
