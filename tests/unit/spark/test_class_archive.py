"""When the archive of classes is used and made, and when not."""

from pathlib import Path

import pytest

from respool.local import jars
from respool.settings import Settings
from respool.spark import class_archive_build, jvm_classes, session


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an archive that is not there yet, in a cache of its own, with a space in its path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "the cache"))
    monkeypatch.setattr("respool.local.jars.spark_jars", lambda settings: [Path("/jars/one.jar")])
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    jars.cache().mkdir(parents=True)
    return jars.cache() / f"{jvm_classes.archive_name()}-7.jsa"


def _options(tmp_path: Path, master: str = "local[2]", **spark: str) -> str:
    settings = Settings(home=tmp_path, master=master, spark=spark)
    return session._conf(settings, submitted=False, stores=set())["spark.driver.extraJavaOptions"]


def test_it_is_used_once_it_is_there(archive: Path, tmp_path: Path) -> None:
    assert "SharedArchiveFile" not in _options(tmp_path)
    archive.write_text("classes")
    assert f'"-XX:SharedArchiveFile={archive}"' in _options(tmp_path)
    assert "SharedArchiveFile" not in _options(tmp_path, "spark://host:7077")


def test_a_truncated_archive_is_not_used_and_is_made_again(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write_text("class")
    assert "SharedArchiveFile" not in _options(tmp_path)
    monkeypatch.setattr(class_archive_build, "_write", lambda part: part.write_text("classes"))
    class_archive_build.make()
    assert jvm_classes.find_archive() == archive


@pytest.mark.parametrize("own", ["-Xshare:off", "-Xshare:auto", "-XX:SharedArchiveFile=/mine.jsa"])
def test_an_option_of_the_user_turns_it_off(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    archive.write_text("classes")
    assert str(archive) not in _options(tmp_path, **{"spark.driver.extraJavaOptions": own})
    monkeypatch.setenv("JDK_JAVA_OPTIONS", own)
    assert str(archive) not in _options(tmp_path)


def test_another_jar_or_java_has_another(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "java"
    other.touch()
    archive.write_text("classes")
    assert jvm_classes.find_archive() == archive
    monkeypatch.setattr(jvm_classes, "program", lambda: other)
    assert jvm_classes.find_archive() is None


def test_it_is_made_once_and_a_failure_is_not_repeated(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr("subprocess.Popen", lambda *given, **_: started.append(given))

    def fail(part: Path) -> None:
        part.touch()
        raise OSError("no JVM")

    def succeed(part: Path) -> None:
        part.write_text("classes")

    jvm_classes.make_archive_later()
    assert len(started) == 1
    monkeypatch.setattr(class_archive_build, "_write", fail)
    with pytest.raises(OSError, match="no JVM"):
        class_archive_build.make()
    jvm_classes.make_archive_later()
    assert len(started) == 1
    monkeypatch.setattr(class_archive_build, "_write", succeed)
    class_archive_build.make()
    assert archive.read_text() == "classes"
    jvm_classes.make_archive_later()
    assert len(started) == 1
    assert not list(archive.parent.glob(".classes*"))
