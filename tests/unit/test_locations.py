"""One object store has several names: which are the same, and the form that each library gets."""

from pathlib import Path

import pytest

from respool import settings
from respool.errors import CheckpointError, SettingsError
from respool.identity import FROM_TEXT, Identity
from respool.local import jars
from respool.locations import absolute, canonical_location, expand_user, for_spark, local_path, store_of, under


@pytest.mark.parametrize(
    ("url", "canonical", "for_hadoop"),
    [
        ("s3://bucket/a", "s3://bucket/a", "s3a://bucket/a"),
        ("s3a://bucket/a/", "s3://bucket/a", "s3a://bucket/a"),
        ("S3N://bucket//a", "s3://bucket/a", "s3a://bucket/a"),
        ("gcs://bucket/a", "gs://bucket/a", "gs://bucket/a"),
        ("gs://bucket", "gs://bucket", "gs://bucket"),
        ("az://c@account.dfs.core.windows.net/a", "abfs://c@account.dfs.core.windows.net/a", None),
        ("abfss://c@account/a", "abfs://c@account/a", "abfss://c@account/a"),
        ("hdfs://name:8020/a/", "hdfs://name:8020/a", "hdfs://name:8020/a"),
        ("memory://a", "memory://a", "memory://a"),
    ],
)
def test_the_forms_of_a_url(url: str, canonical: str, for_hadoop: str | None) -> None:
    assert canonical_location(url) == absolute(url) == canonical
    assert canonical_location(canonical) == canonical
    assert for_spark(url) == for_spark(canonical) == (for_hadoop or canonical.replace("abfs:", "abfss:"))


def test_a_local_path_is_a_file_uri_for_spark_and_not_encoded(tmp_path: Path) -> None:
    assert for_spark(f"{tmp_path}/ä b#%20") == f"file:{tmp_path}/ä b#%20"
    assert for_spark(for_spark(str(tmp_path))) == f"file:{tmp_path}"
    assert for_spark("relative") == f"file:{Path.cwd()}/relative"
    assert local_path(for_spark(str(tmp_path))) == tmp_path


@pytest.mark.parametrize(
    ("typo", "message"),
    [
        ("s3//bucket/a", r"expected '://'. Write it as s3://bucket/a, or a local folder as ./s3//bucket/a"),
        ("s3:/bucket/a", r"Write it as s3://bucket/a"),
        ("s3a:bucket/a", r"Write it as s3a://bucket/a"),
        ("s3:///bucket/a", r"after s3 it has ':///'"),
        ("gs//bucket", r"Write it as gs://bucket"),
        ("s3://", r"names no bucket. Write the URL as s3://BUCKET/FOLDER"),
        ("abfss:", r"names no bucket"),
        ("s3://bucket/a/../b", r"a part '.' or '..'"),
    ],
)
def test_a_typo_in_a_url_is_no_local_folder(typo: str, message: str) -> None:
    for use in (local_path, absolute, for_spark):
        with pytest.raises(CheckpointError, match=message):
            use(typo)


@pytest.mark.parametrize("path", ["s3", "s3/bucket", "./s3//bucket", "gs-data/x", "/s3://x", "c:/folder", "abfs.old"])
def test_a_path_that_resembles_a_url_is_a_path(path: str) -> None:
    assert local_path(path) == Path(path)
    assert store_of(path) is None


def test_a_name_in_a_store() -> None:
    assert under("s3a://bucket/checkpoints/", "orders") == "s3://bucket/checkpoints/orders"
    assert under("/home/checkpoints", "orders") == "/home/checkpoints/orders"
    assert under("s3://bucket/x", "s3a://other/y") == "s3://other/y"
    assert under("s3://bucket/x", "/folder") == "/folder"


def test_an_identity_that_was_recorded_by_another_name_of_the_store_is_the_same() -> None:
    now = Identity("delta", {"table": "s3://bucket/table", "holds": "results"})
    assert Identity("delta", {"table": "s3a://bucket/table", "holds": "results"}).is_same(now)
    assert Identity("delta", {"table": "s3a://bucket/table"}, FROM_TEXT).is_same(now)
    assert not Identity("delta", {"table": "s3a://bucket/other", "holds": "results"}).is_same(now)


def test_a_home_folder_of_nobody_is_refused(tmp_path: Path) -> None:
    assert expand_user(Path("~/x")) == Path.home() / "x"
    for use in (absolute, canonical_location, for_spark, lambda path: under(str(tmp_path), path)):
        with pytest.raises(SettingsError, match=r"no home folder for a user nobody-7\. .* as \./~nobody-7/x"):
            use("~nobody-7/x")
    for key in ("home", "savepoints", "storage"):
        with pytest.raises(SettingsError, match="no home folder for a user nobody-7"):
            settings.load({key: "~nobody-7/x"}, environ={}, folder=tmp_path)
    with pytest.raises(SettingsError, match="no home folder for a user nobody-7"):
        settings.load(environ={"RESPOOL_CONFIG": "~nobody-7/x"}, folder=tmp_path)


def test_an_account_without_a_home_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # a container whose user has no entry in /etc/passwd
    with pytest.raises(SettingsError, match=r"no home folder for this account\. .* set HOME"):
        jars.cache()
