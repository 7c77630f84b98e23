"""The files of `deploy/`: valid for Kubernetes' own schemas, consistent with each other, and without secrets."""

import copy
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from respool import settings
from respool.cli.app import app
from respool.times import parse_duration

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.31", "1.37")  # of Kubernetes: the oldest that is supported, and the newest known


def documents() -> Iterator[dict[str, Any]]:
    for file in MANIFESTS:
        yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))


def manifest(kind: str) -> dict[str, Any]:
    [document] = [document for document in documents() if document["kind"] == kind]
    return document


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = manifest("StatefulSet")["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    [only] = pod()["containers"]
    return dict(only)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_fits_the_schema_of_kubernetes(version: str) -> None:
    assert {document["kind"] for document in documents()} == {"ConfigMap", "Service", "StatefulSet"}
    for document in documents():
        kubernetes_validate.validate(document, version, strict=True)


def probe(spec: dict[str, Any]) -> dict[str, Any]:
    liveness: dict[str, Any] = spec["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
    return liveness


@pytest.mark.parametrize(
    "spoil",
    [
        lambda spec: spec["spec"].pop("selector"),
        lambda spec: spec["spec"].update(replicas="one"),
        lambda spec: probe(spec).update(periodSecond=3),
        lambda spec: probe(spec)["httpGet"].pop("port"),
    ],
)
def test_a_wrong_manifest_does_not_fit(spoil: Callable[[dict[str, Any]], object]) -> None:
    wrong = copy.deepcopy(manifest("StatefulSet"))
    spoil(wrong)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_a_checkpoint_has_one_writer() -> None:
    spec = manifest("StatefulSet")["spec"]
    assert spec["replicas"] == 1
    [claim] = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_the_arguments_are_those_of_the_command() -> None:
    run = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    args = list(container()["args"])
    assert args.pop(0) == "run"
    parsed = run.make_context("run", args).params
    assert list(parsed["pipelines"]) == ["visit-counts", "visits-archive"]
    assert parsed["health"] == "$(POD_IP):8080"
    assert {entry["name"] for entry in container()["env"]} >= {"POD_IP"}


def test_a_stop_fits_into_the_grace_period() -> None:
    args = container()["args"]
    batch = parse_duration(args[args.index("--stop-within") + 1]).total_seconds()
    spark = 30  # seconds: what the JVM has to end, and to be ended
    assert batch + spark < pod()["terminationGracePeriodSeconds"]


def test_the_probes_ask_the_port_that_the_run_serves() -> None:
    [port] = container()["ports"]
    args = container()["args"]
    assert args[args.index("--health") + 1] == f"$(POD_IP):{port['containerPort']}"
    for name, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container()[name]["httpGet"] == {"path": path, "port": port["name"]}


def test_the_container_has_no_rights() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["automountServiceAccountToken"] is False
    rights = container()["securityContext"]
    assert rights["allowPrivilegeEscalation"] is False
    assert rights["readOnlyRootFilesystem"] is True
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert set(container()["resources"]["limits"]) == {"memory"}
    written = {mount["mountPath"] for mount in container()["volumeMounts"] if not mount.get("readOnly")}
    assert written == {"/var/lib/respool", "/tmp"}


def test_the_configuration_is_read_and_takes_its_secret_from_a_variable(tmp_path: Path) -> None:
    (tmp_path / "respool.toml").write_text(manifest("ConfigMap")["data"]["respool.toml"], encoding="utf-8")
    [secret] = [entry for entry in container()["env"] if "secretKeyRef" in entry.get("valueFrom", {})]
    loaded = settings.load(environ={secret["name"]: "very secret"}, folder=tmp_path)
    assert loaded.kafka["sasl.password"] == "very secret"
    assert loaded.log_format == "json"


def test_no_file_holds_a_secret() -> None:
    assert "Secret" not in {document["kind"] for document in documents()}
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            passwords = re.findall(r"(?i)(?:password|secret|token)\W+=\s*\"?([^\s\"]+)", file.read_text("utf-8"))
            assert all(value.startswith("env:") for value in passwords), file


def instructions() -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_is_built_from_pinned_parts() -> None:
    bases = {line.split()[1] for line in instructions() if line.startswith("FROM ")}
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base) for base in bases), bases
    installed = [
        step for line in instructions() for step in line.split("&&") if re.search(r"pip (install|wheel)", step)
    ]
    assert installed
    assert all("--require-hashes" in step or "--no-index" in step for step in installed), installed
    for line in instructions():
        if line.startswith("COPY ") and "--from" not in line:
            assert all((DEPLOY.parent / source).exists() for source in line.split()[1:-1]), line


def test_the_image_runs_as_the_user_of_the_manifest() -> None:
    users = [line.split()[1] for line in instructions() if line.startswith("USER ")]
    user = pod()["securityContext"]
    assert users == [f"{user['runAsUser']}:{user['runAsGroup']}"]
    assert instructions().index(f"USER {users[0]}") < instructions().index('ENTRYPOINT ["tini", "--", "respool"]')


def test_only_what_the_image_needs_is_sent_to_its_build() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith(("#", "!"))] == ["*", "**/__pycache__"]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64", "aarch64", "arm64"), reason="no hadolint for it")
def test_hadolint_accepts_the_dockerfile() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    ran = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
