"""How this process reaches object stores: credentials, endpoint and region, configured once for all libraries.

For S3 they are in the `[s3]` table of respool.toml or in the `AWS_*` variables. A value of the table takes precedence;
credentials are taken from one of the two places as a whole. `fsspec_options`, `delta_options` and `hadoop_conf` return
them in the words of each library. For Google and Azure, fsspec and delta-rs read the variables of the store's own tools
(GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME and _KEY), and Spark gets the same. The names of a store's
URLs are in `respool.locations`.

A process uses one table at a time: that of the settings that were used last (`use`).
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from respool.errors import SettingsError
from respool.locations import store_of
from respool.settings import Settings

# A store that does not answer is reported within these times; each library repeats a request.
_CONNECT = 5  # seconds to connect
_READ = 30  # seconds between two packets of an answer; a copy inside the store sends none until it is done
_ATTEMPTS = 3
_CONNECTIONS = 32  # at the same time

_KEYS = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "profile": "AWS_PROFILE",
}
_PROFILES = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
_current = Settings()


def use(settings: Settings) -> Settings:
    """Let this process reach object stores as these settings say from now on; return them."""
    global _current
    _current = settings
    return settings


@dataclass(frozen=True)
class S3Access:
    """How S3, or a store that is compatible with it, is reached; None for what the libraries find on their own.

    Attributes:
        endpoint: The address of a store that is not Amazon's, `http://…` or `https://…`.
        region: The region of the buckets.
        path_style: Whether the bucket is in the path of a URL, not in the name of the host.
        access_key: The id of the key.
        secret_key: The key itself.
        session_token: The token of temporary credentials.
        profile: The profile of ~/.aws that has the credentials.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether requests are not encrypted."""
        return (self.endpoint or "").startswith("http://")


def s3_access(table: Mapping[str, str], environ: Mapping[str, str]) -> S3Access:
    """Return how S3 is reached.

    Args:
        table: The `[s3]` table.
        environ: The variables.
    """
    endpoint, where = table.get("endpoint"), "endpoint in the [s3] table"
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if not endpoint and environ.get(name):
            endpoint, where = environ[name], name
    if endpoint and re.fullmatch(r"https?://[^/?#\s]+/?", endpoint) is None:
        raise SettingsError(f"{where} is {endpoint!r}; expected an address such as http://127.0.0.1:9000.")
    region = table.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    # A server on one machine has no host name for each bucket.
    style = table.get("path_style", "true" if endpoint else "false")
    if style not in ("true", "false"):
        raise SettingsError(f"path_style in the [s3] table is {style!r}; expected true or false.")
    keys = table if any(name in table for name in _KEYS) else {name: environ.get(_KEYS[name], "") for name in _KEYS}
    if bool(keys.get("access_key")) != bool(keys.get("secret_key")):
        lacking = "access_key (AWS_ACCESS_KEY_ID)" if keys.get("secret_key") else "secret_key (AWS_SECRET_ACCESS_KEY)"
        raise SettingsError(f"The credentials for S3 have no {lacking}. Set both the access key and the secret key.")
    if (
        keys is table
        and table.get("access_key")
        and not table.get("session_token")
        and environ.get("AWS_SESSION_TOKEN")
    ):
        raise SettingsError(
            "The variable AWS_SESSION_TOKEN is set, and belongs to other credentials than those of the [s3] table; "
            "delta-rs would use both together. Unset it: env -u AWS_SESSION_TOKEN respool …"
        )
    access_key, secret_key, token, profile = (keys.get(name) or None for name in _KEYS)
    return S3Access(
        endpoint=endpoint.rstrip("/") if endpoint else None,
        region=region or ("us-east-1" if endpoint else None),  # what other stores expect in a signature
        path_style=style == "true",
        access_key=access_key,
        secret_key=secret_key,
        session_token=token if access_key else None,
        profile=None if access_key else profile,
    )


def current_s3() -> S3Access:
    """Return how this process reaches S3 now."""
    return s3_access(_current.s3, os.environ)


def fsspec_options(url: str) -> dict[str, Any]:
    """Return the arguments of fsspec's filesystem for a URL in canonical form."""
    if store_of(url) != "s3":
        return {}
    access = current_s3()
    client = {"region_name": access.region} if access.region else {}
    config = {
        "connect_timeout": _CONNECT,
        "read_timeout": _READ,
        "max_pool_connections": _CONNECTIONS,
        "retries": {"mode": "standard", "total_max_attempts": _ATTEMPTS},
        "s3": {"addressing_style": "path" if access.path_style else "auto"},
    }
    keys = {"key": access.access_key, "secret": access.secret_key, "token": access.session_token}
    names = {"endpoint_url": access.endpoint, "profile": access.profile}
    given = {name: value for name, value in (keys | names).items() if value}
    return {**given, "client_kwargs": client, "config_kwargs": config}


