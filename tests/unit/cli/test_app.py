"""The command line as a user starts it: no JVM, no broker, an empty folder."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import respool as package

Run = Callable[..., "subprocess.CompletedProcess[str]"]

NO_BROKER = "127.0.0.1:1"
# Every command, and words that its help must contain.
COMMANDS = {
    "": ("doctor", "broker", "topic", "generate", "pipelines", "run", "demo", "jars", "--debug", "--version"),
    "doctor": ("Java", "--home", "--json"),
    "broker": ("start", "stop", "status", "logs", "reset"),
    "broker start": ("--port", "9092", "--home", "RESPOOL_HOME"),
    "broker stop": ("topics are kept", "--home"),
    "broker status": ("--json", "--home"),
    "broker logs": ("--lines", "--follow"),
    "broker reset": ("delete all its topics", "--yes"),
    "topic": ("list", "create", "produce", "read"),
    "topic list": ("--json", "--bootstrap-servers"),
    "topic create": ("--partitions", "--config"),
    "topic produce": ("standard input", "--key-separator"),
    "topic read": ("--from-beginning", "--headers", "--keys", "--max", "--follow", "--json"),
    "generate": ("--topic", "--count", "--rate", "--start", "--visits", "--seed", "--late", "--duplicates"),
    "pipelines": ("--json",),
    "check": ("PIPELINE", "--json", "schema", "event time"),
    "run": (
        *("--available-now", "--trigger", "--max-offsets-per-trigger", "--checkpoint", "--console"),
        *("--no-dead-letter", "--timezone", "--master", "--bootstrap-servers", "--home", "--json"),
        *("--health", "--stop-within", "--log-format"),
        *("Ctrl-C", "module:object"),
    ),
    "demo": ("--list", "--keep"),
    "jars": ("spark-submit", "--json"),
}


@pytest.fixture
def run(respool: str, tmp_path: Path) -> Run:
    """Run `respool` in an empty folder."""

    def run(*words: str, environ: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        inherited = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
        return subprocess.run(
            [respool, *words],
            cwd=tmp_path,
            env={**inherited, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def fails(result: "subprocess.CompletedProcess[str]", code: int, *expected: str) -> None:
    """Expect one message with all of these texts, nothing on standard output, and no stack trace."""
    assert result.returncode == code, result.stderr
    for words in expected:
        assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    marks = [line for line in result.stderr.splitlines() if line.startswith("error: " if code == 1 else "Error: ")]
    assert len(marks) == 1


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run: Run, command: str, tmp_path: Path) -> None:
    result = run(*command.split(), "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: respool {command}".rstrip())
    missing = [words for words in COMMANDS[command] if words not in result.stdout]
    assert missing == []
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout == f"respool {package.__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["pipelines"], ["run", "--help"], ["broker", "status"]])
def test_what_needs_no_jvm_does_not_import_pyspark(words: list[str], tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "respool", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0
    assert "respool.cli" in result.stderr
    for heavy in ("pyspark", "py4j", "pandas", "pyarrow"):
        assert heavy not in result.stderr


def test_pipelines_are_listed(run: Run) -> None:
    shown = run("pipelines").stdout
    assert "micro-batch" in shown
    assert "Kafka topic visits" in shown
    rows = json.loads(run("pipelines", "--json").stdout)
    (row,) = [row for row in rows if row["pipeline"] == "micro-batch"]
    assert Path(row.pop("checkpoint")).parts[-3:] == (".respool", "checkpoints", "micro-batch")
    assert row == {
        "pipeline": "micro-batch",
        "reads": "Kafka topic visits",
        "does": "Prints each visit, with the partition that read it",
        "writes": "prints from the tasks",
        "has run": False,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["broker", "bogus"], "No such command 'bogus'"),
        (["run"], "name at least one pipeline"),
        (["run", "micro-batch", "--bogus"], "No such option: --bogus"),
        (["run", "micro-batch", "micro-batch"], "a pipeline is named twice: micro-batch, micro-batch"),
        (["run", "micro-batch", "mine:other", "--checkpoint", "here"], "--checkpoint is for a single pipeline"),
        (["run", "micro-batch", "--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger"),
        (["run", "micro-batch", "--max-offsets-per-trigger", "many"], "--max-offsets-per-trigger"),
        (["broker", "start", "--port", "65536"], "--port"),
        (["topic", "create"], "Missing argument 'TOPIC'"),
        (["topic", "create", "mine", "--config", "retention"], "'retention' is not KEY=VALUE"),
        (["topic", "produce", "mine", "missing.json"], "missing.json is not a file"),
        (["generate", "--late", "2"], "--late"),
    ],
)
def test_wrong_usage_exits_with_2(run: Run, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    fails(run(*words), 2, message, "--help")
    assert not (tmp_path / ".respool").exists()


def test_an_unknown_pipeline_is_reported_with_the_nearest_name(run: Run) -> None:
    message = "There is no pipeline 'micro-bach'. Did you mean 'micro-batch'? The pipelines are: visit-counts, "
    fails(run("run", "micro-bach"), 1, message, "module:object")


MINE = """
from respool.pipeline.definition import Pipeline
from respool.sinks.console import ConsoleSink

