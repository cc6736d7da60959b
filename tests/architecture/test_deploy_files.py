# SPDX-License-Identifier: Apache-2.0
"""The files of deploy/ are accepted by the tools that read them, and agree with each other and with Sentinel."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sentinel import settings
from sentinel.sinks.http_access import HttpSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = Path(sys.executable).parent
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def run(*command, **other):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **other)


def loaded(path):
    return list(yaml.safe_load_all((DEPLOY / path).read_text(encoding="utf-8")))


# ---------------------------------------------------------------------------- agreement


@pytest.mark.parametrize("path", ["sentinel.yaml", "container/sentinel.yaml", "kubernetes/base/sentinel.yaml"])
def test_settings_that_are_shipped_are_settings(path):
    settings.load(DEPLOY / path)


def test_everything_speaks_of_the_port_that_is_the_default():
    port = str(HttpSettings().port)
    texts = {
        path: (DEPLOY / path).read_text(encoding="utf-8")
        for path in (
            "compose.yaml",
            "Dockerfile",
            "prometheus/prometheus.yml",
            "container/prometheus.yml",
            "kubernetes/base/service.yaml",
            "kubernetes/base/network.yaml",
            "kubernetes/base/raycluster.yaml",
        )
    }

    assert [path for path, text in texts.items() if port not in text] == []


def test_the_rules_of_the_operator_are_those_of_prometheus():
    done = run(sys.executable, DEPLOY / "kubernetes/build_rules.py", "--check")

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_compose_variant_of_the_scrape_configuration_differs_in_addresses_only():
    plain, composed = loaded("prometheus/prometheus.yml")[0], loaded("container/prometheus.yml")[0]
    composed["global"].pop("external_labels")
    composed["alerting"].pop("alert_relabel_configs")
    text = re.sub(r"(alertmanager|sentinel):(\d+)", r"127.0.0.1:\2", yaml.safe_dump(composed))

    assert yaml.safe_load(text) == plain


def test_what_compose_mounts_is_there():
    services = loaded("compose.yaml")[0]["services"]
    sources = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    paths = {source for source in sources if source.startswith(".")}

    assert len(paths) >= 8
    assert [path for path in paths if not (DEPLOY / path).resolve().exists()] == []


def test_published_ports_are_on_loopback():
    services = loaded("compose.yaml")[0]["services"]
    ports = [port for service in services.values() for port in service.get("ports", ())]

    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_what_the_image_copies_is_let_in():
    copied = re.findall(r"^COPY (?!\$)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]

    for path in " ".join(copied).split():
        assert (ROOT / path).exists(), path
        assert any(path == entry or path.startswith(f"{entry}/") for entry in let_in), path


def test_service_policy_and_pods_mean_the_same_node():
    (cluster,) = loaded("kubernetes/base/raycluster.yaml")
    (service,), (policy,) = loaded("kubernetes/base/service.yaml"), loaded("kubernetes/base/network.yaml")
    labels = {"ray.io/cluster": cluster["metadata"]["name"], "ray.io/group": "sentinel"}
    (group,) = [g for g in cluster["spec"]["workerGroupSpecs"] if g["groupName"] == "sentinel"]
    (port,) = [port for port in group["template"]["spec"]["containers"][0]["ports"] if port["name"] == "sentinel"]

    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert port["containerPort"] == HttpSettings().port
    assert group["replicas"] == group["maxReplicas"] == 1


def test_jobs_set_only_the_variables_that_sentinel_reads():
    text = (DEPLOY / "ray/runtime_env.yaml").read_text() + (DEPLOY / "kubernetes/example/rayjob.yaml").read_text()

    assert set(re.findall(r"SENTINEL_\w+", text)) == {"SENTINEL_RUN", "SENTINEL_CONFIG"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_stops_at_errors_and_says_what_it_is_for(script):
    text = script.read_text(encoding="utf-8")

    assert run("bash", "-n", script).returncode == 0
    assert text.startswith("#!/usr/bin/env bash\n# ")
    assert "set -euo pipefail" in text
    assert script.stat().st_mode & 0o111


# ---------------------------------------------------------------------------- the real tools


@pytest.mark.live
def test_the_dockerfile_passes_its_linter():
    done = run(TOOLS / "hadolint", DEPLOY / "Dockerfile")

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.live
def test_compose_keeps_to_the_specification_and_has_no_grave_weakness():
    schema = run(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    weaknesses = run(TOOLS / "compose-lint", "--fail-on", "high", DEPLOY / "compose.yaml")

    assert schema.returncode == 0, schema.stdout
    assert weaknesses.returncode == 0, weaknesses.stdout


@pytest.fixture
def units(tmp_path):
    """The units with programs that exist here, and the cluster's unit that one of them joins."""
    for path in UNITS:
        text = re.sub(r"/opt/sentinel/venv/bin/sentinel", "/bin/true", path.read_text(encoding="utf-8"))
        (tmp_path / path.name).write_text(text)
    (tmp_path / "ray.service").write_text("[Service]\nExecStart=/bin/true\n")
    return tmp_path


