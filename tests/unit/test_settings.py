"""Where settings come from, which wins, and what is said of those that cannot be read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from respool.errors import SettingsError
from respool.settings import Settings, check_timezone, load

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the respool.toml of the folder."""

    def write(text: str) -> Path:
        file = tmp_path / "respool.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    settings = load(environ={}, folder=tmp_path)
    assert settings == Settings(home=tmp_path / ".respool")
    assert (settings.master, settings.broker_port, settings.timezone) == ("local[*]", 9092, None)
    home = tmp_path / ".respool"
    assert settings.logs == home / "logs"
    stores = (settings.checkpoint_store, settings.savepoint_store, settings.archive_store, settings.result_store)
    assert stores == tuple(f"{home}/{name}" for name in ("checkpoints", "savepoints", "archive", "results"))


def test_a_flag_wins_over_a_variable_a_variable_over_the_file_the_file_over_the_default(
    tmp_path: Path, write: Write
) -> None:
    def master(flags: dict[str, str | None], environ: dict[str, str]) -> str:
        return load(flags, environ, tmp_path).master

    assert master({}, {}) == "local[*]"
    write('master = "local[1]"')
    assert master({}, {}) == "local[1]"
    assert master({}, {"RESPOOL_MASTER": "local[2]"}) == "local[2]"
    assert master({"master": "local[3]"}, {"RESPOOL_MASTER": "local[2]"}) == "local[3]"
    assert master({"master": None}, {"RESPOOL_MASTER": "local[2]"}) == "local[2]"


def test_every_setting_can_stand_in_the_file(tmp_path: Path, write: Write) -> None:
    write("""
        home = "data"
        bootstrap_servers = "kafka:9092"
        master = "spark://master:7077"
        timezone = "Europe/Paris"
        broker_port = 9192
        ivy_settings = "/etc/ivysettings.xml"
        [kafka]
        security.protocol = "SSL"
        [spark]
        spark.executor.memory = "2g"
    """)
    assert load(environ={}, folder=tmp_path) == Settings(
        home=tmp_path / "data",
        bootstrap_servers="kafka:9092",
        master="spark://master:7077",
        timezone="Europe/Paris",
        broker_port=9192,
        ivy_settings=Path("/etc/ivysettings.xml"),
        kafka={"security.protocol": "SSL"},
        spark={"spark.executor.memory": "2g"},
    )


def test_every_setting_but_the_tables_can_stand_in_a_variable(tmp_path: Path) -> None:
    environ = {
        "RESPOOL_HOME": "/var/lib/respool",
        "RESPOOL_BOOTSTRAP_SERVERS": "kafka:9092",
        "RESPOOL_MASTER": "local[2]",
        "RESPOOL_TIMEZONE": "Asia/Tokyo",
        "RESPOOL_BROKER_PORT": "9192",
        "RESPOOL_IVY_SETTINGS": "/etc/ivysettings.xml",
        "RESPOOL_DEBUG": "1",
        "PATH": "/bin",
    }
    assert load(environ=environ, folder=tmp_path) == Settings(
        home=Path("/var/lib/respool"),
        bootstrap_servers="kafka:9092",
        master="local[2]",
        timezone="Asia/Tokyo",
        broker_port=9192,
        ivy_settings=Path("/etc/ivysettings.xml"),
    )
    with pytest.raises(SettingsError, match=r"RESPOOL_KAFKA cannot be set: 'kafka' is a table.*respool\.toml"):
        load(environ={"RESPOOL_KAFKA": "{}"}, folder=tmp_path)


def test_a_misspelt_key_in_the_file_is_reported_with_the_right_spelling(tmp_path: Path, write: Write) -> None:
    file = write('bootstrap_server = "kafka:9092"')
    with pytest.raises(SettingsError) as caught:
        load(environ={}, folder=tmp_path)
    assert str(caught.value) == (
        f"{file} has an unknown key 'bootstrap_server'. Did you mean 'bootstrap_servers'? The keys are: home, "
        "bootstrap_servers, master, timezone, broker_port, ivy_settings, storage, checkpoints, savepoints, archive, "
        "log_format, kafka, spark, s3, pipelines."
    )


def test_a_misspelt_variable_is_reported_with_the_right_spelling(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"RESPOOL_TIME_ZONE\) has an unknown key.*Did you mean 'timezone'\?"):
        load(environ={"RESPOOL_TIME_ZONE": "UTC"}, folder=tmp_path)


def test_a_file_that_is_not_toml_is_reported_with_the_line(tmp_path: Path, write: Write) -> None:
    file = write('master = "local[1]"\nhome = data\n')
    with pytest.raises(SettingsError, match=rf"{file} is not readable as TOML: .*line 2.*Correct that line"):
        load(environ={}, folder=tmp_path)


