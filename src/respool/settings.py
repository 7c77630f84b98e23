"""respool.toml, RESPOOL_* variables and flags become one frozen Settings.

A flag takes precedence over a variable, a variable over the file, the file over the default. An unknown key is always
an error. A secret need not be stored in the file: a value of the `[kafka]`, `[spark]` or `[s3]` table that starts with
`env:` or `file:` is read from that variable or file; an address, `file://…`, is not changed.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from respool.errors import CheckpointError, SettingsError
from respool.locations import absolute, expand_user, scheme_of, under
from respool.text import did_you_mean
from respool.untrusted import read_regular_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG_FILE = "respool.toml"
_PREFIX = "RESPOOL_"
_TABLES = ("kafka", "spark", "s3", "pipelines")
_S3 = ("endpoint", "region", "path_style", "access_key", "secret_key", "session_token")
_PLACES = ("storage", "checkpoints", "savepoints", "archive")  # a folder or URL each
_LOG_FORMATS = ("text", "json")
_NOT_SETTINGS = frozenset({"RESPOOL_CONFIG", "RESPOOL_DEBUG"})


@dataclass(frozen=True)
class Settings:
    """Where a command runs and what it connects to.

    >>> respool.Settings(master="local[2]").master
    'local[2]'

    Attributes:
        home: The folder of broker data, checkpoints, archive and logs.
        bootstrap_servers: An existing Kafka cluster; None for the embedded broker of the home.
        master: Spark's master.
        timezone: The zone in which pipelines read times that name none, and write results; None for their own.
        broker_port: The preferred port of the embedded broker.
        ivy_settings: An ivysettings.xml that names another jar repository, for machines behind a mirror.
        storage: Where checkpoints, savepoints, the archive and tables of results are, a folder or URL with a subfolder
            for each; None for the home.
        checkpoints: Where the checkpoints of pipelines are, a folder or URL; None for `checkpoints` in the storage.
        savepoints: Where savepoints are, a folder or URL; None for `savepoints` in the storage.
        archive: Where archive tables are, a folder or URL; None for `archive` in the storage.
        log_format: What `respool run` prints to standard error: text, or json for an object a line.
        kafka: Options of every Kafka client, by librdkafka's names or by Java's.
        spark: Spark's own settings, by their full names.
        s3: Credentials, endpoint and region of S3; the AWS_* variables apply where it names none.
        pipelines: Parameters of pipelines, by the pipeline's name.
    """

    home: Path = Path(".respool")
    bootstrap_servers: str | None = None
    master: str = "local[*]"
    timezone: str | None = None
    broker_port: int = 9092
    ivy_settings: Path | None = None
    storage: str | None = None
    checkpoints: str | None = None
    savepoints: str | None = None
    archive: str | None = None
    log_format: str = "text"
    # Never shown, as they may hold secrets.
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    s3: Mapping[str, str] = field(default_factory=dict, repr=False)
    pipelines: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def checkpoint_store(self) -> str:
        """The folder or URL of the checkpoints, one for each pipeline."""
        return self.checkpoints or self._stored("checkpoints")

    @property
    def savepoint_store(self) -> str:
        """The folder or URL of the savepoints."""
        return self.savepoints or self._stored("savepoints")

    @property
    def archive_store(self) -> str:
        """The folder or URL of archive tables that are given by a relative path."""
        return self.archive or self._stored("archive")

    @property
    def result_store(self) -> str:
        """The folder or URL of tables of results that are given by a relative path."""
        return self._stored("results")

    def checkpoint_of(self, pipeline: str) -> str:
        """Return the folder or URL of the checkpoint of a pipeline, by its name."""
        return under(self.checkpoint_store, pipeline)

    def _stored(self, name: str) -> str:
        return str(self.home / name) if self.storage is None else under(self.storage, name)

    @property
    def logs(self) -> Path:
        """The folder of Spark's logs."""
        return self.home / "logs"


