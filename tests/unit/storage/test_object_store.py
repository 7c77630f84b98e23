"""Credentials, endpoint and region of object stores: configured once, passed to each library in its own words."""

import pytest

from respool.errors import SettingsError
from respool.settings import Settings
from respool.spark.session import _conf, stores_of
from respool.storage import object_store
from respool.storage.object_store import S3Access, s3_access

KEYS = {"AWS_ACCESS_KEY_ID": "id-of-variable", "AWS_SECRET_ACCESS_KEY": "key-of-variable"}
TABLE = {"endpoint": "http://127.0.0.1:9000", "region": "eu-west-3", "access_key": "id", "secret_key": "the-secret"}


def test_variables_are_used_where_the_table_names_nothing() -> None:
    environ = {**KEYS, "AWS_SESSION_TOKEN": "token", "AWS_DEFAULT_REGION": "eu-north-1"}
    assert s3_access({}, environ) == S3Access(
        region="eu-north-1", access_key="id-of-variable", secret_key="key-of-variable", session_token="token"
    )
    environ |= {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://all:1", "AWS_ENDPOINT_URL_S3": "https://s3:2/"}
    access = s3_access({"region": "eu-west-3"}, environ)
    assert (access.endpoint, access.region, access.path_style) == ("https://s3:2", "eu-west-3", True)
    assert s3_access({}, {"AWS_PROFILE": "work"}) == S3Access(profile="work")
    assert s3_access({}, {"AWS_PROFILE": "work", **KEYS}).profile is None
    assert s3_access({}, {"AWS_ENDPOINT_URL": "http://one:1"}).region == "us-east-1"


def test_credentials_of_the_table_are_not_mixed_with_those_of_variables() -> None:
    access = s3_access(TABLE, {**KEYS, "AWS_PROFILE": "work"})
    assert (access.access_key, access.secret_key, access.session_token) == ("id", "the-secret", None)
    assert access.profile is None


def test_secrets_are_not_shown() -> None:
    assert "the-secret" not in repr(s3_access(TABLE, {}))
    assert "the-secret" not in repr(Settings(s3=TABLE))


@pytest.mark.parametrize(
    ("table", "environ", "message"),
    [
        ({"endpoint": "127.0.0.1:9000"}, {}, r"endpoint in the \[s3\] table is '127.0.0.1:9000'; expected an address"),
        ({}, {"AWS_ENDPOINT_URL": "store"}, "AWS_ENDPOINT_URL is 'store'; expected an address such as http://"),
        ({"path_style": "yes"}, {}, "path_style in the .s3. table is 'yes'; expected true or false"),
        ({"access_key": "id"}, {}, "no secret_key"),
        ({}, {"AWS_SECRET_ACCESS_KEY": "key"}, "no access_key"),
        (TABLE, {"AWS_SESSION_TOKEN": "token"}, "AWS_SESSION_TOKEN is set, and belongs to other credentials"),
    ],
)
def test_what_cannot_be_used(table: dict[str, str], environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        s3_access(table, environ)


def test_each_library_gets_the_same_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(s3={**TABLE, "session_token": "token"})
    monkeypatch.setattr(object_store, "_current", settings)

    fsspec = object_store.fsspec_options("s3://bucket/x")
    assert (fsspec["endpoint_url"], fsspec["client_kwargs"]) == ("http://127.0.0.1:9000", {"region_name": "eu-west-3"})
    assert (fsspec["key"], fsspec["secret"], fsspec["token"]) == ("id", "the-secret", "token")
    assert fsspec["config_kwargs"]["s3"] == {"addressing_style": "path"}

    delta = object_store.delta_options("s3://bucket/x")
    assert (delta["aws_endpoint"], delta["aws_region"], delta["allow_http"]) == (
        "http://127.0.0.1:9000",
        "eu-west-3",
        "true",
    )
    assert [delta[f"aws_{name}"] for name in ("access_key_id", "secret_access_key", "session_token")] == [
        "id",
        "the-secret",
        "token",
    ]
    assert "aws_virtual_hosted_style_request" not in delta

    hadoop = object_store.hadoop_conf(settings, {}, ["s3"])
    expected = {
        "endpoint": "http://127.0.0.1:9000",
        "endpoint.region": "eu-west-3",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": "id",
        "secret.key": "the-secret",
        "session.token": "token",
    }
    assert {name: hadoop[f"spark.hadoop.fs.s3a.{name}"] for name in expected} == expected


def test_a_bucket_with_a_host_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(s3={"endpoint": "https://store.example", "path_style": "false"})
    monkeypatch.setattr(object_store, "_current", settings)
    assert object_store.delta_options("s3://bucket/x")["aws_endpoint"] == "https://bucket.store.example"
    assert object_store.fsspec_options("s3://bucket/x")["config_kwargs"]["s3"] == {"addressing_style": "auto"}
    assert "spark.hadoop.fs.s3a.path.style.access" not in object_store.hadoop_conf(settings, {}, ["s3"])


def test_other_stores_get_no_credentials_of_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_current", Settings(s3=TABLE))
    assert object_store.fsspec_options("gs://bucket/x") == {}
    assert not any(name.startswith("aws_") for name in object_store.delta_options("gs://bucket/x"))


@pytest.mark.parametrize(
    ("settings", "locations", "stores"),
    [
        (Settings(), ["/folder", "file:/x", "hdfs://name/x"], set()),
        (Settings(), ["/folder", "s3a://bucket/x"], {"s3"}),
        (Settings(storage="s3://bucket"), [], {"s3"}),
        (Settings(checkpoints="gs://bucket/x", archive="s3://bucket"), ["abfss://c@a/x"], {"gs", "s3", "abfs"}),
    ],
)
def test_spark_gets_the_connectors_of_the_stores_in_use(
    settings: Settings, locations: list[str], stores: set[str]
) -> None:
    assert stores_of(settings, locations) == stores


def test_under_spark_submit_the_credentials_are_settings_of_the_session() -> None:
    settings = Settings(s3=TABLE, spark={"spark.hadoop.fs.s3a.endpoint.region": "of the user"})
    conf = _conf(settings, submitted=True, stores={"s3"})
    assert conf["spark.hadoop.fs.s3a.secret.key"] == "the-secret"
    assert conf["spark.hadoop.fs.s3a.endpoint.region"] == "of the user"
    assert "spark.hadoop.fs.s3a.secret.key" not in _conf(settings, submitted=True, stores=set())


def test_spark_gets_the_credentials_of_google_and_azure_that_other_libraries_read_from_variables() -> None:
    environ = {
        "GOOGLE_APPLICATION_CREDENTIALS": "/keys/google.json",
        "AZURE_STORAGE_ACCOUNT_NAME": "mine",
        "AZURE_STORAGE_ACCOUNT_KEY": "the-key",
    }
    conf = object_store.hadoop_conf(Settings(), environ, ["gs", "abfs"])
    assert conf == {
        "spark.hadoop.fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "spark.hadoop.fs.gs.auth.service.account.json.keyfile": "/keys/google.json",
        "spark.hadoop.fs.azure.account.key.mine.dfs.core.windows.net": "the-key",
    }
    assert object_store.hadoop_conf(Settings(), {}, ["gs", "abfs"]) == {}
