"""Where a table of PostgreSQL is, and how it is reached. The password is never part of that."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from respool.errors import MachineError, PipelineError, RespoolError, SettingsError, SinkError, SinkUnreachable

if TYPE_CHECKING:
    import psycopg

_ENV, _FILE, _TABLE = "password_env", "password_file", "table"
_SECRET = ("password", "sslpassword")


@dataclass(frozen=True)
class PostgresPlace:
    """A table of a database.

    Attributes:
        url: The database as `postgresql://user@host:port/database`, without a password.
        table: The table, with its schema if it is not the first of the search path: `shop.orders`.
        password_env: The environment variable that holds the password.
        password_file: The file that holds the password.
    """

    url: str
    table: str
    password_env: str | None = None
    password_file: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be a table, and a password in the URL."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("postgresql", "postgres") or not parts.path.strip("/"):
            raise PipelineError(
                f"JdbcSink.url is '{_without_secrets(self.url)}'; expected postgresql://user@host:port/database, or "
                "the same with jdbc: before it."
            )
        if parts.password is not None or any(name in _SECRET for name, _ in parse_qsl(parts.query)):
            raise PipelineError(
                f"JdbcSink.url has a password: {_without_secrets(self.url)}. It would be in logs and records. Name an "
                "environment variable with password_env, or a file with password_file."
            )
        if not re.fullmatch(r"[^.\x00]+(\.[^.\x00]+)?", self.table):
            raise PipelineError(f"JdbcSink.table is '{self.table}'; expected TABLE or SCHEMA.TABLE.")
        if self.password_env is not None and self.password_file is not None:
            raise PipelineError("JdbcSink.password_env and JdbcSink.password_file exclude each other. Leave one out.")

    @property
    def database(self) -> str:
        """The host and the database, for messages and comparisons."""
        parts = urlsplit(self.url)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def address(self) -> str:
        """The place as `--sink` names it."""
        parts = urlsplit(self.url)
        own = {_TABLE: self.table, _ENV: self.password_env, _FILE: self.password_file}
        query = [*parse_qsl(parts.query), *((name, value) for name, value in own.items() if value is not None)]
        return f"jdbc:{_with_query(parts, query)}"

    @staticmethod
    def parse(address: str) -> "PostgresPlace":
        """Return the place of an address; raise PipelineError when it is not one."""
        parts = urlsplit(address.removeprefix("jdbc:"))
        fields = parse_qsl(parts.query)
        own = {name: value for name, value in fields if name in (_TABLE, _ENV, _FILE)}
        url = _with_query(parts, [(name, value) for name, value in fields if name not in own])
        return PostgresPlace(url, own.get(_TABLE, ""), own.get(_ENV), own.get(_FILE))

    @contextmanager
    def connect(self) -> "Iterator[psycopg.Connection[Any]]":
        """Connect for the length of a `with` block, which is one transaction: it is committed when the block ends.

        Raises:
            SettingsError: The password cannot be read.
            SinkError: The server cannot be reached, or refuses something.
        """
        try:
            import psycopg
        except ImportError as error:
            raise MachineError(
                "PostgreSQL is reached with psycopg, which is not installed. Install it: pip install "
                "'respool[postgres]'."
            ) from error

        try:
            connection = psycopg.connect(
                self.url, password=self._password(), application_name="respool", connect_timeout=30
            )
            with connection as active:
                active.execute("SET TIME ZONE 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'iso_8601'")
                yield active
        except RespoolError:
            raise
        except psycopg.Error as error:
            raise (SinkUnreachable if _may_pass(error) else SinkError)(
                f"table {self.table} of {self.database}", _reason(error)
            ) from error

    def _password(self) -> str | None:
        """Return the password; None for libpq's own ways: PGPASSWORD, ~/.pgpass, a certificate."""
        if self.password_env is not None:
            if (value := os.environ.get(self.password_env)) is None:
                raise SettingsError(
                    f"The password of {self.database} is expected in the environment variable {self.password_env}, "
                    "which is not set. Set it."
                )
            return value
        if self.password_file is not None:
            try:
                return Path(self.password_file).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
            except OSError as error:
                raise SettingsError(
                    f"The password of {self.database} is expected in the file {self.password_file}, which cannot be "
                    f"read: {error.strerror}."
                ) from error
        return None


def _with_query(parts: SplitResult, fields: Sequence[tuple[str, str]]) -> str:
    query = urlencode(fields, quote_via=quote)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, parts.fragment))


def _may_pass(error: "psycopg.Error") -> bool:
    """Return whether an error can pass without a change: a lost connection, a restart, a deadlock, too many clients."""
    import psycopg

    if not isinstance(error, psycopg.OperationalError):
        return False
    if error.sqlstate is not None or error.pgconn is None:
        return True
    # It failed while connecting. A server that asked for a password was reached, and refused the account.
    return not (error.pgconn.needs_password or error.pgconn.used_password)


def _reason(error: "psycopg.Error") -> str:
    """Return what the server answered; without an answer, what libpq reports."""
    if error.diag.message_primary:
        return "; ".join(text for text in (error.diag.message_primary, error.diag.message_detail) if text)
    return f"{type(error).__name__}: {error}"


def _without_secrets(url: str) -> str:
    return re.sub(r"(password=)[^&]*", r"\1…", re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:…@", url))