@pytest.mark.parametrize("value", ["[" * 20_000, "9" * 5_000])
def test_a_file_that_python_cannot_hold_is_reported(tmp_path: Path, write: Write, value: str) -> None:
    write(f"home = {value}")
    with pytest.raises(SettingsError, match="is not readable as TOML"):
        load(environ={}, folder=tmp_path)


def test_a_file_that_is_not_utf8_is_reported(tmp_path: Path, write: Write) -> None:
    write("").write_bytes(b'home = "caf\xe9"')
    with pytest.raises(SettingsError, match="is not readable as TOML"):
        load(environ={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("home = 3", "home in .* is 3; expected text in quotes"),
        ("master = true", "master in .* is True; expected text in quotes"),
        ('bootstrap_servers = ["a:1", "b:1"]', "bootstrap_servers in .*; expected text in quotes"),
        ('home = ""', "home in .* is empty. Give it a value, or leave it out"),
        ('kafka = "kafka:9092"', r"'kafka' in .* must be a table: write \[kafka\]"),
        ("[kafka]\nsasl.mechanism = ['PLAIN']", "kafka.sasl.mechanism in .*; expected text, a number, true or false"),
        ("[spark]\nspark.x = 2024-01-01", "spark.spark.x in .*; expected text, a number, true or false"),
    ],
)
def test_a_value_of_the_wrong_type_is_reported(tmp_path: Path, write: Write, text: str, message: str) -> None:
    write(text)
    with pytest.raises(SettingsError, match=message):
        load(environ={}, folder=tmp_path)


@pytest.mark.parametrize("value", ["0", "-1", "65536", "9092.5", "inf", "true", "[9092]", '"http"', '""'])
def test_a_bad_port_in_the_file_is_reported(tmp_path: Path, write: Write, value: str) -> None:
    write(f"broker_port = {value}")
    with pytest.raises(SettingsError, match=r"broker_port in .*respool\.toml is .*; expected a port from 1 to 65535"):
        load(environ={}, folder=tmp_path)


def test_a_bad_port_in_a_variable_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="broker_port in the variable RESPOOL_BROKER_PORT is 'nine'"):
        load(environ={"RESPOOL_BROKER_PORT": "nine"}, folder=tmp_path)


def test_an_empty_variable_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="home in the variable RESPOOL_HOME is empty"):
        load(environ={"RESPOOL_HOME": ""}, folder=tmp_path)


@pytest.mark.parametrize(
    ("wrong", "right"), [("Europe/Pari", "Europe/Paris"), ("america/new_york", "America/New_York")]
)
def test_a_wrong_time_zone_is_reported_with_the_nearest_name(wrong: str, right: str) -> None:
    with pytest.raises(SettingsError, match=rf"'{wrong}' is not a time zone. Did you mean '{right}'\?"):
        check_timezone(wrong)


@pytest.mark.parametrize("wrong", ["Mars", "", "../etc/passwd", "+99:00", "Factory", "localtime"])
def test_a_time_zone_like_no_other_is_reported_with_an_example(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"is not a time zone.*Give a name such as UTC or Europe/Paris"):
        check_timezone(wrong)


def test_a_wrong_time_zone_is_refused_wherever_it_stands(tmp_path: Path, write: Write) -> None:
    with pytest.raises(SettingsError, match="not a time zone"):
        load({"timezone": "Mars"}, {}, tmp_path)
    with pytest.raises(SettingsError, match="not a time zone"):
        load({}, {"RESPOOL_TIMEZONE": "Mars"}, tmp_path)
    write('timezone = "Mars"')
    with pytest.raises(SettingsError, match="not a time zone"):
        load({}, {}, tmp_path)


def test_options_of_kafka_are_read_with_quotes_and_without(tmp_path: Path, write: Write) -> None:
    write("""
        [kafka]
        security.protocol = "SASL_SSL"
        "sasl.mechanism" = "PLAIN"
        ssl.ca.location = "/etc/ca.pem"
        "ssl.key.location" = "/etc/key.pem"
        socket.timeout.ms = 3000
        enable.ssl.certificate.verification = true
        [kafka.sasl]
        username = "alice"
    """)
    assert load(environ={}, folder=tmp_path).kafka == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.key.location": "/etc/key.pem",
        "socket.timeout.ms": "3000",
        "enable.ssl.certificate.verification": "true",
        "sasl.username": "alice",
    }


def test_an_option_written_both_ways_is_reported(tmp_path: Path, write: Write) -> None:
    write('[kafka]\nsasl.mechanism = "PLAIN"\n"sasl.mechanism" = "SCRAM-SHA-256"')
    with pytest.raises(SettingsError, match=r"has kafka\.sasl\.mechanism twice.*Remove one"):
        load(environ={}, folder=tmp_path)


