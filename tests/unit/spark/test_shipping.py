"""Zips of Python code for executors."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import respool
from respool.errors import MachineError
from respool.spark import cluster


class FakeContext:
    """Keeps what an application is given."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.environment: dict[str, str] = {}

    def getConf(self) -> dict[str, str]:
        return {"spark.submit.pyFiles": "/anywhere/packages.zip"}

    def addPyFile(self, path: str) -> None:
        self.files.append(path)


class FakeSession:
    def __init__(self) -> None:
        self.sparkContext = FakeContext()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: "/spark-files")
    return FakeSession()


def names(archive: str) -> list[str]:
    with zipfile.ZipFile(archive) as opened:
        return opened.namelist()


def test_respool_can_be_imported_from_its_zip_alone(session: FakeSession) -> None:
    cluster.ship(session, [Path(respool.__file__).parent])  # type: ignore[arg-type]
    [archive] = session.sparkContext.files
    program = "import sys; sys.path[:0] = [sys.argv[1]]; import respool.sessions.rules as rules; print(rules.__file__)"
    # -I and -S: neither the tests' environment nor the installed packages.
    words = [sys.executable, "-I", "-S", "-c", program, archive]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(archive)


def test_a_version_is_shipped_once_and_a_changed_one_again(session: FakeSession, tmp_path: Path) -> None:
    module = tmp_path / "shop.py"
    module.write_text("a = 1")
    for _ in range(2):
        cluster.ship(session, [module])  # type: ignore[arg-type]
    module.write_text("a = 2")
    cluster.ship(session, [module])  # type: ignore[arg-type]
    first, second = session.sparkContext.files
    assert Path(first).name != Path(second).name
    assert names(first) == names(second) == ["shop.py"]


def test_hidden_and_compiled_files_stay_here(session: FakeSession, tmp_path: Path) -> None:
    for name in ("a.py", "data/prices.csv", "__pycache__/a.cpython-311.pyc", ".git/config", ".env", "b.pyc"):
        file = tmp_path / "shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    cluster.ship(session, [tmp_path / "shop"])  # type: ignore[arg-type]
    assert names(session.sparkContext.files[0]) == ["shop/a.py", "shop/data/prices.csv"]


def test_an_unreadable_file_is_named_and_nothing_is_shipped(session: FakeSession, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "gone.py").symlink_to(tmp_path / "nowhere")
    with pytest.raises(MachineError, match=r"gone\.py cannot be read, to ship it to the executors of the cluster"):
        cluster.ship(session, [tmp_path / "shop"])  # type: ignore[arg-type]
    assert session.sparkContext.files == []


def test_a_worker_of_the_driver_finds_the_same_files(session: FakeSession, tmp_path: Path) -> None:
    session.sparkContext.environment["PYTHONPATH"] = "/of/the/user"
    for name in ("shop.py", "prices.py"):
        (tmp_path / name).touch()
        cluster.ship(session, [tmp_path / name])  # type: ignore[arg-type]
    prices, shop = sorted(Path(file).name for file in session.sparkContext.files)
    assert session.sparkContext.environment["PYTHONPATH"].split(":") == [
        *("/of/the/user", f"/spark-files/{prices}", f"/spark-files/{shop}", "/spark-files/packages.zip")
    ]
