"""A real nginx on loopback with docs/deploy/nginx.conf."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.server.listening import listens

CONFIGURATION = ROOT / "docs" / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
LIMIT_S = 60
FIRST_PORT, PORTS = 20_000, 12_000  # below those of outgoing connections, and of port 0
_TURNS = count(os.getpid() * 97)  # the workers of a suite begin at different places
needs_nginx = pytest.mark.skipif(
    NGINX is None and os.environ.get("CI") != "true", reason="there is no nginx (apt-get install nginx-light)"
)


def configuration(folder: Path, port: int, replicas: Sequence[int], workers: int = 1) -> Path:
    """The committed file for these ports of loopback, with all that nginx writes in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = CONFIGURATION.read_text()
    servers = [line for line in text.splitlines() if re.match(r"\s+server dragoman-", line)]
    assert servers, "the upstream block names its replicas in lines of their own"
    options = servers[0].partition("8724")[2]
    text = text.replace("\n".join(servers), "\n".join(f"        server 127.0.0.1:{one}{options}" for one in replicas))
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};")
    text = text.replace("/tmp/nginx", f"{folder}/nginx").replace("/dev/stdout", f"{folder}/access.log")
    text = re.sub(r"worker_processes auto;\nworker_rlimit_nofile \d+;", f"worker_processes {workers};", text)
    text = re.sub(r"worker_connections \d+;", "worker_connections 1024;", text)
    account = "user root;\n" if os.geteuid() == 0 else ""  # its workers write into the test's folder
    path = folder / "nginx.conf"
    path.write_text(account + text)
    return path


def checked(path: Path) -> subprocess.CompletedProcess[str]:
    """`nginx -t` of a file."""
    command = (NGINX or "nginx", "-t", "-p", str(path.parent), "-c", str(path))
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


def free_port() -> int:
    """A port for a server that cannot choose one itself. The kernel gives none of these to others meanwhile."""
    while True:
        with suppress(OSError), socket.create_server(("127.0.0.1", FIRST_PORT + next(_TURNS) % PORTS)) as taken:
            return int(taken.getsockname()[1])


@asynccontextmanager
async def nginx(folder: Path, replicas: Sequence[int], port: int = 0) -> AsyncGenerator[int, None]:
    """The port of an nginx in front of these ports of loopback, which is stopped in the end."""
    port = port or free_port()
    path = configuration(folder, port, replicas)
    with (folder / "nginx.log").open("wb") as log:
        command = (NGINX or "nginx", "-p", str(folder), "-c", str(path), "-g", "daemon off;")
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        if not await asyncio.wait_for(listens(process, port), LIMIT_S):
            raise AssertionError((folder / "nginx.log").read_text())
        yield port
    finally:
        if process.returncode is None:
            process.terminate()  # at once, its workers with it
        await asyncio.wait_for(process.wait(), LIMIT_S)
