"""A server of the terminal client's own, for when none answers: a child process that ends with the client."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import httpx2
from pydantic import SecretStr

from app.config.settings import WORD_LISTS, Loaded, Settings
from routes.access.token_auth import is_local
from routes.terminal.event_client import ChatFailed
from routes.terminal.exit_codes import UNREACHABLE
from routes.terminal.view import printable
from routes.texts import text
from tools.process.signals import reset_signals

START_LIMIT_S = 60.0
READY_LIMIT_S = 15.0
STOP_LIMIT_S = 5.0
POLL_S = 0.05
PROBE_LIMIT_S = 3.0
LOG_LINES, LOG_BYTES = 20, 8192


def status_of(url: str) -> int | None:
    """The status of a server's answer to a GET, or None without an answer."""
    try:
        return httpx2.get(url, timeout=PROBE_LIMIT_S, trust_env=not is_local(url)).status_code
    except httpx2.TransportError:
        return None


def answers(url: str) -> bool:
    """Return whether a dragoman server is there, and not something else at its address."""
    return status_of(f"{url}/livez") == 200


@contextmanager
def own_server(loaded: Loaded, environ: Mapping[str, str], port: int | None = None) -> Iterator[str]:
    """Run a server with these settings on this loopback port, or a free one; gives its URL. Raises ChatFailed.

    A free port is free when it is chosen; should another process take it first, the server says so and the chat ends.
    """
    port = port or _free_port()
    url = f"http://127.0.0.1:{port}"
    # -P: a folder called `app` where the user happens to be must not be taken for ours.
    command = [sys.executable, "-P", "-m", "routes.cli.main", "serve", "--host", "127.0.0.1", "--port", str(port)]
    reset_signals()
    with tempfile.TemporaryFile() as log:
        # Its own session: Ctrl-C in the terminal is for the run, not for the server.
        child = subprocess.Popen(
            command,
            env=child_environment(loaded, environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait_until_ready(child, url, log)
            yield url
        finally:
            _stop(child)


def child_environment(loaded: Loaded, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that gives a child these same settings; flags become variables, so a key stays out of `ps`."""
    flags = {
        f"DRAGOMAN_{name.upper()}": _plain(name, loaded.settings)
        for name, origin in loaded.origins.items()
        if origin.startswith("flag ")
    }
    file = {"DRAGOMAN_CONFIG": str(loaded.config_file)} if loaded.config_file else {}
    return dict(environ) | file | flags


def _plain(name: str, settings: Settings) -> str:
    """The value as a variable has it: lists of words with commas, other lists and tables as JSON."""
    value = getattr(settings, name)
    match value:
        case SecretStr():
            return str(value.get_secret_value())
        case tuple() if name in WORD_LISTS:
            return ",".join(value)
        case tuple() | Mapping():
            return json.dumps(settings.model_dump(mode="json", include={name})[name])
    return str(value)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_until_ready(child: subprocess.Popen[bytes], url: str, log: IO[bytes]) -> None:
    """Wait until the server is ready, or alive for a while: it reports by itself what it still lacks."""
    started = time.monotonic()
    alive_at: float | None = None
    while status_of(f"{url}/readyz") != 200:
        now = time.monotonic()
        if alive_at is None and answers(url):
            alive_at = now
        if child.poll() is not None:
            raise ChatFailed(text("terminal.server.ended", log=_end_of(log)), UNREACHABLE)
        if alive_at is not None and now - alive_at > READY_LIMIT_S:
            return
        if now - started > START_LIMIT_S:
            seconds = f"{START_LIMIT_S:.0f}"
            raise ChatFailed(text("terminal.server.silent", seconds=seconds, log=_end_of(log)), UNREACHABLE)
        time.sleep(POLL_S)


def _end_of(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - LOG_BYTES))
    return "\n".join(printable(log.read().decode("utf-8", "replace")).splitlines()[-LOG_LINES:])


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        # It leads its own group: whatever it has started and not stopped goes with it.
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
