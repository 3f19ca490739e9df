"""Without tokens the account that runs the server is its admin, and no other: the kernel says which one asks."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import struct
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from app.models.scripted import Scripted
from routes.access.local_admin import LOCAL_LENGTH, LOCAL_TOKEN, local_token, read_local_token
from routes.access.peers import SockDiag, by_proc, by_sock_diag, entry_of, kernel_says, uid_of_listener, uid_of_peer
from routes.server import create_server
from tests.support.page.browser import browsing, expect
from tests.support.sandbox.accounts import OTHER, as_other, needs_root, server_in_namespace
from tests.support.server.serving import Served, listening, serving

pytestmark = pytest.mark.anyio
CURL = ("curl", "-sS", "-m", "20", "-w", "\n%{http_code}")
LOOPBACK = (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6))


def base(served: Served) -> str:
    return str(served.client.base_url).rstrip("/")


async def curl_of_other(*words: str) -> tuple[str, str]:
    """The status that another account's curl gets, and the answer's body."""
    return answered(await asyncio.to_thread(as_other, *CURL, *words))


async def curl(*words: str) -> tuple[str, str]:
    """The same of the account of this test."""
    return answered(await asyncio.to_thread(ended, *CURL, *words))


def ended(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    known = os.environ | environ
    return subprocess.run(command, env=known, capture_output=True, text=True, timeout=60, check=False)


def answered(curled: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    body, _, status = curled.stdout.rpartition("\n")
    return status, body or curled.stderr


async def test_another_account_is_not_let_in_and_is_told_what_to_do(tmp_path: Path) -> None:
    needs_root()
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        for path in ("/tools", "/sessions", "/events"):
            status, body = await curl_of_other(f"{base(served)}{path}")
            error = json.loads(body)["error"]
            assert (status, error["code"]) == ("401", "unauthorized")
            assert "dragoman token create" in error["message"]
        chat = ("-d", '{"message": "x"}', f"{base(served)}/chat")
        assert (await curl_of_other(*chat))[0] == "401"
        assert (await served.client.get("/sessions")).json()["sessions"] == []
        assert (await curl_of_other(f"{base(served)}/livez"))[0] == "200"
        noted = (await served.client.get("/audit")).json()["audit"]
        assert "not this one" in noted[0]["why"]
        assert (await served.client.get("/tools")).status_code == 200


async def test_the_account_of_the_server_comes_in_with_nothing_typed(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        status, stream = await curl("-d", '{"message": "x"}', f"{base(served)}/chat")
        assert (status, "event: run.finished" in stream) == ("200", True)


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded: for=192.0.2.1",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Host: localhost",
        "X-Forwarded-Proto: https",
        "X-Real-IP: 127.0.0.1",
        "Via: 1.1 proxy",
        "CF-Connecting-IP: 192.0.2.1",
        "True-Client-IP: 192.0.2.1",
        "X-Envoy-External-Address: 192.0.2.1",
        "Tailscale-User-Login: ann",
        "X-ProxyUser-Ip: 192.0.2.1",
        "X-Azure-ClientIP: 192.0.2.1",
        "Fly-Client-IP: 192.0.2.1",
        "X-Vercel-Forwarded-For: 192.0.2.1",
        "X-Appengine-User-Ip: 192.0.2.1",
        "X-Original-URL: /tools",
        "X-Rewrite-Url: /tools",
        "X-Arr-Ssl: 1",
        "X-Nginx-Proxy: true",
        "Front-End-Https: on",
        "X-Remote-User: ann",
        "Remote-User: ann",
        "X-Auth-Request-User: ann",
        "X-Varnish: 1",
        "Surrogate-Capability: x",
    ],
)
async def test_what_a_proxy_forwards_is_never_the_local_admins(tmp_path: Path, header: str) -> None:
    name, _, value = header.partition(": ")
    async with serving(tmp_path, Scripted([])) as served:
        token = read_local_token(served.services.settings.data_dir)
        for more in ({}, {"authorization": f"Bearer {token}"}):
            answer = await served.client.get("/tools", headers={name: value, **more})
            assert answer.status_code == 401, answer.text
            assert "proxy" in answer.json()["error"]["message"]
        assert (await served.client.get("/livez", headers={name: value})).status_code == 200


async def test_the_local_token_lets_in_where_the_kernel_cannot_say(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        needs_root()
        token = read_local_token(served.services.settings.data_dir)
        assert token
        status, _ = await curl_of_other("-H", f"authorization: Bearer {token}", f"{base(served)}/tools")
        assert status == "200", "whoever has read the file is its account, or root"
        status, body = await curl_of_other("-H", f"authorization: Bearer {token}x", f"{base(served)}/tools")
        assert (status, "not a token of this server" in body) == ("401", True)


def test_the_local_token_is_made_once_for_its_account_alone(tmp_path: Path) -> None:
    token = local_token(tmp_path)
    path = tmp_path / LOCAL_TOKEN
    assert (stat.S_IMODE(path.stat().st_mode), len(token)) == (0o600, LOCAL_LENGTH)
    assert local_token(tmp_path) == token == read_local_token(tmp_path)
    path.write_text("short")
    assert read_local_token(tmp_path) is None
    assert local_token(tmp_path) not in ("short", token)
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert read_local_token(tmp_path) is None


def test_a_local_token_that_another_account_wrote_is_none(tmp_path: Path) -> None:
    needs_root()
    token = local_token(tmp_path)
    os.chown(tmp_path / LOCAL_TOKEN, OTHER, OTHER)
    assert read_local_token(tmp_path) is None
    assert local_token(tmp_path) not in (token, None)
    assert (tmp_path / LOCAL_TOKEN).stat().st_uid == os.geteuid()


@pytest.mark.parametrize(("host", "family"), LOOPBACK)
def test_the_kernel_names_the_account_of_a_connection(host: str, family: socket.AddressFamily) -> None:
    with closing(socket.create_server((host, 0), family=family)) as listener:
        with closing(socket.create_connection(listener.getsockname()[:2])) as client:
            with closing(listener.accept()[0]) as ours:
                assert uid_of_peer(ours) == os.geteuid()
                places = client.getsockname()[:2], listener.getsockname()[:2]
                assert by_sock_diag(*places) == by_proc(*places)
                client.shutdown(socket.SHUT_WR)
                assert uid_of_peer(ours) == os.geteuid(), "half-closed, and still held by its process"
        assert uid_of_listener(host, listener.getsockname()[1]) == os.geteuid()
    assert kernel_says()


def test_an_ipv4_client_of_a_socket_for_both_is_known() -> None:
    with closing(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)) as listener:
        with closing(socket.create_connection(("127.0.0.1", listener.getsockname()[1]))) as client:
            with closing(listener.accept()[0]) as ours:
                assert ours.getpeername()[0] == "::ffff:127.0.0.1"
                assert uid_of_peer(ours) == os.geteuid()
                places = client.getsockname()[:2], ("127.0.0.1", listener.getsockname()[1])
                assert by_sock_diag(*places) == by_proc(*places)


def test_a_connection_that_its_process_has_closed_is_nobodys() -> None:
    """The kernel lists it without an inode from then on, and older ones with user id 0, as if it were root's."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        client = socket.create_connection(listener.getsockname())
        places = client.getsockname(), listener.getsockname()
        with closing(listener.accept()[0]) as ours:
            client.close()
            left = entry_of(*places)  # of one connection in a thousand it keeps nothing
            assert left is None or (left.inode == 0 and left.uid in (0, os.geteuid()))
            assert uid_of_peer(ours) is None
        assert uid_of_peer(ours) is None


