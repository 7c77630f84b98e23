"""What a decoder gets from a schema registry, by the real protocol, without a JVM."""

import pytest

from respool.decoders.registry import SchemaRegistry
from respool.errors import PipelineError, RegistryUnreachable
from support import schema_registry

ORDER = '{"type":"record","name":"Order","fields":[{"name":"shop","type":"string"}]}'


def test_a_schema_is_fetched_by_its_subject_and_version() -> None:
    with schema_registry.running() as server:
        server.register("orders-value", ORDER)
        server.register("orders-value", ORDER.replace("shop", "store"))
        registry = SchemaRegistry(server.url)
        assert registry.schema("orders-value", 1) == ORDER
        assert "store" in registry.schema("orders-value")
        with pytest.raises(PipelineError, match=r"has no schema orders-value, version 3\. Check the name"):
            registry.schema("orders-value", 3)
        with pytest.raises(PipelineError, match="has no schema other, version latest"):
            registry.schema("other")


def test_a_schema_is_found_by_its_id_with_the_schemas_that_it_refers_to() -> None:
    with schema_registry.running() as server:
        shop = '{"type":"record","name":"Shop","fields":[]}'
        server.register("shop", shop)
        reference = {"name": "Shop", "subject": "shop", "version": 1}
        number = server.register("orders-value", ORDER, references=[reference])
        registry = SchemaRegistry(server.url)
        schema = registry.find(number, None)
        assert schema is not None
        assert (schema.schema_str, schema.schema_type) == (ORDER, "AVRO")
        assert [part.schema_str for part in registry.referenced(schema)] == [shop]
        assert registry.find(17, None) is None


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_registry_that_fails_may_answer_later(status: int) -> None:
    with schema_registry.running() as server:
        server.status = status
        with pytest.raises(RegistryUnreachable, match=f"does not answer: HTTP {status}") as caught:
            SchemaRegistry(server.url, {"max.retries": 0}).find(1, None)
        assert caught.value.url == server.url


def test_a_registry_that_does_not_run_may_answer_later() -> None:
    with schema_registry.running() as server:
        pass
    with pytest.raises(RegistryUnreachable, match="does not answer: ConnectError"):
        SchemaRegistry(server.url, {"max.retries": 0}).find(1, None)


def test_credentials_are_sent_and_never_shown() -> None:
    with schema_registry.running() as server:
        server.user = "alice:pass-word"
        server.register("orders-value", ORDER)
        registry = SchemaRegistry(server.url, {"basic.auth.user.info": "alice:pass-word"})
        assert registry.schema("orders-value") == ORDER
        assert "pass-word" not in repr(registry)
        assert registry == SchemaRegistry(server.url)
        assert hash(registry) == hash(SchemaRegistry(server.url))
        with pytest.raises(PipelineError, match=r"refuses the credentials \(HTTP 401\)"):
            SchemaRegistry(server.url).schema("orders-value")
        with pytest.raises(PipelineError, match=r"The options of the schema registry .* are not valid: .*basic\.autth"):
            SchemaRegistry(server.url, {"basic.autth": "alice"}).schema("orders-value")


@pytest.mark.parametrize("url", ["registry:8081", "http://alice:secret@registry:8081", "http://registry:8081/ x", ""])
def test_an_address_that_cannot_be_used_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(PipelineError, match="must be http://HOST:PORT") as caught:
        SchemaRegistry(url)
    assert "secret" not in str(caught.value)
