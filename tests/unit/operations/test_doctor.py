"""What `respool doctor` and `respool jars` print, and how they exit."""

import json
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from respool.cli.commands.doctor import doctor
from respool.cli.commands.doctor import jars as jars_command
from respool.local import jars
from respool.operations.doctor import satisfies
from respool.spark import jvm_classes


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command("doctor")(doctor)
    app.command("jars")(jars_command)
    return CliRunner().invoke(app, arguments)


def checks(*arguments: str) -> dict[str, Any]:
    return {check["name"]: check for check in json.loads(run("doctor", "--json", *arguments).stdout)}


def test_a_new_machine_is_not_broken(tmp_path: Path) -> None:
    result = run("doctor", "--home", str(tmp_path / "home"))
    assert result.exit_code == 0, result.output
    assert "will be downloaded at first use (42." in result.output
    assert "respool broker start" in result.output
    assert not (tmp_path / "home").exists()
    assert not (tmp_path / "cache").exists()


def test_json_names_every_check() -> None:
    reported = checks()
    assert {name: check["state"] for name, check in reported.items()} == {
        "Java": "ok",
        "Python": "ok",
        "packages": "ok",
        "spark jars": "later",
        "s3 jars": "later",
        "broker jars": "later",
        "home": "ok",
        "cache": "ok",
        "broker": "later",
    }
    assert "pyspark 4.2.0" in reported["packages"]["found"]


def test_missing_java_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    result = run("doctor")
    assert result.exit_code == 1
    assert "broken  Java" in result.output
    assert "Install a JDK 17 or newer" in result.output


def test_a_package_out_of_bounds_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "3.0.1" if name == "pandas" else real(name))
    assert run("doctor").exit_code == 1
    assert checks()["packages"]["found"].startswith("pandas is 3.0.1, expected ")


def test_pyspark_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name in ("pyspark", "pandas"):
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    packages = checks()["packages"]
    assert packages["state"] == "ok"
    assert "pip install 'respool[spark]'" in packages["found"]


def test_a_missing_package_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert "confluent-kafka is missing" in checks()["packages"]["found"]


def test_a_full_disk_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**20))
    assert run("doctor").exit_code == 1
    assert checks()["home"]["found"].endswith("with --home.")


def test_a_kafka_that_does_not_answer_is_broken() -> None:
    kafka = checks("--bootstrap-servers", "127.0.0.1:9")["Kafka"]
    assert kafka["state"] == "broken"
    assert "127.0.0.1:9" in kafka["found"]


def test_a_broker_that_died_is_to_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "home" / "broker").mkdir(parents=True)
    (tmp_path / "home" / "broker" / "process.json").write_text('{"pid": 1, "started": "long ago"}')
    broker = checks("--home", str(tmp_path / "home"))["broker"]
    assert (broker["state"], "respool broker start" in broker["found"]) == ("later", True)


@pytest.mark.parametrize(
    ("version", "specifier", "expected"),
    [
        ("2.3.1", ">=2.2,<3", True),
        ("3.0", ">=2.2,<3", False),
        ("2.1.9", "<3,>=2.2", False),
        ("4.2.0", "==4.2.0", True),
        ("4.2", "==4.2.0", True),
        ("4.10.0", ">=4.9", True),
        ("7.35.1rc1", ">=5", True),
        ("1.0", "", True),
        ("2.9", "~=2.2", True),
        ("3.0", "~=2.2", False),
        ("2.2.5", "~=2.2.1", True),
        ("2.3.0", "~=2.2.1", False),
        ("2.2.1", ">=2.2,!=2.2.1", False),
        ("2.2.2", ">=2.2,!=2.2.1", True),
        ("2.3.4", "!=2.3.*", False),
        ("4.2.7", "==4.2.*", True),
        ("not-a-version", ">=1", False),
    ],
)
def test_version_specifiers(version: str, specifier: str, expected: bool) -> None:
    assert satisfies(version, specifier) is expected


@pytest.mark.parametrize(
    ("requirement", "state", "text"),
    [
        ("pandas~=1.0", "broken", "pandas is 2.2.3, expected ~=1.0. "),
        ("pandas~=2.0", "ok", "pandas 2.2.3"),
        ("pandas!=2.2.3", "broken", "pandas is 2.2.3, expected !=2.2.3. "),
        ("pandas>=9; python_version < '3'", "ok", ""),
        ("pandas>=9; python_version >= '3'", "broken", "pandas is 2.2.3, expected >=9. "),
        ("pandas>=9; extra == 's3'", "ok", ""),
        ("pandas[excel]>=2; sys_platform != 'plan9'", "ok", "pandas 2.2.3"),
    ],
)
def test_requirements_are_read_with_their_operators_and_markers(
    monkeypatch: pytest.MonkeyPatch, requirement: str, state: str, text: str
) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: [requirement])
    monkeypatch.setattr(metadata, "version", lambda name: "2.2.3")
    packages = checks()["packages"]
    assert packages["state"] == state
    assert packages["found"].startswith(text)


def test_a_missing_packaging_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    packages = checks()["packages"]
    assert packages["state"] == "broken"
    assert packages["found"].startswith("packaging")


def test_jars_are_printed_for_spark_submit() -> None:
    for set_name in ("spark", "s3"):
        jars.folder(set_name).mkdir(parents=True)
        for name in jars.locked(set_name):
            (jars.folder(set_name) / name).touch()
    needed = [str(jars.folder("spark") / name) for name in sorted(jars.locked("spark"))] + [str(jvm_classes.JAR)]
    assert run("jars").stdout == ",".join(needed) + "\n"
    assert json.loads(run("jars", "--json").stdout) == needed
    with_s3 = run("jars", "--with", "s3").stdout.rstrip().split(",")
    assert with_s3[: len(needed)] == needed
    assert {Path(path).name for path in with_s3[len(needed) :]} == {*jars.locked("s3"), jvm_classes.S3_JAR.name}