class ResetBetweenLooks(socket.socket):
    """Our end of a connection that is reset after the other end was looked up, before this one is."""

    other: socket.socket

    def getsockopt(self, *option: int) -> Any:
        self.other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.other.close()
        return super().getsockopt(*option)


def test_a_connection_that_is_reset_between_the_two_looks_is_nobodys() -> None:
    """From then on another account may have had those addresses: what was found may be of its socket."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        client = socket.create_connection(listener.getsockname())
        with closing(ResetBetweenLooks(fileno=listener.accept()[0].detach())) as ours:
            ours.other = client
            assert uid_of_peer(ours) is None


def test_a_port_that_another_listens_on_says_nothing_of_a_connection() -> None:
    """Where there is no such connection the kernel names the listener at the same address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, closing(socket.socket()) as none:
        none.bind(("127.0.0.1", 0))
        assert by_sock_diag(listener.getsockname(), none.getsockname()) is None
        assert by_proc(listener.getsockname(), none.getsockname()) is None


def test_an_answer_that_comes_late_is_not_taken_for_the_next_one() -> None:
    kernel, question = SockDiag(), b"\0" * 56
    kernel.ask(question)
    assert kernel.fd is not None
    os.write(kernel.fd, struct.pack("=IHHII", 16 + len(question), 20, 1, 77, 0) + question)
    with pytest.raises(OSError, match="another question"):
        kernel.ask(question)
    kernel.ask(question)
    os.close(kernel.fd)


