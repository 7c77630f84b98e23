"""One set of options for both Kafka clients."""

from pathlib import Path

import pytest

from respool.errors import SettingsError
from respool.kafka.cluster import KafkaCluster, admin_client, check_embedded

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def kafka(**options: str) -> KafkaCluster:
    """A Kafka whose options are named with _ in place of dots."""
    return KafkaCluster("kafka:9092", {name.replace("_", "."): value for name, value in options.items()})


def test_without_options_both_get_the_address() -> None:
    assert KafkaCluster("a:1,b:2").for_client() == {"bootstrap.servers": "a:1,b:2"}
    assert KafkaCluster("a:1,b:2").for_spark() == {"kafka.bootstrap.servers": "a:1,b:2"}


def test_options_of_both_clients_go_to_both() -> None:
    cluster = kafka(
        security_protocol="SSL", client_id="visits", ssl_key_password="secret", ssl_keystore_location="k.p12"
    )
    given = {
        "security.protocol": "SSL",
        "client.id": "visits",
        "ssl.key.password": "secret",
        "ssl.keystore.location": "k.p12",
        "bootstrap.servers": "kafka:9092",
    }
    assert cluster.for_client() == given
    assert cluster.for_spark() == {f"kafka.{name}": value for name, value in given.items()}


def test_the_address_is_the_requested_one() -> None:
    cluster = kafka(bootstrap_servers="other:9092")
    assert cluster.for_client() == {"bootstrap.servers": "kafka:9092"}
    assert cluster.for_spark() == {"kafka.bootstrap.servers": "kafka:9092"}


@pytest.mark.parametrize(
    "name",
    [
        "sasl.login.callback.handler.class",
        "sasl.oauthbearer.scope.claim.name",
        "ssl.truststore.password",
        "ssl.keystore.type",
        "ssl.engine.factory.class",
        "max.request.size",
        "buffer.memory",
    ],
)
def test_options_of_java_alone_go_to_spark_alone(name: str) -> None:
    cluster = KafkaCluster("kafka:9092", {name: "1"})
    assert cluster.for_client() == {"bootstrap.servers": "kafka:9092"}
    assert cluster.for_spark() == {"kafka.bootstrap.servers": "kafka:9092", f"kafka.{name}": "1"}
    admin_client(cluster)


@pytest.mark.parametrize(
    "name",
    ["sasl.password", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.scope", "ssl.key.pem", "ssl.ca.certificates"],
)
def test_options_of_librdkafka_alone_go_to_it_alone(name: str) -> None:
    cluster = KafkaCluster("kafka:9092", {name: "x"})
    assert cluster.for_client() == {"bootstrap.servers": "kafka:9092", name: "x"}
    assert cluster.for_spark() == {"kafka.bootstrap.servers": "kafka:9092"}


def test_both_clients_get_the_token_endpoint() -> None:
    cluster = kafka(sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token_endpoint_url="https://login")
    assert cluster.for_client()["sasl.oauthbearer.token.endpoint.url"] == "https://login"
    assert cluster.for_spark()["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login"


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_user_and_a_password_become_a_login_of_java(name: str, mechanism: str, module: str) -> None:
    cluster = KafkaCluster("kafka:9092", {name: mechanism, "sasl.username": "alice", "sasl.password": "secret"})
    assert cluster.for_client() == {
        "bootstrap.servers": "kafka:9092",
        name: mechanism,
        "sasl.username": "alice",
        "sasl.password": "secret",
    }
    assert cluster.for_spark() == {
        "kafka.bootstrap.servers": "kafka:9092",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="alice" password="secret";',
    }


PASSWORDS = ["secret", 'say "no"', "back\\slash", '\\"', "trailing\\", "a;b=c", "it's", ""]


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_login_of_java_becomes_a_user_and_a_password(password: str) -> None:
    there = kafka(sasl_mechanism="PLAIN", sasl_username="alice", sasl_password=password).for_spark()
    back = kafka(sasl_mechanism="PLAIN", sasl_jaas_config=there["kafka.sasl.jaas.config"])
    assert back.for_client() == {
        "bootstrap.servers": "kafka:9092",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
    }
    assert back.for_spark()["kafka.sasl.jaas.config"] == there["kafka.sasl.jaas.config"]


def test_quotes_and_backslashes_of_a_password_are_escaped() -> None:
    options = kafka(sasl_mechanism="PLAIN", sasl_username="alice", sasl_password='a"b\\c').for_spark()
    assert options["kafka.sasl.jaas.config"] == f'{PLAIN} required username="alice" password="a\\"b\\\\c";'


def test_a_java_login_next_to_a_user_is_left_unchanged() -> None:
    cluster = kafka(sasl_mechanism="GSSAPI", sasl_username="alice", sasl_jaas_config="Krb5LoginModule required;")
    assert cluster.for_spark()["kafka.sasl.jaas.config"] == "Krb5LoginModule required;"
    assert cluster.for_client() == {
        "bootstrap.servers": "kafka:9092",
        "sasl.mechanism": "GSSAPI",
        "sasl.username": "alice",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "has sasl.username with no sasl.mechanism; expected PLAIN or SCRAM-SHA-256"),
        ({"sasl.mechanism": "GSSAPI"}, "has sasl.username with sasl.mechanism GSSAPI.*give sasl.jaas.config"),
    ],
)
def test_a_user_without_a_mechanism_for_passwords_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        KafkaCluster("kafka:9092", {"sasl.username": "alice", **options}).for_spark()


