"""The cost of extensions that a server does not use: all that a real one has imported after some requests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE

import pytest

WITHIN_S = 120
# Packages and our own rooms that only a connected MCP server, an MCP client or an editor needs.
UNUSED = (
    *("mcp", "mcp_types", "acp", "yaml", "sse_starlette", "markdown_it"),
    *("routes.acp", "routes.terminal", "routes.mcp_server.application", "routes.mcp_server.calls"),
    *("routes.mcp_server.resources", "routes.mcp_server.run_log", "tools.mcp.connection.session"),
    *("tools.mcp.connection.offer_requests", "tools.mcp.connection.extensions", "tools.mcp.connection.http"),
    *("tools.mcp.connection.task_following", "tools.mcp.auth.oauth_flow"),
)
REQUESTS = (
    ("GET", "/readyz", None),
    ("GET", "/tools", None),
    ("GET", "/mcp/servers", None),
    ("POST", "/chat", {"message": "Hello"}),
    ("POST", "/v1/chat/completions", {"model": "scripted", "messages": [{"role": "user", "content": "Hello"}]}),
    ("GET", "/sessions", None),
    ("GET", "/", None),
)
PORT = re.compile(r"http://localhost:(\d+)")
IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


def answer(port: int, method: str, path: str, body: object) -> str:
    data = None if body is None else json.dumps(body).encode()
    headers = {} if data is None else {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=WITHIN_S) as response:
        text: str = response.read().decode()
        return text


def imports_of(folder: Path, requests: tuple[tuple[str, str, object], ...]) -> tuple[set[str], list[str]]:
    """The modules that a server without MCP servers and editors has imported when it has answered these requests."""
    places = ("--data-dir", str(folder / "data"), "--workspace", str(folder / "work"), "--port", "0")
    command = [sys.executable, "-X", "importtime", "-m", "routes", "serve", *places, "--model-url", "scripted:"]
    (folder / "work").mkdir()
    with (
        (folder / "imports").open("w") as noted,
        subprocess.Popen(command, stdout=PIPE, stderr=noted, text=True) as process,
    ):
        try:
            assert process.stdout
            port = next(int(found[1]) for line in process.stdout if (found := PORT.search(line)))
            answers = [answer(port, *request) for request in requests]
        finally:
            process.terminate()
    return set(IMPORTED.findall((folder / "imports").read_text())), answers


@pytest.mark.timeout(WITHIN_S)
def test_a_server_that_uses_no_extension_imports_none(tmp_path: Path) -> None:
    imported, answers = imports_of(tmp_path, REQUESTS)
    assert all(find_spec(one) for one in UNUSED if "." in one), "no name of the table is out of date"
    assert {"routes.server", "app.mcp.servers", "tools.toolbox"} <= imported
    assert "run.finished" in answers[3] and "chat.completion" in answers[4]
    used = [name for name in imported if any(name == one or name.startswith(f"{one}.") for one in UNUSED)]
    assert sorted(used) == []
    assert "skill" not in answers[1] and json.loads(answers[2])["servers"] == []
