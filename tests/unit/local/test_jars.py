"""The download of jars, by the real Ivy from a repository in a folder: no network."""

import hashlib
import importlib.util
import json
import os
import queue
import re
import threading
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from respool.errors import MachineError, SettingsError
from respool.local import jars
from respool.settings import Settings

FILES = {"one-1.0.jar": b"the first jar", "two-2.0.jar": b"the second jar"}


def write_lock(folder: Path, contents: dict[str, bytes]) -> None:
    entries = {name: {"sha256": hashlib.sha256(it).hexdigest(), "size": len(it)} for name, it in contents.items()}
    (folder / "jars.lock.json").write_text(json.dumps({"spark": entries, "broker": {}}))
    jars.locked.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package's folder, with an ivy.xml and a lock of two small jars; the cache is empty."""
    folder = tmp_path / "package"
    folder.mkdir()
    lines = "".join(
        f'<dependency org="org.example" name="{name}" rev="{rev}" conf="spark->default" transitive="false"/>'
        for name, rev in (("one", "1.0"), ("two", "2.0"))
    )
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="respool" module="jars"/>'
        f'<configurations><conf name="spark"/></configurations><dependencies>{lines}</dependencies></ivy-module>'
    )
    write_lock(folder, FILES)
    monkeypatch.setattr(jars, "_HERE", folder)
    monkeypatch.setattr(jars, "_LOCK", folder / "jars.lock.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield folder
    jars.locked.cache_clear()


@pytest.fixture
def settings(package: Path, tmp_path: Path) -> Settings:
    """Settings that name a mirror in a folder."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for name, content in FILES.items():
        (mirror / name).write_bytes(content)
    file = tmp_path / "ivysettings.xml"
    file.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers><filesystem name="mirror">'
        f'<artifact pattern="{mirror}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    return Settings(ivy_settings=file)


def kept() -> set[str]:
    """What the cache holds, besides the files of locks."""
    return {file.name for file in jars.cache().iterdir() if file.suffix != ".lock"} if jars.cache().exists() else set()


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setenv("JAVA_HOME", "/nowhere")


def test_jars_are_downloaded_once(
    settings: Settings,
    no_java: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "respool")
    assert not jars.present("spark")
    downloaded = jars.spark_jars(settings)
    assert {jar.name: jar.read_bytes() for jar in downloaded} == FILES
    assert jars.present("spark")
    assert kept() == {jars.folder("spark").name}
    assert caplog.messages == ["Downloading the spark jars, once: 2 jars, 0 MiB …", "  1 of 2 jars", "  2 of 2 jars"]
    caplog.clear()

    no_java()
    assert jars.spark_jars(Settings()) == downloaded
    assert caplog.messages == []
    assert capsys.readouterr() == ("", "")  # the library does not print


def test_a_set_that_lost_a_jar_is_downloaded_again(settings: Settings) -> None:
    lost = jars.spark_jars(settings)[0]
    lost.unlink()
    assert not jars.present("spark")
    jars.spark_jars(settings)
    assert lost.read_bytes() == FILES[lost.name]


def test_a_new_lock_means_a_new_folder(package: Path) -> None:
    before = jars.folder("spark")
    write_lock(package, FILES | {"two-2.0.jar": b"another"})
    assert jars.folder("spark") != before


def test_a_download_that_differs_from_the_lock_is_refused(settings: Settings, package: Path) -> None:
    write_lock(package, FILES | {"two-2.0.jar": b"what was tested"})
    with pytest.raises(MachineError, match=r"two-2\.0\.jar .*SHA-256.* Nothing was kept"):
        jars.spark_jars(settings)
    assert kept() == set()
    assert not jars.present("spark")


def test_a_repository_out_of_reach(package: Path, tmp_path: Path) -> None:
    file = tmp_path / "down.xml"
    file.write_text(
        '<ivysettings><settings defaultResolver="down"/><resolvers>'
        '<ibiblio name="down" m2compatible="true" usepoms="false" root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    with pytest.raises(MachineError, match=r"could not be downloaded: .*Connection refused.*ivy_settings") as caught:
        jars.spark_jars(Settings(ivy_settings=file))
    assert "\n" not in str(caught.value)
    assert kept() == set()


def test_a_jar_that_the_repository_lacks(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "mirror" / "two-2.0.jar").unlink()
    with pytest.raises(MachineError, match=r"not found: org\.example#two;2\.0"):
        jars.spark_jars(settings)
    assert kept() == set()


def test_ivy_settings_that_are_not_there(package: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ivy_settings names .*missing\.xml, which does not exist"):
        jars.spark_jars(Settings(ivy_settings=tmp_path / "missing.xml"))
    assert kept() == set()


def test_too_little_space_is_reported_before_the_download(
    settings: Settings, no_java: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_java()
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1))
    with pytest.raises(MachineError, match=r"has 0 MiB left.*XDG_CACHE_HOME"):
        jars.spark_jars(settings)
    assert kept() == set()


def test_a_cache_that_cannot_be_written(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(MachineError, match=r"cannot be written: .*XDG_CACHE_HOME"):
        jars.spark_jars(settings)


def test_what_a_killed_download_left_is_cleared(settings: Settings) -> None:
    left = jars.cache() / ".spark-killed"
    left.mkdir(parents=True)
    (left / "half.jar").write_bytes(b"half")
    jars.spark_jars(settings)
    assert kept() == {jars.folder("spark").name}


def test_two_concurrent_processes_download_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    said: queue.Queue[str] = queue.Queue()
    first_is_in, go_on = threading.Event(), threading.Event()
    verify = jars._verify

    def hold(folder: Path, wanted: dict[str, jars.Jar]) -> None:
        first_is_in.set()
        assert go_on.wait(120)
        verify(folder, wanted)

    def log(message: str, *values: object, extra: object = None) -> None:
        if extra is None:
            said.put(message % values)

    monkeypatch.setattr("respool.local.jars._LOGGER.info", log)
    monkeypatch.setattr(jars, "_verify", hold)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(jars.spark_jars, settings)
        assert first_is_in.wait(120)
        second = pool.submit(jars.spark_jars, settings)
        assert "Downloading" in said.get(timeout=120)
        assert "Another respool is downloading the spark jars" in said.get(timeout=120)
        go_on.set()
        assert first.result(120) == second.result(120)
    assert said.empty()


def test_a_relative_cache_variable_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/someone")
    assert jars.cache() == Path("/home/someone/.cache/respool/jars")


@pytest.mark.parametrize("set_name", jars.SETS)
def test_the_lock_holds_every_jar_of_ivy_xml(set_name: str) -> None:
    module = ElementTree.parse(Path(jars.__file__).with_name("ivy.xml"))
    lines = [
        dependency.attrib
        for dependency in module.iter("dependency")
        if dependency.attrib["conf"] == f"{set_name}->default"
    ]
    assert {f"{line['name']}-{line['rev']}.jar" for line in lines} == set(jars.locked(set_name))
    assert {line["transitive"] for line in lines} == {"false"}


def test_a_jar_of_pyspark_is_not_added_in_another_version() -> None:
    pyspark = Path(str(importlib.util.find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
    shipped = {jar.name for jar in (pyspark / "jars").glob("*.jar")}
    added = jars.locked("s3").keys()
    assert not {re.split(r"-\d", name)[0] for name in shipped} & {re.split(r"-\d", name)[0] for name in added}


def test_no_committed_file_names_a_repository() -> None:
    for name in ("ivy.xml", "ivysettings.xml", "jars.lock.json"):
        assert "://" not in Path(jars.__file__).with_name(name).read_text()
    assert os.path.isabs(jars.cache())
