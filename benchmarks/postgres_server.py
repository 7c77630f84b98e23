"""A real PostgreSQL on 127.0.0.1, of the programs that Debian's package `postgresql` installs."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

PASSWORD = secrets.token_urlsafe()  # of the servers that this process starts


class PostgresMissing(Exception):
    """PostgreSQL cannot be started on this machine; the message is the reason."""


@dataclass(frozen=True)
class PostgresServer:
    """A running server.

    Attributes:
        port: Where it listens, on 127.0.0.1.
    """

    port: int

    @property
    def url(self) -> str:
        """The URL of its database, without a password."""
        return f"postgresql://respool@127.0.0.1:{self.port}/postgres"

    def connect(self) -> "psycopg.Connection[Any]":
        """Return a connection that commits each statement."""
        import psycopg

        return psycopg.connect(self.url, password=PASSWORD, autocommit=True)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connect() as connection:
            return connection.execute(query.encode()).fetchall()


def programs() -> Path:
    """Return the folder of PostgreSQL's programs, the newest version; raise PostgresMissing when there are none."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if installed:
        return installed[-1].parent
    if (initdb := shutil.which("initdb")) is not None:
        return Path(initdb).resolve().parent
    raise PostgresMissing("PostgreSQL is not installed. On Debian: sudo apt-get install postgresql")


@contextmanager
def running() -> Iterator[PostgresServer]:
    """Run a server with an empty database for the length of a `with` block; raise PostgresMissing if that fails."""
    folder = Path(tempfile.mkdtemp(prefix="respool-postgres-"))
    account = _account(folder)
    password = folder / "password"
    password.write_text(PASSWORD)
    if account:
        shutil.chown(password, account["user"])
    data, bin_ = folder / "data", programs()
    try:
        words = ["--auth=scram-sha-256", "--username=respool", f"--pwfile={password}", "--encoding=UTF8", "--no-sync"]
        _run([str(bin_ / "initdb"), f"--pgdata={data}", "--locale=C.UTF-8", *words], account)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
        control = [str(bin_ / "pg_ctl"), f"--pgdata={data}"]
        _run([*control, "start", "--wait", f"--log={folder / 'log'}", f"--options={options}"], account)
        try:
            yield PostgresServer(port)
        finally:
            _run([*control, "stop", "--mode=immediate"], account)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _account(folder: Path) -> Mapping[str, Any]:
    """Return the account that the server runs under: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    try:
        shutil.chown(folder, "postgres")
    except LookupError as error:
        raise PostgresMissing("PostgreSQL does not run as root, and there is no account postgres") from error
    return {"user": "postgres", "group": "postgres", "extra_groups": []}


def _run(command: list[str], account: Mapping[str, Any]) -> None:
    # Its output goes to a file: the server inherits it, and would keep a pipe open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(command, cwd="/", stdout=output, stderr=output, timeout=60, check=False, **account)
        output.seek(0)
        if done.returncode:
            raise PostgresMissing(f"{command[0]} failed: {output.read().decode(errors='replace').strip()}")