def test_secrets_are_taken_from_variables_and_files(tmp_path: Path, write: Write) -> None:
    (tmp_path / "password").write_text("with blank \n", encoding="utf-8")
    write(f"""
        [kafka]
        sasl.username = "env:KAFKA_USER"
        sasl.password = "file:{tmp_path}/password"
        sasl.jaas.config = "file:password"
        client.id = "env:"
        [spark]
        spark.hadoop.fs.s3a.secret.key = "env:S3_KEY"
        spark.eventLog.dir = "file:///var/events"
    """)
    settings = load(environ={"KAFKA_USER": "alice", "S3_KEY": "key"}, folder=tmp_path)
    assert settings.kafka == {
        "sasl.username": "alice",
        "sasl.password": "with blank ",
        "sasl.jaas.config": "with blank ",
        "client.id": "env:",
    }
    assert settings.spark == {"spark.hadoop.fs.s3a.secret.key": "key", "spark.eventLog.dir": "file:///var/events"}


def test_a_secret_in_the_users_own_folder_is_found(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "alice"))
    (tmp_path / "alice").mkdir()
    (tmp_path / "alice" / "password").write_text("secret")
    write('[kafka]\nsasl.password = "file:~/password"')
    assert load(environ={}, folder=tmp_path).kafka == {"sasl.password": "secret"}


def test_a_missing_secret_is_reported_by_its_place(tmp_path: Path, write: Write) -> None:
    write('[kafka]\nsasl.password = "env:KAFKA_PASSWORD"')
    with pytest.raises(SettingsError, match=r"kafka\.sasl\.password in .* the variable KAFKA_PASSWORD, which is not"):
        load(environ={}, folder=tmp_path)
    write('[kafka]\nsasl.password = "file:/nowhere/password"')
    with pytest.raises(SettingsError, match=r"the file /nowhere/password, which cannot be read: No such file.*Correct"):
        load(environ={}, folder=tmp_path)
    write(f'[kafka]\nsasl.password = "file:{tmp_path}"')
    with pytest.raises(SettingsError, match="Is a directory"):
        load(environ={}, folder=tmp_path)
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    write('[kafka]\nsasl.password = "file:password"')
    with pytest.raises(SettingsError, match="is not text"):
        load(environ={}, folder=tmp_path)


def test_settings_never_show_a_secret() -> None:
    shown = repr(Settings(kafka={"sasl.password": "hunter2"}, spark={"spark.hadoop.fs.s3a.secret.key": "hunter2"}))
    assert "home=" in shown
    assert "hunter2" not in shown


