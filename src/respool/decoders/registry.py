"""Schema registries: what a decoder gets from them, through confluent-kafka's client.

The JVM asks for each schema once, when it meets the schema's id: see `respool.Schemas` in `spark/java`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from respool.errors import MachineError, PipelineError, RegistryUnreachable

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

_TIMEOUT = 10  # seconds
_CLIENT = {"timeout": _TIMEOUT, "max.retries": 1}  # a run waits, and asks again later
_REFUSED = (401, 403)
_CLIENTS: dict[str, tuple["SchemaRegistry", Callable[["Schema"], str]]] = {}


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry, such as Confluent's, Karapace or Apicurio.

    Attributes:
        url: Its address, without a user and a password.
        options: Further settings of confluent-kafka's client, such as `basic.auth.user.info` or `ssl.ca.location`.
            Read secrets from the environment: they are neither recorded nor compared.

    >>> respool.SchemaRegistry("https://registry.example.com", {"ssl.ca.location": "/etc/ca.pem"})
    SchemaRegistry(url='https://registry.example.com')
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse an address that would fail later."""
        if not re.fullmatch(r"https?://[^/\s@]+(/[^\s@]*)?", self.url):
            raise PipelineError(
                "The address of a schema registry must be http://HOST:PORT or https://HOST, without a user and a "
                "password; these are given as options={'basic.auth.user.info': 'USER:PASSWORD'}."
            )

    def schema(self, subject: str, version: int | Literal["latest"] = "latest") -> str:
        """Return the text of a schema, to make a decoder of. With a number, a pipeline reads the same one every time.

        Args:
            subject: The subject, such as `orders-value`.
            version: Its version.

        Raises:
            PipelineError: The registry has no such schema, or refuses.
            RegistryUnreachable: It does not answer.
        """
        schema = self._version(subject, version)
        if schema is None:
            raise PipelineError(f"The registry {self.url} has no schema {subject}, version {version}. Check the name.")
        return str(schema.schema_str)

    def serve(self, kind: str, text_of: "Callable[[Schema], str]") -> str:
        """Let Spark's JVM ask this registry for schemas, and return the name under which it does.

        Args:
            kind: The type of the schemas, to tell decoders of one registry apart.
            text_of: Returns what the JVM needs of a schema; empty for a schema of another type.
        """
        from respool.spark.internals import serve_schemas

        options = json.dumps(dict(self.options), sort_keys=True, default=repr)
        name = f"{self.url} {kind} {hashlib.sha256(options.encode()).hexdigest()[:12]}"
        _CLIENTS[name] = (self, text_of)
        serve_schemas(_find)
        return name

    def find(self, number: int, fmt: str | None) -> "Schema | None":
        """Return the schema of an id; None when the registry has none."""
        return self._ask(lambda client: client.get_schema(number, fmt=fmt))

    def referenced(self, schema: "Schema") -> "list[Schema]":
        """Return the schemas that a schema refers to, each after those that it refers to itself."""
        schemas: list[Schema] = []
        for reference in schema.references or ():
            subject, version = str(reference.subject), int(reference.version or -1)
            other = self._version(subject, version)
            if other is not None:
                schemas += [item for item in (*self.referenced(other), other) if item not in schemas]
        return schemas

    def _version(self, subject: str, version: int | Literal["latest"]) -> "Schema | None":
        return self._ask(lambda client: client.get_version(subject, version).schema)

    def _ask(self, ask: "Callable[[SchemaRegistryClient], Schema]") -> "Schema | None":
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError
        except ImportError as error:
            raise MachineError(
                f"The client of schema registries is not installed: {error}. Run: pip install 'respool[registry]'"
            ) from error
        try:
            with SchemaRegistryClient({"url": self.url, **_CLIENT, **self.options}) as client:
                return ask(client)
        except SchemaRegistryError as error:
            if error.http_status_code == 404:
                return None
            if error.http_status_code in _REFUSED:
                raise PipelineError(
                    f"The schema registry {self.url} refuses the credentials (HTTP {error.http_status_code}). Check "
                    "the options of SchemaRegistry."
                ) from None
            raise RegistryUnreachable(self.url, f"HTTP {error.http_status_code}") from error
        except ValueError as error:
            raise PipelineError(f"The options of the schema registry {self.url} are not valid: {error}") from None
        except Exception as error:  # whatever the client's HTTP library raises for a connection
            raise RegistryUnreachable(self.url, f"{type(error).__name__}: {error}") from error


def _find(name: str, number: int) -> str:
    """Answer the JVM as `respool.SchemaSource` says; an exception would lose its class there."""
    try:
        registry, text_of = _CLIENTS[name]
        schema = registry.find(number, "serialized" if " PROTOBUF " in name else None)
        return "?" if schema is None else f"={text_of(schema)}"
    except RegistryUnreachable as error:
        return f"!{error}"
    except Exception as error:
        return f"-{error}"
