"""The command line shows its token to the server that is meant, and to nothing else that listens there."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from app.models.scripted import Scripted
from routes.access.local_admin import read_local_token
from routes.access.token_auth import PROOF, PROOF_HEADER, NotProven, TokenAuth, proof, proof_id
from routes.access.token_text import fingerprint, new_token
from tests import ROOT
from tests.support.access.people import bearer
from tests.support.sandbox.accounts import OTHER, needs_root, server_in_namespace
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
IN_NAMESPACE = ("unshare", "--user", "--map-root-user")  # where the kernel does not tell accounts apart
# Says yes to everything, passes questions of proof on to the server at a port, and tells what it got.
IMPOSTOR = """
import http.server, sys, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        length = int(self.headers.get("content-length") or 0)
        print(self.path, self.headers.get("authorization"), self.rfile.read(length), flush=True)
        proof = ""
        if self.path.startswith("/proof"):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}{self.path}") as answer:
                    proof = answer.headers["x-dragoman-proof"]
            except OSError:
                pass
        self.send_response(200)
        self.send_header("x-dragoman-proof", proof)
        self.send_header("content-length", "0")
        self.end_headers()
    do_POST = do_GET
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@contextmanager
def impostor(real: int = 9, *, user: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """What listens where a server is thought to be: its port, and in the end all that it was sent."""
    heard: list[str] = []
    command = ["/usr/bin/python3", "-c", IMPOSTOR, str(real)]
    with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, text=True, user=user) as other:
        try:
            assert other.stdout
            yield int(other.stdout.readline()), heard
        finally:
            other.terminate()
            heard.extend(other.stdout.read().splitlines() if other.stdout else [])


def needs_namespaces() -> None:
    if subprocess.run([*IN_NAMESPACE, "true"], capture_output=True, check=False, timeout=30).returncode:
        pytest.skip("needs user namespaces (unshare --user)")


def dragoman(folder: Path, *words: str, before: tuple[str, ...] = (), **environ: str) -> tuple[int, str]:
    """The command line, until it ends: its exit code, and all that it said."""
    known = {"PATH": os.environ["PATH"], "HOME": str(folder), "DRAGOMAN_DATA_DIR": str(folder / "data")} | environ
    command = [*before, sys.executable, "-m", "routes", *words]
    ran = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=100, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def port_of(served: Served) -> int:
    port = served.client.base_url.port
    assert port
    return port


@pytest.mark.parametrize("words", [("chat", "hello"), ("mcp", "list"), ("endpoint", "list")])
def test_a_token_is_not_sent_to_another_accounts_program(tmp_path: Path, words: tuple[str, ...]) -> None:
    needs_root()
    token = new_token()
    with impostor(user=OTHER) as (port, heard):
        url = f"http://127.0.0.1:{port}"
        code, told = dragoman(tmp_path, *words, DRAGOMAN_URL=url, DRAGOMAN_TOKEN=token)
    assert code == 1, told
    assert "does not know your token" in told and "was not sent" in told and "Traceback" not in told
    assert heard and not any(token in line or "hello" in line for line in heard), heard


def test_without_a_token_no_message_is_sent_to_another_accounts_program(tmp_path: Path) -> None:
    needs_root()
    with impostor(user=OTHER) as (port, heard):
        code, told = dragoman(tmp_path, "chat", "--url", f"http://localhost:{port}", "hello")
    assert (code, "belongs to another account" in told) == (1, True), told
    assert not any("hello" in line for line in heard)


async def test_a_server_of_another_account_proves_that_it_knows_the_token(tmp_path: Path) -> None:
    needs_namespaces()
    async with serving(tmp_path, Scripted(["Good morning."] * 2)) as served:
        headers = await bearer(served, "ann", "admin")
        token = headers["authorization"].removeprefix("Bearer ")
        url = f"http://127.0.0.1:{port_of(served)}"
        known = {"DRAGOMAN_URL": url, "DRAGOMAN_TOKEN": token}
        code, told = await asyncio.to_thread(dragoman, tmp_path / "x", "chat", "hi", before=IN_NAMESPACE, **known)
        assert (code, "Good morning." in told) == (0, True), told
        code, told = await asyncio.to_thread(dragoman, tmp_path / "x", "mcp", "list", before=IN_NAMESPACE, **known)
        assert code == 0, told