async def test_a_connection_is_asked_about_once_and_the_next_one_anew(tmp_path: Path) -> None:
    """A port that another account takes after its owner has left does not bring the owner's rights along."""
    needs_root()
    async with serving(tmp_path, Scripted([])) as served:
        port = served.client.base_url.port
        assert port
        with closing(socket.socket()) as first:
            first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # no TIME_WAIT
            first.bind(("127.0.0.1", 0))
            local = first.getsockname()[1]
            first.setblocking(False)
            await asyncio.get_running_loop().sock_connect(first, ("127.0.0.1", port))
            for _ in range(2):
                await asyncio.get_running_loop().sock_sendall(first, b"GET /tools HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert b"200 OK" in await asyncio.get_running_loop().sock_recv(first, 65536)
        status, _ = await curl_of_other("--local-port", str(local), f"http://127.0.0.1:{port}/tools")
    assert status == "401"


async def test_a_request_that_is_sent_and_left_is_not_taken_for_roots(tmp_path: Path) -> None:
    """Another account connects, sends and closes before the server has looked."""
    needs_root()
    code = (
        "import socket, sys\n"
        "for _ in range(50):\n"
        "    with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as one:\n"
        "        one.sendall(b'DELETE /sessions/%s HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n' % sys.argv[2].encode())\n"
    )
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        session = (await served.chat())[0]["session"]
        # The server's loop stands still meanwhile: it meets connections that are over.
        assert as_other("python3", "-c", code, base(served).rpartition(":")[2], session).returncode == 0
        for _ in range(3):  # each answer comes after what waited before it
            assert (await served.client.get("/livez")).status_code == 200
        assert (await served.client.get(f"/sessions/{session}")).status_code == 200
        [noted, *_] = (await served.client.get("/audit")).json()["audit"]
        assert (noted["action"], noted["decision"]) == ("sign_in", "refused")


@pytest.mark.usefixtures("chromium")
async def test_where_the_kernel_cannot_say_the_printed_address_lets_in(tmp_path: Path) -> None:
    with server_in_namespace(tmp_path) as (first, example, where, address):
        token = read_local_token(tmp_path / "data")
        assert token and token not in first + example + where
        assert str(tmp_path / "data" / LOCAL_TOKEN) in where
        url = address.split()[2]
        assert url.endswith(f"/#token={token}")
        status, body = await curl(f"{url.partition('#')[0]}tools")
        assert (status, str(tmp_path / "data" / LOCAL_TOKEN) in body) == ("401", True)
        shown = example.removeprefix("Try:").strip() + " -sS"
        curled = await asyncio.to_thread(ended, "bash", "-c", shown, DRAGOMAN_TOKEN=token)
        assert "event: run.finished" in curled.stdout
        async with browsing() as browser:
            page = await browser.page()
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            await page.goto(url)
            await expect(page.get_by_role("group", name="Status").get_by_text("Connected")).to_be_visible()
            assert "token" not in page.url and await page.evaluate("history.length") <= 2
            assert not [one for one in asked[1:] if token in one]
            assert token in await page.evaluate("JSON.stringify(sessionStorage)")
            assert token not in await page.evaluate("JSON.stringify(localStorage) + document.cookie")
            other = await browser.page()  # one that shows the page already
            browser.expected.append("401")
            await other.goto(url.partition("#")[0])
            await expect(other.get_by_label("Token")).to_be_visible()
            await other.evaluate("address => { location.hash = address }", url.partition("#")[2])
            await expect(other.get_by_role("group", name="Status").get_by_text("Connected")).to_be_visible()
            assert "token" not in other.url


async def test_root_is_another_account_to_a_server_of_a_user(tmp_path: Path) -> None:
    """What runs as root and passes requests of others on must not let them in. Root can read the file."""
    async with serving(tmp_path, Scripted([])) as served:
        served.services.local = replace(served.services.local, uid=OTHER)
        async with listening(create_server(served.services)) as port:
            async with httpx2.AsyncClient(base_url=f"http://localhost:{port}", trust_env=False) as client:
                assert (await client.get("/tools")).status_code == 401
                headers = {"authorization": f"Bearer {read_local_token(served.services.settings.data_dir)}"}
                assert (await client.get("/tools", headers=headers)).status_code == 200