def load(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Return the settings of a command.

    Args:
        flags: The command line's values, by the names of Settings' fields; None values are ignored.
        environ: The variables; the process's own by default.
        folder: Where to look for respool.toml; the working folder by default.
    """
    environ = os.environ if environ is None else environ
    folder = Path.cwd() if folder is None else folder
    values: dict[str, Any] = {}
    named = environ.get("RESPOOL_CONFIG")
    file = expand_user(Path(named)) if named else folder / CONFIG_FILE
    if named and not file.exists():
        raise SettingsError(f"RESPOOL_CONFIG names {file}, which does not exist. Correct it or unset it.")
    if file.exists():
        values |= _from_file(file, environ)
    values |= _from_environment(environ)
    values |= {name: value for name, value in (flags or {}).items() if value is not None}
    settings = replace(Settings(), **values)
    if settings.timezone is not None:
        check_timezone(settings.timezone)
    if settings.log_format not in _LOG_FORMATS:
        raise SettingsError(f"log_format is {settings.log_format!r}; expected {' or '.join(_LOG_FORMATS)}.")
    for name in _PLACES:
        _check_place(name, getattr(settings, name))
    return replace(settings, home=_home(Path(settings.home), folder))


def _check_place(name: str, location: str | None) -> None:
    try:
        if location is not None:
            absolute(location)
    except CheckpointError as error:
        raise SettingsError(f"The setting {name} is not usable: {error}") from error


def _home(home: Path, folder: Path) -> Path:
    if scheme_of(str(home)) is not None:
        raise SettingsError(
            f"The home is {home}, a URL; expected a folder on a local disk, for logs and the embedded broker. "
            "Checkpoints, savepoints, archives and results can be in an object store: name its URL with --storage, "
            "RESPOOL_STORAGE, or storage in respool.toml."
        )
    home = folder / expand_user(home)
    for part in (home, *home.parents):
        if part.exists():
            if not part.is_dir():
                raise SettingsError(
                    f"The home is {home}, but {part} is a file; expected a folder. Name it with --home."
                )
            break
    return home


def check_timezone(name: str) -> str:
    """Return `name` if Python and Spark support it as a time zone; raise SettingsError otherwise."""
    unknown = name in ("Factory", "localtime") or name.startswith(("posix/", "right/"))
    try:
        ZoneInfo(name)  # far faster than to list all zones
    except (KeyError, ValueError, OSError):
        unknown = True
    if unknown:
        zones = sorted(available_timezones())
        raise SettingsError(
            f"'{name}' is not a time zone.{did_you_mean(name, zones)} Give a name such as UTC or Europe/Paris."
        )
    return name


def _from_file(file: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    try:
        document = tomllib.loads(read_small_text(file))
    except RecursionError:
        raise SettingsError(f"{file} is not readable as TOML: it is nested too deep. Flatten it.") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number with thousands of digits
        raise SettingsError(f"{file} is not readable as TOML: {error}. Correct that line.") from error
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}. Make it readable, or move it away.") from error
    values: dict[str, Any] = {}
    for key, value in document.items():
        _check_key(key, str(file))
        if key == "pipelines":
            values[key] = _pipelines(value, file)
        elif key in _TABLES:
            values[key] = _table(key, value, file, environ)
        else:
            values[key] = _scalar(key, value, str(file))
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or variable in _NOT_SETTINGS:
            continue
        key = variable.removeprefix(_PREFIX).lower()
        if key in _TABLES:
            raise SettingsError(f"{variable} cannot be set: '{key}' is a table. Write it in {CONFIG_FILE}.")
        _check_key(key, f"the environment ({variable})")
        values[key] = _scalar(key, value, f"the variable {variable}")
    return values


def _check_key(key: str, where: str) -> None:
    known = [field.name for field in fields(Settings)]
    if key not in known:
        raise SettingsError(
            f"{where} has an unknown key '{key}'.{did_you_mean(key, known)} The keys are: {', '.join(known)}."
        )


def _scalar(key: str, value: Any, where: str) -> Any:
    if key == "broker_port":
        try:
            port = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else 0
        except ValueError:
            port = 0
        if not 0 < port < 65536:
            raise SettingsError(f"{key} in {where} is {value!r}; expected a port from 1 to 65535.")
        return port
    if value == "":
        raise SettingsError(f"{key} in {where} is empty. Give it a value, or leave it out.")
    if not isinstance(value, str):
        raise SettingsError(f"{key} in {where} is {value!r}; expected text in quotes.")
    return expand_user(Path(value)) if key in ("home", "ivy_settings") else value


def _table(key: str, value: Any, file: Path, environ: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(value, dict):
        raise SettingsError(f"'{key}' in {file} must be a table: write [{key}] on a separate line.")
    table: dict[str, str] = {}
    for name, item in _flatten(value):
        if not isinstance(item, str | int | float | bool):
            raise SettingsError(f"{key}.{name} in {file} is {item!r}; expected text, a number, true or false.")
        if name in table:
            raise SettingsError(f"{file} has {key}.{name} twice, with quotes and without. Remove one of them.")
        if key == "spark" and not name.startswith("spark."):
            raise SettingsError(
                f"{name} in the [spark] table of {file} is not a setting of Spark: its names start with 'spark.'. "
                f"Write {'spark.hadoop.' if name.startswith(('fs.', 'dfs.')) else 'spark.'}{name} instead."
            )
        if key == "s3" and name not in _S3:
            raise SettingsError(
                f"The [s3] table of {file} has an unknown key '{name}'.{did_you_mean(name, list(_S3))} The keys are: "
                f"{', '.join(_S3)}."
            )
        text = str(item).lower() if isinstance(item, bool) else str(item)
        table[name] = _secret(f"{key}.{name} in {file}", text, environ, file.parent)
    return table


def _pipelines(value: Any, file: Path) -> dict[str, dict[str, object]]:
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise SettingsError(f"'pipelines' in {file} must hold tables: write [pipelines.NAME] on a separate line.")
    return value


def _flatten(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Flatten nested tables, as which TOML parses a bare dotted key (`security.protocol = …`)."""
    flat: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        flat += _flatten(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return flat


def _secret(where: str, text: str, environ: Mapping[str, str], folder: Path) -> str:
    kind, _, name = text.partition(":")
    if kind == "env" and name:
        if name not in environ:
            raise SettingsError(f"{where} refers to the variable {name}, which is not set. Set it and try again.")
        return environ[name]
    if kind == "file" and name and not name.startswith("//"):
        file = folder / expand_user(Path(name))
        try:
            return read_small_text(file).rstrip("\r\n")
        except OSError as error:
            raise SettingsError(
                f"{where} refers to the file {file}, which cannot be read: {error.strerror}. Correct its name."
            ) from error
        except UnicodeDecodeError as error:
            raise SettingsError(f"{where} refers to the file {file}, which is not text. Correct its name.") from error
    return text


MOST_BYTES = 2**20  # four times the size of the certificates of all public authorities


def read_small_text(file: Path) -> str:
    """Return the text of a regular file; a device, which may never end, and a pipe, which may block, are refused.

    Raises:
        OSError: It cannot be read, is not a regular file, or is too large; `strerror` has the reason.
        UnicodeDecodeError: It is not UTF-8.
    """
    return read_regular_file(file, MOST_BYTES).decode()
