"""The manifests of deploy/kubernetes are what the API's own schemas allow."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

validate = pytest.importorskip("kubernetes_validate")
yaml = pytest.importorskip("yaml")

PLACE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.27", "1.33", "1.37")
KINDS = {
    "Namespace",
    "Service",
    "StatefulSet",
    "Deployment",
    "PodDisruptionBudget",
    "NetworkPolicy",
}
FILES = sorted(path.name for path in PLACE.glob("*.yaml") if path.name != "kustomization.yaml")


def manifests(text: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(text) if found]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", FILES)
def test_every_manifest_is_valid(file: str, version: str) -> None:
    for manifest in manifests((PLACE / file).read_text()):
        validate.validate(manifest, version, strict=True)


def test_the_kustomization_names_every_file_and_nothing_else() -> None:
    kustomization = yaml.safe_load((PLACE / "kustomization.yaml").read_text())
    assert sorted(kustomization["resources"]) == FILES
    found = {m["kind"] for file in FILES for m in manifests((PLACE / file).read_text())}
    assert found == KINDS


def test_no_port_of_the_learner_is_open_to_every_pod() -> None:
    policies = {m["metadata"]["name"]: m["spec"] for m in manifests(_text("network.yaml"))}
    assert all(rule["from"] for rule in policies["learner"]["ingress"])
    ports = {str(port["port"]) for rule in policies["learner"]["ingress"] for port in rule["ports"]}
    assert ports == {"5555", "metrics"}


def test_a_hung_process_makes_the_learner_unready_and_restarts_no_pod() -> None:
    (learner,) = (m for m in manifests(_text("learner.yaml")) if m["kind"] == "StatefulSet")
    container = learner["spec"]["template"]["spec"]["containers"][0]
    assert "--alive" in container["livenessProbe"]["exec"]["command"]
    assert "--alive" not in container["readinessProbe"]["exec"]["command"]
    (service,) = manifests(_text("service.yaml"))
    assert service["spec"]["publishNotReadyAddresses"] is True  # actors reach one that is unready


def _text(file: str) -> str:
    return (PLACE / file).read_text()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_what_kustomize_makes_of_them_is_valid(tmp_path: Path) -> None:
    from vedette_services.net.keys import make_keys

    place = tmp_path / "kubernetes"
    shutil.copytree(PLACE, place, ignore=shutil.ignore_patterns("keys"))
    make_keys(place / "keys", ["actors"])
    words = ["kubectl", "kustomize", str(place)]
    made = manifests(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)
    assert {manifest["kind"] for manifest in made} == KINDS | {"ConfigMap", "Secret"}
    for manifest in made:
        validate.validate(manifest, VERSIONS[-1], strict=True)
        assert manifest["metadata"].get("namespace", "vedette") == "vedette"
    secrets = {m["metadata"]["name"]: m["data"] for m in made if m["kind"] == "Secret"}
    assert not any(
        "learner.secret.toml" in data for name, data in secrets.items() if "actors" in name
    )