def test_pem_files_become_stores_of_java(tmp_path: Path) -> None:
    (tmp_path / "certificate.pem").write_text("the certificate")
    (tmp_path / "key.pem").write_text("the key")
    cluster = kafka(
        security_protocol="SSL",
        ssl_ca_location="/etc/ca.pem",
        ssl_certificate_location=str(tmp_path / "certificate.pem"),
        ssl_key_location=str(tmp_path / "key.pem"),
        ssl_key_password="secret",
    )
    assert cluster.for_spark() == {
        "kafka.bootstrap.servers": "kafka:9092",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "the certificate",
        "kafka.ssl.keystore.key": "the key",
        "kafka.ssl.key.password": "secret",
    }
    assert cluster.for_client() == {**cluster.options, "bootstrap.servers": "kafka:9092"}


def test_pem_text_becomes_stores_of_java() -> None:
    options = kafka(
        ssl_ca_pem="the authority", ssl_certificate_pem="the certificate", ssl_key_pem="the key"
    ).for_spark()
    assert options == {
        "kafka.bootstrap.servers": "kafka:9092",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "the authority",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "the certificate",
        "kafka.ssl.keystore.key": "the key",
    }


def test_java_key_stores_next_to_pem_files_are_left_unchanged() -> None:
    cluster = kafka(
        ssl_ca_location="/etc/ca.pem",
        ssl_truststore_location="/etc/trust.jks",
        ssl_certificate_location="/nowhere/certificate.pem",
        ssl_keystore_location="/etc/key.p12",
    )
    assert cluster.for_spark() == {
        "kafka.bootstrap.servers": "kafka:9092",
        "kafka.ssl.truststore.location": "/etc/trust.jks",
        "kafka.ssl.keystore.location": "/etc/key.p12",
    }
    assert cluster.for_client()["ssl.ca.location"] == "/etc/ca.pem"


def test_a_trust_store_of_java_is_translated_if_it_is_pem_and_refused_if_not() -> None:
    cluster = kafka(ssl_truststore_type="PEM", ssl_truststore_location="/etc/ca.pem")
    assert cluster.for_client() == {"bootstrap.servers": "kafka:9092", "ssl.ca.location": "/etc/ca.pem"}
    with pytest.raises(SettingsError, match=r"only Java can read. Name the certificate authority in ssl\.ca\.location"):
        kafka(ssl_truststore_location="/etc/trust.jks").for_client()


def test_a_client_certificate_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"names /nowhere\.pem, which cannot be read: No such file"):
        kafka(ssl_certificate_location="/nowhere.pem").for_spark()
    file = tmp_path / "certificate.pem"
    file.write_text("the certificate")
    with pytest.raises(SettingsError, match=r"a client certificate but no ssl\.key\.location. Add it"):
        kafka(ssl_certificate_location=str(file)).for_spark()
    file.write_bytes(b"\x30\x82\xff")
    with pytest.raises(SettingsError, match="is not a PEM file"):
        kafka(ssl_certificate_location=str(file)).for_spark()


def test_no_check_of_host_names_is_said_in_the_words_of_each() -> None:
    name = "ssl.endpoint.identification.algorithm"
    for cluster in (KafkaCluster("kafka:9092", {name: ""}), KafkaCluster("kafka:9092", {name: "none"})):
        assert cluster.for_client()[name] == "none"
        assert cluster.for_spark()[f"kafka.{name}"] == ""


def test_no_check_of_certificates_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"which Spark's client cannot do. Name the certificate authority"):
        kafka(enable_ssl_certificate_verification="false").for_spark()
    assert kafka(enable_ssl_certificate_verification="true").for_spark() == {"kafka.bootstrap.servers": "kafka:9092"}


def test_a_misspelt_option_is_reported() -> None:
    with pytest.raises(SettingsError, match=r'No such configuration property: "sasl.mecanism".*\[kafka\] table'):
        admin_client(kafka(sasl_mecanism="PLAIN"))


def test_a_kafka_never_shows_a_secret() -> None:
    shown = repr(kafka(sasl_password="hunter2"))
    assert "kafka:9092" in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "servers", ["localhost:9092", "a:1,b:2", "a:1, b:2", "10.0.0.1:9092", "[::1]:9092", "SSL://kafka.example.com:9093"]
)
def test_an_address_of_kafka_is_accepted(servers: str) -> None:
    assert KafkaCluster(servers).bootstrap_servers == servers


@pytest.mark.parametrize(
    "servers", ["localhost", "", "a:1,", "a:1,b", "a:", "a:0", "a:65536", "a:x", ":9092", "a b:1", "::1"]
)
def test_an_address_that_no_client_could_use_is_refused(servers: str) -> None:
    with pytest.raises(SettingsError, match=r"The Kafka address '.*' is not HOST:PORT; expected for example \S+:9092"):
        KafkaCluster(servers)


def test_the_embedded_broker_refuses_what_it_cannot_do() -> None:
    check_embedded({"socket.timeout.ms": "1000", "security.protocol": "plaintext"})
    for name in ("security.protocol", "sasl.mechanism", "ssl.ca.location"):
        with pytest.raises(SettingsError, match=rf"\[kafka\] of respool.toml has {name}, but the embedded broker"):
            check_embedded({name: "SSL"})


def test_a_key_file_without_an_end_is_not_read() -> None:
    cluster = KafkaCluster("a:1", {"ssl.certificate.location": "/dev/zero", "ssl.key.location": "/dev/zero"})
    with pytest.raises(SettingsError, match=r"names /dev/zero, which cannot be read: .*a regular file"):
        cluster.for_spark()