def test_a_variable_names_another_file(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write('master = "local[1]"')
    (tmp_path / "other.toml").write_text('master = "local[7]"')
    named = {"RESPOOL_CONFIG": str(tmp_path / "other.toml")}
    assert load(environ=named, folder=tmp_path).master == "local[7]"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(environ={"RESPOOL_CONFIG": "~/other.toml"}, folder=tmp_path).master == "local[7]"
    with pytest.raises(
        SettingsError, match=r"RESPOOL_CONFIG names /nowhere, which does not exist. Correct it or unset"
    ):
        load(environ={"RESPOOL_CONFIG": "/nowhere"}, folder=tmp_path)


def test_a_file_that_may_not_be_read_is_reported(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    write("")
    monkeypatch.setattr("respool.settings.read_regular_file", refuse)
    with pytest.raises(SettingsError, match=r"respool\.toml cannot be read: Permission denied"):
        load(environ={}, folder=tmp_path)


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_a_home_below_the_users_folder_is_found(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    if way == "file":
        write('home = "~/respool"')
    flags = {"home": Path("~/respool")} if way == "flag" else {}
    environ = {"RESPOOL_HOME": "~/respool"} if way == "variable" else {}
    assert load(flags, environ, tmp_path).home == Path("/home/alice/respool")


def test_parameters_of_pipelines_are_read(tmp_path: Path) -> None:
    (tmp_path / "respool.toml").write_text('[pipelines.visit-counts]\nwindow = "15 minutes"\n')
    assert load(environ={}, folder=tmp_path).pipelines == {"visit-counts": {"window": "15 minutes"}}
    (tmp_path / "respool.toml").write_text('pipelines = "visit-counts"\n')
    with pytest.raises(SettingsError, match=r"write \[pipelines\.NAME\]"):
        load(environ={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/dev/full", "a regular file"),
        ("/dev/zero", "a regular file"),
        ("pipe", "a regular file"),
        ("large", "at most"),
    ],
)
def test_a_file_without_an_end_is_not_read(tmp_path: Path, write: Write, name: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 20 * 2**30)
    write(f'[kafka]\nsasl.password = "file:{name}"')
    with pytest.raises(SettingsError, match=f"{name}, which cannot be read: .*{message}"):
        load(environ={}, folder=tmp_path)


def test_a_respool_toml_without_an_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "respool.toml")
    with pytest.raises(SettingsError, match=r"respool\.toml cannot be read: .*a regular file"):
        load(environ={}, folder=tmp_path)
    with pytest.raises(SettingsError, match=r"/dev/zero cannot be read: .*a regular file"):
        load(environ={"RESPOOL_CONFIG": "/dev/zero"}, folder=tmp_path)


def test_a_secret_behind_a_link_is_read(tmp_path: Path, write: Write) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "link").symlink_to("secret")
    write('[kafka]\nsasl.password = "file:link"')
    assert load(environ={}, folder=tmp_path).kafka == {"sasl.password": "s"}


@pytest.mark.parametrize(
    "home", ["hdfs://nn/home", "ftp://host/home", "dbfs:/home", "s3://bucket/home", "file:///home"]
)
@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_a_home_that_is_a_url_is_refused(tmp_path: Path, write: Write, home: str, way: str) -> None:
    if way == "file":
        write(f'home = "{home}"')
    with pytest.raises(SettingsError, match="a URL; expected a folder on a local disk"):
        load(
            {"home": Path(home)} if way == "flag" else {}, {"RESPOOL_HOME": home} if way == "variable" else {}, tmp_path
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == (["respool.toml"] if way == "file" else [])


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for home in ("file", "file/below/it"):
        with pytest.raises(SettingsError, match=r"/file is a file; expected a folder"):
            load({"home": Path(home)}, {}, tmp_path)


@pytest.mark.parametrize(
    ("name", "right"),
    [("sql.shuffle.partitions", "spark.sql.shuffle.partitions"), ("fs.s3a.endpoint", "spark.hadoop.fs.s3a.endpoint")],
)
def test_a_setting_that_spark_would_ignore_is_refused(tmp_path: Path, write: Write, name: str, right: str) -> None:
    write(f'[spark]\n{name} = "2"')
    with pytest.raises(SettingsError, match=rf"{name} in the \[spark\] table .*Write {right} instead"):
        load(environ={}, folder=tmp_path)


def test_all_places_can_be_in_one_storage_and_each_elsewhere(tmp_path: Path, write: Write) -> None:
    write('storage = "s3a://bucket/respool/"')
    settings = load({"savepoints": "gs://other/saved"}, {"RESPOOL_ARCHIVE": "/archive"}, tmp_path)
    assert settings.checkpoint_store == "s3://bucket/respool/checkpoints"
    assert settings.checkpoint_of("orders") == "s3://bucket/respool/checkpoints/orders"
    assert settings.result_store == "s3://bucket/respool/results"
    assert (settings.savepoint_store, settings.archive_store) == ("gs://other/saved", "/archive")
    assert settings.logs == tmp_path / ".respool/logs"
    moved = load({"storage": str(tmp_path / "shared")}, {"RESPOOL_CHECKPOINTS": "s3://bucket/c"}, tmp_path)
    assert (moved.checkpoint_store, moved.archive_store) == ("s3://bucket/c", f"{tmp_path}/shared/archive")


@pytest.mark.parametrize("name", ["storage", "checkpoints", "savepoints", "archive"])
def test_a_typo_in_the_url_of_a_place_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=f"The setting {name} is not usable: s3//bucket/x is not a URL"):
        load({name: "s3//bucket/x"}, {}, tmp_path)
    with pytest.raises(SettingsError, match="s3:// names no bucket"):
        load({}, {f"RESPOOL_{name.upper()}": "s3://"}, tmp_path)


def test_a_url_as_home_names_the_setting_for_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"The home is s3:/+bucket, a URL.*--storage, RESPOOL_STORAGE"):
        load({"home": Path("s3://bucket")}, {}, tmp_path)


def test_the_table_of_s3(tmp_path: Path, write: Write) -> None:
    (tmp_path / "key").write_text("the secret\n")
    write("""
        [s3]
        endpoint = "http://127.0.0.1:9000"
        path_style = true
        access_key = "env:MY_KEY"
        secret_key = "file:key"
    """)
    table = load(environ={"MY_KEY": "id"}, folder=tmp_path).s3
    assert table == {
        "endpoint": "http://127.0.0.1:9000",
        "path_style": "true",
        "access_key": "id",
        "secret_key": "the secret",
    }
    write('[s3]\nendpoit = "http://127.0.0.1:9000"')
    with pytest.raises(SettingsError, match=r"unknown key 'endpoit'. Did you mean 'endpoint'\? The keys are: endpoint"):
        load(environ={}, folder=tmp_path)
    write('[s3]\naccess_key = "env:MY_KEY"')
    with pytest.raises(SettingsError, match="refers to the variable MY_KEY, which is not set"):
        load(environ={}, folder=tmp_path)