async def test_a_proof_cannot_be_passed_on_from_another_port(tmp_path: Path) -> None:
    needs_namespaces()
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        headers = await bearer(served, "ann", "admin")
        token = headers["authorization"].removeprefix("Bearer ")
        with impostor(port_of(served)) as (port, heard):
            known = {"DRAGOMAN_URL": f"http://127.0.0.1:{port}", "DRAGOMAN_TOKEN": token}
            code, told = await asyncio.to_thread(dragoman, tmp_path / "x", "chat", "hi", before=IN_NAMESPACE, **known)
        assert (code, "does not know your token" in told) == (1, True), told
        assert any(line.startswith(PROOF) for line in heard), "it was asked, and asked the real one"
        assert not any(token in line for line in heard)


def test_the_own_token_is_found_where_the_kernel_cannot_say(tmp_path: Path) -> None:
    """Nothing has to be typed there either; and it goes to no other program."""
    with server_in_namespace(tmp_path) as (first, *_):
        found = re.search(r"localhost:(\d+)", first)
        assert found
        url = f"http://127.0.0.1:{found[1]}"
        code, told = dragoman(tmp_path, "chat", "--url", url, "Print hello world with the shell.")
        assert code == 0, told
        token = read_local_token(tmp_path / "data")
        assert token
        with impostor(int(found[1])) as (port, heard):
            dragoman(tmp_path, "chat", "--url", f"http://127.0.0.1:{port}", "hello", before=IN_NAMESPACE)
        assert not any(token in line for line in heard)


async def test_once_there_are_tokens_who_gives_none_is_asked_for_one(tmp_path: Path) -> None:
    """The own token is none any more: it is not tried, and the answer is the server's."""
    async with serving(tmp_path, Scripted([])) as served:
        await bearer(served, "ann")
        url = f"http://127.0.0.1:{port_of(served)}"
        code, told = await asyncio.to_thread(dragoman, tmp_path, "chat", "--url", url, "hello")
    assert (code, "A token is required." in told, "--token" in told) == (1, True, True), told


async def test_what_is_proven_and_to_whom(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        nonce, port = "0" * 32, port_of(served)
        own = fingerprint(read_local_token(served.services.settings.data_dir) or "")

        async def proven(sha256: str) -> tuple[int, str | None]:
            answer = await served.client.get(PROOF, params={"token": proof_id(sha256), "nonce": nonce})
            return answer.status_code, answer.headers.get(PROOF_HEADER)

        assert await proven(own) == (204, proof(own, nonce, port))
        assert await proven(fingerprint("dgm_x")) == (404, None)
        ann = fingerprint((await bearer(served, "ann"))["authorization"].removeprefix("Bearer "))
        bob = fingerprint((await bearer(served, "bob", revoked=1.0))["authorization"].removeprefix("Bearer "))
        assert await proven(ann) == (204, proof(ann, nonce, port))
        assert await proven(bob) == (404, None)
        assert await proven(own) == (404, None), "it lets nobody in any more"
        wrong = await served.client.get(PROOF, params={"token": proof_id(ann), "nonce": "short"})
        assert wrong.status_code == 422


@pytest.mark.parametrize(
    "url", ["http://server.example/chat", "http://192.0.2.1:8724/chat", "http://localhost.example.com/"]
)
def test_a_token_goes_to_other_machines_by_https_only(url: str) -> None:
    request = httpx2.Request("POST", url)
    with pytest.raises(NotProven, match="use https"):
        next(TokenAuth("dgm_x").auth_flow(request))
    assert "authorization" not in request.headers
    secure = httpx2.Request("POST", url.replace("http:", "https:"))
    assert next(TokenAuth("dgm_x").auth_flow(secure)).headers["authorization"] == "Bearer dgm_x"
    assert urlsplit(str(secure.url)).scheme == "https"