@pytest.mark.live
@pytest.mark.parametrize("name", [path.name for path in UNITS])
def test_systemd_accepts_a_unit_without_a_word(need, units, name):
    need("systemd-analyze")
    done = run("systemd-analyze", "verify", "--man=no", units / name)

    # Of other units that are installed on this machine nothing is said here.
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if name in line or str(units) in line] == []


@pytest.mark.live
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_hardened(need, path):
    """The scale of systemd: 0 is closed, 10 is open; below 3 counts as OK."""
    need("systemd-analyze")
    done = run("systemd-analyze", "security", "--offline=yes", "--threshold=25", "--no-pager", path)

    assert done.returncode == 0, done.stdout[-300:]


@pytest.mark.live
@pytest.mark.parametrize("folder", ["base", "prometheus-operator"])
def test_kustomize_makes_what_kubernetes_accepts(need, tmp_path, folder):
    """The kinds of Kubernetes itself; those of operators have no schema here (deploy/kubernetes/validate_crds.py)."""
    need("kubectl")
    done = run("kubectl", "kustomize", DEPLOY / "kubernetes" / folder)
    assert done.returncode == 0, done.stderr
    documents = list(yaml.safe_load_all(done.stdout))

    kinds = {document["kind"] for document in documents}
    assert kinds >= {"ConfigMap", "NetworkPolicy", "PersistentVolumeClaim", "RayCluster", "Service"}
    assert ("PrometheusRule" in kinds) == (folder == "prometheus-operator")
    for document in documents:
        if "monitoring.coreos.com" not in document["apiVersion"] and document["kind"] != "RayCluster":
            path = tmp_path / f"{document['kind']}.yaml"
            path.write_text(yaml.safe_dump(document))
            checked = run(TOOLS / "kubernetes-validate", "--strict", path)
            assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.live
def test_the_rules_that_the_operator_hands_on_are_accepted(need, tmp_path):
    need("promtool")
    (rules,) = loaded("kubernetes/prometheus-operator/rules.yaml")
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules["spec"]))

    assert run("promtool", "check", "rules", "--lint=all", "--lint-fatal", tmp_path / "rules.yml").returncode == 0


@pytest.mark.live
@pytest.mark.timeout(600)
def test_sentinel_installs_from_a_bundle_with_the_index_off(tmp_path):
    """As in an image without internet: a new environment, no index, the image's own script; the command line answers."""
    image, place = tmp_path / "image", tmp_path / "venv"
    made = run("bash", DEPLOY / "wheel_bundle.sh", image / "wheels", env=environment() | {"PYTHON": sys.executable})
    assert made.returncode == 0, made.stderr[-2000:]
    shutil.copytree(DEPLOY / "container", image / "deploy/container")
    shutil.copy(ROOT / "constraints.txt", image)
    run(sys.executable, "-m", "venv", place)
    inside = environment() | {"PATH": f"{place / 'bin'}:/usr/bin:/bin", "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    done = run("bash", "deploy/container/install.sh", cwd=image, env=inside)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-2000:]

    options = ("--dry-run", "--ignore-installed", "--no-index", "--find-links", "wheels", "--quiet")
    by_hand = run(place / "bin/python", "-m", "pip", "install", *options, "verl-sentinel", cwd=image, env=inside)
    read = run(place / "bin/sentinel", "replay", "--help", cwd=tmp_path, env=inside)
    sums = run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=image / "wheels")
    shutil.rmtree(place)
    assert (by_hand.returncode, read.returncode, sums.returncode) == (0, 0, 0), by_hand.stderr + read.stderr
    assert re.search(r"^sentinel \d+\.\d+|^\d+\.\d+", done.stdout.splitlines()[-1])


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
