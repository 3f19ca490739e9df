"""Unconfigured is safe: loopback only, Host and Origin checked; with tokens, a token is needed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.mcp.sign_ins import CALLBACK
from app.models.scripted import Scripted
from app.storage.tokens import TokenRow
from routes.access.authentication import is_loopback
from routes.access.token_text import fingerprint, new_token
from tests import ROOT
from tests.support.server.dragoman_process import dragoman_at_home
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8724", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8724", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:8724", 403),
        ("evil.example@localhost", 403),
        ("", 403),
        ("[", 403),
    ],
)
async def test_a_foreign_host_is_refused(tmp_path: Path, host: str, status: int) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await served.client.get("/tools", headers={"host": host})
    assert response.status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [(None, 200), ("OWN", 200), ("http://evil.example", 403), ("null", 403), ("http://localhost:1", 403), ("", 403)],
)
async def test_a_page_of_another_origin_is_refused(tmp_path: Path, origin: str | None, status: int) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        own = str(served.client.base_url).rstrip("/")
        headers = {} if origin is None else {"origin": own if origin == "OWN" else origin}
        response = await served.client.get("/tools", headers=headers)
    assert response.status_code == status


async def test_two_origins_are_refused(tmp_path: Path) -> None:
    """The first one, the last one, both: readers differ on which counts."""
    async with serving(tmp_path, Scripted([])) as served:
        own = str(served.client.base_url).rstrip("/")
        for origins in ((own, "http://evil.example"), ("http://evil.example", own), (own, own)):
            answer = await served.client.get("/tools", headers=[("origin", one) for one in origins])
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "wrong_origin")
            assert "more than one Origin" in answer.json()["error"]["message"]


FETCHES = [
    # method, path, site, mode, status
    ("GET", "/tools", "same-origin", "cors", 200),
    ("GET", "/tools", "none", "navigate", 200),
    ("GET", "/tools", "cross-site", "navigate", 403),
    ("GET", "/tools", "same-site", "no-cors", 403),  # another port of localhost is another program
    ("GET", "/tools", "Cross-Site", "no-cors", 403),
    ("POST", "/pause", "cross-site", "no-cors", 403),
    ("POST", "/pause", "same-site", "navigate", 403),
    ("GET", "/livez", "cross-site", "no-cors", 403),
    ("GET", "/page/icon.svg", "cross-site", "no-cors", 403),
    ("GET", "/", "cross-site", "navigate", 200),
    ("GET", "/", "same-site", "navigate", 200),
    ("GET", "/", "cross-site", "no-cors", 403),
    ("GET", CALLBACK, "cross-site", "navigate", 400),  # comes through, and has no state
    ("GET", CALLBACK, "cross-site", "cors", 403),
    ("POST", "/", "cross-site", "navigate", 403),
]


@pytest.mark.parametrize("tokens", [False, True])
async def test_what_browsers_ask_for_other_sites_is_refused(tmp_path: Path, *, tokens: bool) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        known = {"authorization": f"Bearer {await with_token(served)}"} if tokens else {}
        for method, path, site, mode, status in FETCHES:
            headers = known | {"sec-fetch-site": site, "sec-fetch-mode": mode}
            answer = await served.client.request(method, path, headers=headers)
            assert answer.status_code == status, (method, path, site, mode)
            if status == 403:
                assert answer.json()["error"]["code"] == "wrong_site"
        twice = [*known.items(), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]
        assert (await served.client.get("/tools", headers=twice)).status_code == 403


async def with_token(served: Served) -> str:
    token = new_token()
    await served.services.store.write([TokenRow(fingerprint(token), "ann", "admin", 1.0)])
    return token


async def test_once_there_is_a_token_nobody_comes_in_without(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        assert (await served.client.get("/tools")).status_code == 200
        token = await with_token(served)
        for wrong in ({}, {"authorization": "Bearer no"}, {"authorization": f"Basic {token}"}, {"cookie": token}):
            response = await served.client.get("/tools", headers=wrong)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "unauthorized"
            assert response.headers["www-authenticate"] == "Bearer"
        assert (await served.client.get("/tools", headers={"authorization": f"Bearer {token}"})).status_code == 200
        assert (await served.client.get("/livez")).status_code == 200  # probes have no token


async def test_a_run_belongs_to_who_started_it(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served:
        events = await served.chat()  # the local user's
        headers = {"authorization": f"Bearer {await with_token(served)}"}
        for path in (
            f"/runs/{events[0]['run']}",
            f"/runs/{events[0]['run']}/events",
            f"/sessions/{events[0]['session']}",
        ):
            assert (await served.client.get(path, headers=headers)).status_code == 404


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_which_addresses_are_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_another_bind_refuses_to_start_without_a_token(tmp_path: Path) -> None:
    ended = dragoman_at_home(
        tmp_path, "serve", "--host", "0.0.0.0", "--port", "0", "--workspace", str(tmp_path / "work")
    )
    assert ended.returncode == 1
    assert "dragoman token create --name NAME" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_token_is_shown_once_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    made = dragoman_at_home(tmp_path, "token", "create", "--name", "ann")
    token = made.stdout.split()[0]
    assert token.startswith("dgm_")
    assert len(token) > 40
    assert [line.split()[:3] for line in dragoman_at_home(tmp_path, "token", "list").stdout.splitlines()] == [
        ["name", "role", "state"],
        ["ann", "user", "active"],
    ]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())
    assert fingerprint(token).encode() in kept
    assert token.encode() not in kept


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = dragoman_at_home(tmp_path, "serve", "--port", port, "--workspace", str(tmp_path / "work"))
    assert ended.returncode == 1
    assert f"Cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "--port" in ended.stderr


def test_a_database_that_is_not_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dragoman.db").write_bytes(b"no database, " * 1000)
    ended = dragoman_at_home(tmp_path, "serve", "--port", "0", "--workspace", str(tmp_path / "work"))
    assert ended.returncode == 1
    assert "not a database" in ended.stderr
    assert "DRAGOMAN_DATA_DIR" in ended.stderr


@pytest.mark.parametrize("setting", ["data-dir", "workspace"])
def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, setting: str) -> None:
    (tmp_path / "file").write_text("in the way")
    places = {"workspace": str(tmp_path / "work"), "data-dir": str(tmp_path / "data")}
    flags = [
        word
        for name, place in (places | {setting: str(tmp_path / "file" / "x")}).items()
        for word in (f"--{name}", place)
    ]
    ended = dragoman_at_home(tmp_path, "serve", "--port", "0", "--model-url", "scripted:", *flags)
    assert ended.returncode == 1
    assert f"DRAGOMAN_{setting.upper().replace('-', '_')}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_server_on_the_same_data_is_told(tmp_path: Path) -> None:
    serve = ("serve", "--port", "0", "--workspace", str(tmp_path / "work"), "--model-url", "http://127.0.0.1:9/v1")
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DRAGOMAN_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "routes", *serve]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout
        assert "dragoman" in first.stdout.readline()
        ended = dragoman_at_home(tmp_path, *serve)
        first.terminate()
    assert ended.returncode == 1
    assert "Another dragoman uses" in ended.stderr


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": "TOKEN"}, 200),
        ({"authorization": "Bearer TOKEN", "x-api-key": "sk-another"}, 200),
        ({"authorization": "Basic eDp5", "x-api-key": "TOKEN"}, 200),
        ({"authorization": "Bearer wrong", "x-api-key": "TOKEN"}, 401),
        ({"x-api-key": "wrong"}, 401),
    ],
)
async def test_a_token_may_come_as_an_api_key(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    token = new_token()
    async with serving(tmp_path, Scripted([])) as served:
        await served.services.store.write([TokenRow(fingerprint(token), "ann", "user", 1.0)])
        sent = {name: value.replace("TOKEN", token) for name, value in headers.items()}
        response = await served.client.get("/tools", headers=sent)
    assert response.status_code == status
    assert "A token is required" not in response.text  # one was sent
