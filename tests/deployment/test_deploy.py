"""The files of docs/deploy: complete, alike where they say the same, and accepted by the programs that read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.settings import Settings
from app.config.sources import OTHER_VARIABLES
from routes.server import DRAIN_S, KEEP_ALIVE_S
from tests import ROOT
from tests.support.documented.routes import ROUTES

DEPLOY = ROOT / "docs" / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
# Without these bubblewrap makes no box.
OF_BUBBLEWRAP = {
    "clone",
    "clone3",
    "unshare",
    "mount",
    "umount2",
    "pivot_root",
    "sethostname",
    "openat2",
    "seccomp",
    "prctl",
}
LIMIT_S = 60


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: each instruction, and its words in one line."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


def test_every_variable_is_a_setting() -> None:
    known = {f"DRAGOMAN_{name.upper()}" for name in Settings.model_fields} | set(OTHER_VARIABLES)
    named = {
        (path.name, name)
        for path in DEPLOY.rglob("*")
        if path.is_file()
        for name in re.findall(r"\bDRAGOMAN_[A-Z_]+\b", path.read_text())
    }
    assert len(named) > 10
    assert {(path, name) for path, name in named if name not in known} == set()


def test_the_image_is_made_of_files_that_are_there() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    sources = {
        source
        for name, words in instructions()
        if name == "COPY" and not words.startswith("--from")
        for source in words.split()[:-1]
    }
    assert {"app", "routes", "pyproject.toml"} <= sources
    assert [one for one in sources if not (ROOT / one).exists()] == []
    assert "*" in ignored
    assert {f"!{one}" for one in sources} == {line for line in ignored if line.startswith("!")}


def test_the_image_runs_as_an_account_without_rights_and_reports_its_health() -> None:
    found = instructions()
    stages = [at for at, (name, _) in enumerate(found) if name == "FROM"]
    last = dict(found[stages[-1] :])
    assert int(last["USER"].partition(":")[0]) > 0
    paths = {route.path for route in ROUTES}
    assert set(re.findall(r"/livez|/readyz", last["HEALTHCHECK"])) == {"/livez"} <= paths
    assert json.loads(last["HEALTHCHECK"][last["HEALTHCHECK"].index("[") :])[0] == "python3"
    assert json.loads(last["ENTRYPOINT"])[-1] == "dragoman"


def test_the_system_calls_of_the_sandbox_are_not_denied() -> None:
    profile = json.loads((DEPLOY / "seccomp.json").read_text())
    denied = {name for row in profile["syscalls"] for name in row["names"]}
    assert not denied & OF_BUBBLEWRAP
    assert {"bpf", "init_module", "kexec_load", "keyctl", "open_by_handle_at", "setns"} <= denied


def test_compose_names_what_it_has() -> None:
    [compose] = documents(DEPLOY / "compose.yaml")
    services = compose["services"]
    replicas = {name: one for name, one in services.items() if name.startswith("dragoman-")}
    assert len({one["environment"]["DRAGOMAN_NODE"] for one in replicas.values()}) == len(replicas) == 3
    upstream = re.findall(r"server (dragoman-\d+):8724", (DEPLOY / "nginx.conf").read_text())
    assert upstream == list(replicas)
    for one in services.values():
        assert set(one.get("secrets", ())) <= compose["secrets"].keys()
        assert set(one["networks"]) <= compose["networks"].keys()
        mounted = {volume.partition(":")[0] for volume in one["volumes"]}
        assert {name for name in mounted if not name.startswith(".")} <= compose["volumes"].keys()
        assert all((DEPLOY / name).exists() for name in mounted if name.startswith("."))
    for one in replicas.values():
        environment = one["environment"]
        assert environment["DRAGOMAN_TRUSTED_PROXIES"] == services["nginx"]["networks"]["inside"]["ipv4_address"]
        assert seconds(one["stop_grace_period"]) > stopping_s(environment)
        assert one["cap_drop"] == ["ALL"] and one["read_only"]
        assert (DEPLOY / one["build"]["context"]).resolve() == ROOT
        profiles = [option.partition("seccomp:")[2] for option in one["security_opt"] if option.startswith("seccomp:")]
        assert [(DEPLOY / profile).exists() for profile in profiles] == [True]


def test_nginx_lets_connections_go_before_dragoman_does() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    [idle] = re.findall(r"upstream dragoman \{.*?keepalive_timeout (\d+)s;", text, re.DOTALL)
    assert int(idle) < KEEP_ALIVE_S
    assert "proxy_buffering off;" in text
    assert not re.search(r"^\s*(ip_hash|sticky|hash)\b", text, re.MULTILINE)
    assert re.findall(r"proxy_next_upstream ([^;]+);", text) == ["error timeout"]


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def stopping_s(environment: dict[str, str]) -> float:
    """The longest time from SIGTERM to the end."""
    return float(environment["DRAGOMAN_DRAIN_DELAY_S"]) + float(environment["DRAGOMAN_SHUTDOWN_GRACE_S"]) + DRAIN_S


def test_kubernetes_waits_for_the_drain_and_asks_the_right_probes() -> None:
    [replicas] = documents(BASE / "statefulset.yaml")
    pod = replicas["spec"]["template"]
    [container] = pod["spec"]["containers"]
    environment = {row["name"]: row.get("value", "") for row in container["env"]}
    assert pod["spec"]["terminationGracePeriodSeconds"] > stopping_s(environment)
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "startupProbe")} == {"/livez"}
    failing = container["readinessProbe"]["periodSeconds"] * container["readinessProbe"]["failureThreshold"]
    assert failing < float(environment["DRAGOMAN_DRAIN_DELAY_S"])
    user = dict(instructions())["USER"].partition(":")[0]
    assert str(pod["spec"]["securityContext"]["runAsUser"]) == user
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    labels = pod["metadata"]["labels"]
    [disruption] = documents(BASE / "disruption.yaml")
    selectors = [service["spec"]["selector"] for service in documents(BASE / "services.yaml")]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in (disruption, replicas)]
    assert selectors == [labels] * 4
    names = {service["metadata"]["name"] for service in documents(BASE / "services.yaml")}
    [ingress] = documents(BASE / "ingress.yaml")
    backends = [path["backend"]["service"]["name"] for path in ingress["spec"]["rules"][0]["http"]["paths"]]
    assert {*backends, replicas["spec"]["serviceName"]} == names
    claimed = {row["name"] for row in pod["spec"]["volumes"]}
    claimed |= {row["metadata"]["name"] for row in replicas["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == claimed


def test_every_manifest_belongs_to_the_kustomization() -> None:
    [base] = documents(BASE / "kustomization.yaml")
    files = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml", "secret.example.yaml"}
    assert set(base["resources"]) == files
    secret_names = {documents(BASE / "secret.example.yaml")[0]["metadata"]["name"]}
    [container] = documents(BASE / "statefulset.yaml")[0]["spec"]["template"]["spec"]["containers"]
    assert {row["secretRef"]["name"] for row in container["envFrom"]} == secret_names


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("folder", ["base", "bubblewrap"])
def test_kubectl_builds_the_manifests(folder: str) -> None:
    command = ("kubectl", "kustomize", str(BASE.parent / folder))
    built = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert built.returncode == 0, built.stderr
    kinds = [one["kind"] for one in yaml.safe_load_all(built.stdout)]
    assert sorted(kinds) == sorted(
        ["Namespace", "StatefulSet", "Service", "Service", "Ingress", "PodDisruptionBudget", "PersistentVolumeClaim"]
    )


UNIT = DEPLOY / "dragoman.service"
# Each was tried with a real systemd: with it, bubblewrap makes no box.
IN_THE_WAY = (*("ProtectKernelTunables", "ProtectKernelLogs", "ProtectHostname", "ProcSubset", "RestrictSUIDSGID"),)


def test_the_unit_leaves_bubblewrap_what_it_needs_and_time_to_drain() -> None:
    options = dict(line.partition("=")[::2] for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line))
    assert not options.keys() & set(IN_THE_WAY)
    assert options["User"] == "dragoman"
    assert options["NoNewPrivileges"] == "yes" and options["CapabilityBoundingSet"] == ""
    assert float(options["TimeoutStopSec"]) > Settings.model_fields["shutdown_grace_s"].default + DRAIN_S
    filters = [line for line in UNIT.read_text().splitlines() if line.startswith("SystemCallFilter=@")]
    assert {"@system-service", "@mount", "sethostname", "landlock_restrict_self"} <= set(
        filters[0].split("=")[1].split()
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "dragoman.service"
    text = UNIT.read_text().replace("/opt/dragoman/bin/dragoman", "/bin/true")
    unit.write_text(re.sub(r"(?m)^(User|Group)=dragoman$", r"\1=daemon", text))
    command = ("systemd-analyze", "verify", "--man=no", str(unit))
    verified = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    ours = [line for line in verified.stderr.splitlines() if "dragoman.service" in line]
    assert (verified.returncode, ours) == (0, [])