other = Pipeline("other", "visits", lambda rows: rows, ConsoleSink())
number = 3
"""


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("", "elsewhere:orders", "The module elsewhere of elsewhere:orders cannot be found. Run respool in its folder"),
        ("", "mine.deeper:orders", "The module mine.deeper of mine.deeper:orders cannot be found"),
        (MINE, "mine:orders", "The module mine has no 'orders'. Check the name behind the colon"),
        (MINE, "mine:number", "mine:number is a int; expected a respool.Pipeline"),
        ("import elsewhere", "mine:orders", "The module mine needs elsewhere, which is not installed"),
        ("1 / 0", "mine:orders", "The module mine cannot be imported: ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "mine:orders", "The module mine cannot be imported: SystemExit: 3"),
        ("def orders(): return [][0]", "mine:orders", "mine:orders() does not make a pipeline: IndexError: "),
        ("", ":orders", "There is no pipeline ':orders'"),
        ("def orders(:", "mine:orders", "The module mine cannot be imported: SyntaxError: "),
        (MINE.replace('"other"', '"an other"'), "mine:other", "Invalid pipeline name 'an other'"),
        (MINE.replace("ConsoleSink())", "ConsoleSink(), timezone='Mars')"), "mine:other", "'Mars' is not a time zone"),
    ],
)
def test_a_users_pipeline_that_cannot_be_loaded_is_reported(
    run: Run, tmp_path: Path, source: str, name: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(source)
    fails(run("run", name), 1, message)
    assert not (tmp_path / ".respool").exists()


def test_a_users_pipeline_is_loaded_from_the_working_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    fails(run("run", "mine:other"), 1, "No broker runs")


@pytest.mark.parametrize("words", [["broker", "start"], ["jars"]])
def test_no_java_is_reported(run: Run, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "bin").mkdir()
    result = run(*words, environ={"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    fails(result, 1, "No Java was found", "Install a JDK 17 or newer", "JAVA_HOME")
    assert files(tmp_path) <= {".respool/.broker.lock", "cache/respool/jars/spark.lock"}


@pytest.mark.parametrize("words", [["broker", "start"], ["jars"]])
def test_java_11_is_refused(run: Run, tmp_path: Path, words: list[str]) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    for environ in ({"JAVA_HOME": str(tmp_path / "jdk")}, {"PATH": f"{java.parent}:{os.environ['PATH']}"}):
        result = run(*words, environ={**environ, "XDG_CACHE_HOME": str(tmp_path / "cache")})
        fails(result, 1, f"{java} is Java 11.0.22; respool needs Java 17 or newer", "Install a JDK 17 or newer")
        left = files(tmp_path) - {"jdk/bin/java"}
        assert left <= {".respool/.broker.lock", "cache/respool/jars/spark.lock"}


@pytest.mark.parametrize(
    "words", [["run", "micro-batch"], ["broker", "start"], ["topic", "list"], ["doctor"], ["jars"]]
)
def test_a_misspelt_key_in_the_settings_is_reported(run: Run, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "respool.toml").write_text('time_zone = "UTC"\n')
    fails(run(*words), 1, f"{tmp_path}/respool.toml has an unknown key 'time_zone'. Did you mean 'timezone'?")
    assert files(tmp_path) == {"respool.toml"}


def test_a_misspelt_option_of_kafka_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "respool.toml").write_text(f'bootstrap_servers = "{NO_BROKER}"\n[kafka]\nsasl.mecanism = "PLAIN"\n')
    fails(run("topic", "list"), 1, 'No such configuration property: "sasl.mecanism"', "[kafka] table of respool.toml")


def test_a_wrong_time_zone_is_reported(run: Run, tmp_path: Path) -> None:
    result = run("run", "micro-batch", "--timezone", "Europe/Pari")
    fails(result, 1, "'Europe/Pari' is not a time zone. Did you mean 'Europe/Paris'?")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_duration_is_reported(run: Run) -> None:
    fails(run("run", "micro-batch", "--trigger", "20x"), 1, "'20x' is not a duration", "Write for example 20s")


@pytest.mark.parametrize(
    "words",
    [
        *(["topic", "list"], ["topic", "create", "mine"], ["topic", "read", "mine"], ["topic", "produce", "mine"]),
        *(["generate", "--count", "1"], ["run", "micro-batch"]),
    ],
)
def test_without_a_broker_the_next_step_is_reported(run: Run, tmp_path: Path, words: list[str]) -> None:
    fails(run(*words), 1, f"No broker runs for the home {tmp_path}/.respool", "respool broker start")
    assert list(tmp_path.iterdir()) == []


def test_a_kafka_that_does_not_answer_is_reported(run: Run, tmp_path: Path) -> None:
    result = run("topic", "list", "--bootstrap-servers", NO_BROKER)
    fails(result, 1, f"No Kafka broker answers at {NO_BROKER}. Check the address", "[kafka] table")
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_stack_trace(run: Run) -> None:
    for result in (run("--debug", "run", "nothing"), run("run", "nothing", environ={"RESPOOL_DEBUG": "1"})):
        assert result.returncode == 1
        assert "Traceback" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("error: There is no pipeline 'nothing'")


def test_a_home_inside_a_file_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    fails(run("broker", "start", "--home", "file/home"), 1, "file", "--home")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("checkpoint", "show", "hdfs://nowhere:1/x"), "hdfs://nowhere:1/x cannot be opened"),
        (("checkpoint", "show", "ftp://127.0.0.1:1/x"), "ftp://127.0.0.1:1/x cannot be opened"),
        (("checkpoint", "show", "dbfs:/x"), "dbfs:/x can be read in Databricks only"),
        (("checkpoint", "show", "hdfs:/x"), "hdfs:/x cannot be opened: it has one slash"),
        (("checkpoint", "rewind", "dbfs:/x", "--to-batch", "1"), "dbfs:/x can be read in Databricks only"),
        (("savepoint", "list", "--savepoints", "hdfs://nowhere:1/x"), "hdfs://nowhere:1/x cannot be opened"),
        (("savepoint", "list", "--savepoints", "ftp://127.0.0.1:1/x"), "ftp://127.0.0.1:1/x cannot be opened"),
        (("savepoint", "list", "--savepoints", "dbfs:/x"), "dbfs:/x can be read in Databricks only"),
        (("pipelines", "--home", "hdfs://nn/x"), "expected a folder on a local disk"),
        (("broker", "start", "--home", "dbfs:/x"), "expected a folder on a local disk"),
        (("broker", "start", "--home", "/proc/x"), "/proc/x cannot be"),
        (("broker", "start", "--home", "/dev/null/x"), "/dev/null is a file; expected a folder"),
        (("pipelines", "--home", "/etc/passwd"), "/etc/passwd is a file; expected a folder"),
        (
            ("topic", "list", "--bootstrap-servers", "localhost"),
            "is not HOST:PORT; expected for example localhost:9",
        ),
        (("run", "sessions", "--bootstrap-servers", "localhost"), "is not HOST:PORT"),
    ],
)
def test_unusable_input_is_reported_once(run: Run, words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = run(*words)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("error: ") == 1
    assert result.returncode == 1
    assert files(tmp_path) == set()


def test_spark_connect_is_refused_before_anything_is_started(run: Run) -> None:
    result = run("run", "sessions", "--bootstrap-servers", NO_BROKER, environ={"SPARK_REMOTE": "sc://localhost"})
    fails(result, 1, "The variable SPARK_REMOTE is set", "env -u SPARK_REMOTE")


def test_a_section_of_no_pipeline_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "respool.toml").write_text("[pipelines.TYPO]\nwindow = '1m'\n")
    for words in (("run", "sessions"), ("pipelines",), ("pipelines", "sessions")):
        fails(run(*words), 1, "[pipelines.TYPO] in respool.toml is not of a pipeline")


def test_options_of_kafka_that_the_embedded_broker_lacks_are_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "respool.toml").write_text("[kafka]\nsecurity.protocol = 'SASL_SSL'\n")
    for words in (("topic", "list"), ("run", "sessions")):
        fails(run(*words), 1, "security.protocol, but the embedded broker has neither encryption nor logins")


def test_a_fault_of_respool_is_reported_in_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from respool.cli import app

    def fail() -> None:
        raise KeyError("\x1b[2Jbatch")

    monkeypatch.setattr(app, "app", fail)
    # Of the process of all tests.
    monkeypatch.setattr("os.umask", lambda _: 0)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("RESPOOL_DEBUG", raising=False)
    with pytest.raises(SystemExit) as caught:
        app.main()
    assert caught.value.code == 70
    printed = capsys.readouterr().err
    assert printed.startswith("error: This is a fault of respool: KeyError: '\\x1b[2Jbatch'. Its stack trace is in ")
    assert "Traceback" not in printed
    (trace,) = tmp_path.iterdir()
    assert "KeyError" in trace.read_text()
    assert trace.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("RESPOOL_DEBUG", "1")
    with pytest.raises(SystemExit):
        app.main()
    assert "Traceback" in capsys.readouterr().err
