"""Files on the local disk, written by respool's classes, are those that Hadoop's own would write."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_SYSTEMS = ("org.apache.hadoop.fs.LocalFileSystem", "respool.QuickFileSystem")
_CONTEXTS = ("org.apache.hadoop.fs.local.LocalFs", "respool.QuickFs")


@pytest.fixture
def make(spark: "SparkSession") -> Callable[[str], Any]:
    """Return what makes an object of a class of Hadoop's kind, for the local disk."""
    jvm: Any = spark._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration()

    def made(name: str) -> Any:
        where = jvm.java.net.URI.create("file:///")
        if name in _FILE_SYSTEMS:
            files = jvm.java.lang.Class.forName(name).getConstructor(None).newInstance(None)
            files.initialize(where, conf)
            return files
        conf.set("fs.AbstractFileSystem.file.impl", name)
        return jvm.org.apache.hadoop.fs.FileContext.getFileContext(where, conf)

    return made


def _tree(folder: Path) -> dict[str, tuple[int, bytes | str | None]]:
    tree: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        tree[path.relative_to(folder).as_posix()] = (mode, content)
    return tree


def test_a_file_system_writes_what_hadoops_does(
    spark: "SparkSession", make: Callable[[str], Any], tmp_path: Path
) -> None:
    hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    for number, name in enumerate(_FILE_SYSTEMS):
        files, folder = make(name), tmp_path / str(number)
        path = hadoop.Path(f"{folder}/a/b")
        assert files.mkdirs(path)
        out = files.create(hadoop.Path(f"{folder}/a/b/file"))
        out.write(bytearray(b"text" * 1000))
        out.close()
        files.setPermission(hadoop.Path(f"{folder}/a/b/file"), hadoop.permission.FsPermission("640"))
        files.setPermission(path, hadoop.permission.FsPermission("1750"))  # with a bit that Java cannot set
        assert files.rename(hadoop.Path(f"{folder}/a/b/file"), hadoop.Path(f"{folder}/a/b/renamed"))
    assert _tree(tmp_path / "0") == _tree(tmp_path / "1")
    assert _tree(tmp_path / "1")["a/b/renamed"][0] == 0o640
    assert _tree(tmp_path / "1")["a/b"][0] == 0o1750


def test_a_checkpoint_file_is_written_and_replaced_as_hadoop_does(
    spark: "SparkSession", make: Callable[[str], Any], tmp_path: Path
) -> None:
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    gateway: Any = spark.sparkContext._gateway
    overwrite = gateway.new_array(jvm.org.apache.hadoop.fs.Options.Rename, 1)
    overwrite[0] = jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
    flags = jvm.java.util.EnumSet.of(hadoop.CreateFlag.CREATE, hadoop.CreateFlag.OVERWRITE)
    for number, name in enumerate(_CONTEXTS):
        files, folder = make(name), tmp_path / str(number)
        folder.mkdir()
        (folder / "link").symlink_to("elsewhere")
        assert files.getDefaultFileSystem().getClass().getName() == name
        for text in (b"first", b"second"):
            options = gateway.new_array(hadoop.Options.CreateOpts, 0)
            out = files.create(hadoop.Path(f"{folder}/.0.tmp"), flags, options)
            out.write(bytearray(text))
            out.close()
            files.rename(hadoop.Path(f"{folder}/.0.tmp"), hadoop.Path(f"{folder}/0"), overwrite)
        assert files.getFileLinkStatus(hadoop.Path(f"{folder}/link")).isSymlink()
        assert not files.getFileLinkStatus(hadoop.Path(f"{folder}/0")).isSymlink()
    assert _tree(tmp_path / "0") == _tree(tmp_path / "1")
    assert _tree(tmp_path / "1")["0"][1] == b"second"


def test_spark_takes_them(spark: "SparkSession") -> None:
    conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
    assert conf.get("fs.file.impl") == "respool.QuickFileSystem"
    assert conf.get("fs.AbstractFileSystem.file.impl") == "respool.QuickFs"