def delta_options(url: str) -> dict[str, str]:
    """Return delta-rs's options for a URL in canonical form."""
    options = {"max_retries": str(_ATTEMPTS), "retry_timeout": f"{_READ}s", "connect_timeout": f"{_CONNECT}s"}
    if store_of(url) != "s3":
        return options
    access = current_s3()
    named = {
        "aws_endpoint": access.endpoint if access.path_style else _host_of(url, access.endpoint),
        "aws_region": access.region,
        "aws_access_key_id": access.access_key,
        "aws_secret_access_key": access.secret_key,
        "aws_session_token": access.session_token,
        "aws_profile": access.profile,
        "aws_virtual_hosted_style_request": None if access.path_style else "true",
        "allow_http": "true" if access.is_plain else None,
    }
    return options | {name: value for name, value in named.items() if value}


def _host_of(url: str, endpoint: str | None) -> str | None:
    """Return the address of a bucket that has a host name of its own; None on Amazon S3."""
    scheme, _, host = (endpoint or "").partition("://")
    return f"{scheme}://{url.partition('://')[2].partition('/')[0]}.{host}" if host else None


def hadoop_conf(settings: Settings, environ: Mapping[str, str], stores: Iterable[str]) -> dict[str, str]:
    """Return Spark's settings for object stores; some are secrets, which Spark redacts wherever it shows settings.

    Args:
        settings: The settings, with the `[s3]` table.
        environ: The variables.
        stores: The canonical schemes of the stores in use.
    """
    conf: dict[str, str | None] = {}
    for store in stores:
        conf |= {"s3": _hadoop_s3, "gs": _hadoop_gs, "abfs": _hadoop_abfs}[store](settings, environ)
    return {f"spark.hadoop.{name}": value for name, value in conf.items() if value}


def _hadoop_s3(settings: Settings, environ: Mapping[str, str]) -> dict[str, str | None]:
    access = s3_access(settings.s3, environ)
    return {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",  # for a location that was recorded as s3://
        "fs.s3a.endpoint": access.endpoint,
        "fs.s3a.endpoint.region": access.region,
        "fs.s3a.path.style.access": "true" if access.path_style else None,
        "fs.s3a.connection.ssl.enabled": "false" if access.is_plain else None,
        "fs.s3a.access.key": access.access_key,
        "fs.s3a.secret.key": access.secret_key,
        "fs.s3a.session.token": access.session_token,
        # Of the SDK that s3a uses; it reads the profile's name from AWS_PROFILE.
        "fs.s3a.aws.credentials.provider": _PROFILES if access.profile else None,
        "fs.s3a.attempts.maximum": str(_ATTEMPTS),
        "fs.s3a.connection.establish.timeout": f"{_CONNECT}s",
    }


def _hadoop_gs(settings: Settings, environ: Mapping[str, str]) -> dict[str, str | None]:
    key = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    return {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE" if key else None,
        "fs.gs.auth.service.account.json.keyfile": key,
    }


def _hadoop_abfs(settings: Settings, environ: Mapping[str, str]) -> dict[str, str | None]:
    account, key = environ.get("AZURE_STORAGE_ACCOUNT_NAME"), environ.get("AZURE_STORAGE_ACCOUNT_KEY")
    return {f"fs.azure.account.key.{account}.dfs.core.windows.net": key} if account else {}
