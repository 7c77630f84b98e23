"""The jar of respool's own classes, and the options of Spark's JVM around it."""

import os
from pathlib import Path

import pytest

from respool.settings import Settings
from respool.spark import jvm_classes, session


@pytest.fixture
def _jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("respool.local.jars.spark_jars", lambda settings: [Path("/jars/one.jar")])
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)


def _conf(home: Path, master: str = "local[2]", **spark: str) -> dict[str, str]:
    settings = Settings(
        home=home, master=master, spark={name.replace("_", "."): value for name, value in spark.items()}
    )
    return session._conf(settings, submitted=False, stores=set())


def test_the_jar_is_built_from_the_sources_next_to_it() -> None:
    assert jvm_classes.jar_digest() == jvm_classes.sources_digest(), "run: python -m respool.spark.jvm_classes"


@pytest.mark.usefixtures("_jars")
def test_a_local_run_has_the_jar_on_its_class_path_and_a_cluster_gets_it_as_a_jar(tmp_path: Path) -> None:
    assert _conf(tmp_path)["spark.driver.extraClassPath"] == str(jvm_classes.JAR)
    assert jvm_classes.CONF.items() <= _conf(tmp_path).items()
    for master in ("spark://host:7077", "yarn", "local-cluster[2,1,1024]"):
        conf = _conf(tmp_path, master)
        assert conf["spark.jars"].split(",") == ["/jars/one.jar", str(jvm_classes.JAR)]
        # Only a standalone cluster is known to load the jar before it uses files.
        assert (conf.get("spark.driver.extraClassPath") == str(jvm_classes.JAR)) is (master == "spark://host:7077")
        assert (jvm_classes.CONF.items() <= conf.items()) is (master == "spark://host:7077")


@pytest.mark.usefixtures("_jars")
def test_settings_of_the_user_win(tmp_path: Path) -> None:
    conf = _conf(tmp_path, spark_driver_extraClassPath="/mine.jar", spark_hadoop_fs_file_impl="mine.Files")
    assert conf["spark.driver.extraClassPath"] == os.pathsep.join((str(jvm_classes.JAR), "/mine.jar"))
    assert conf["spark.hadoop.fs.file.impl"] == "mine.Files"


@pytest.mark.usefixtures("_jars")
@pytest.mark.parametrize(
    "where", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions", "JDK_JAVA_OPTIONS"]
)
def test_the_users_own_collector_replaces_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    assert "-XX:+UseParallelGC" in _conf(tmp_path)["spark.driver.extraJavaOptions"].split()
    if where.startswith("spark"):
        conf = _conf(tmp_path, **{where: "-XX:+UseG1GC -Da=b"})
    else:
        monkeypatch.setenv(where, "-XX:+UseG1GC -Da=b")
        conf = _conf(tmp_path)
    assert "UseParallelGC" not in conf["spark.driver.extraJavaOptions"]


@pytest.mark.usefixtures("_jars")
def test_a_user_who_sets_the_compiler_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "-XX:Tier4" in _conf(tmp_path)["spark.driver.extraJavaOptions"]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    assert "-XX:Tier4" not in _conf(tmp_path)["spark.driver.extraJavaOptions"]
