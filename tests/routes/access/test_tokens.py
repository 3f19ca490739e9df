"""Tokens over HTTP and on the command line: made, listed, revoked; and what a wrong one meets."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

from app.models.scripted import Scripted
from app.storage.principals import Budget, Principal, checked_name, expiry, principal_of
from routes.access.authentication import NOTED_PER_MINUTE, WRONG_PER_MINUTE
from routes.access.token_text import fingerprint
from routes.access.tokens import revoke_token
from tests.support.access.people import bearer
from tests.support.server.dragoman_process import dragoman_at_home, server
from tests.support.server.serving import Served, serving
from tools.base.rights import Role

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0  # 2027-01-15 08:00 UTC
WRONG = {"authorization": "Bearer dgm_wrong"}


async def made(served: Served, **wish: object) -> httpx2.Response:
    return await served.client.post("/tokens", json=wish)


async def test_a_token_from_beginning_to_end(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted([])) as served:
        root = await made(served, name="root", role="admin")
        served.client.headers["authorization"] = f"Bearer {root.json()['token']}"
        wish = {"tools": ["read_*"], "disabled": ["bash"], "expires": "30d", "budget": {"requests_per_minute": 9}}
        answer = await made(served, name="bob", **wish)
        told = answer.json()
        token = told.pop("token")
        assert (answer.status_code, token.startswith("dgm_"), len(token)) == (201, True, 47)
        assert (told["name"], told["role"], told["state"], told["tools"]) == ("bob", "user", "active", ["read_*"])
        listed = (await served.client.get("/tokens")).json()["tokens"]
        assert [row["name"] for row in listed] == ["root", "bob"] and listed[1] == told
        [_, kept] = await served.services.store.tokens()
        theirs = Principal("bob", Role.USER, ("read_*",), ("bash",), Budget(requests_per_minute=9))
        assert principal_of(kept) == theirs and kept.sha256 == fingerprint(token)
        bob = {"authorization": f"Bearer {token}"}
        assert (await served.client.get("/sessions", headers=bob)).status_code == 200
        assert (await served.client.delete("/tokens/bob")).status_code == 204
        refused = await served.client.get("/sessions", headers=bob)
        assert (refused.status_code, "revoked" in refused.json()["error"]["message"]) == (401, True)
        assert (await served.client.delete("/tokens/bob")).status_code == 404
        assert (await served.client.get("/tokens")).json()["tokens"][1]["state"] == "revoked"
        again = (await made(served, name="bob")).json()
        assert again["token"] != token and again["state"] == "active"
        audit = [row for row in (await served.client.get("/audit")).json()["audit"] if row["action"] == "token"]
        assert [(row["principal"], row["decision"], row["by"]) for row in reversed(audit)] == [
            ("root", "made", "local"),
            ("bob", "made", "root"),
            ("bob", "revoked", "root"),
            ("bob", "made", "root"),
        ]


WISHES: dict[str, dict[str, object]] = {
    "no name": {},
    "a name that is a path": {"name": "../bob"},
    "the local user's name": {"name": "LOCAL"},
    "an unknown role": {"name": "bob", "role": "root"},
    "an expiry of the past": {"name": "bob", "expires": "2001-01-01"},
    "no expiry": {"name": "bob", "expires": "soon"},
    "an empty pattern": {"name": "bob", "tools": [" "]},
    "a pattern that is not text": {"name": "bob", "disabled": [1]},
    "too many patterns": {"name": "bob", "tools": ["x"] * 65},
    "a budget of nothing": {"name": "bob", "budget": {"runs": 0}},
    "a budget of half": {"name": "bob", "budget": {"runs": 1.5}},
    "an unknown budget": {"name": "bob", "budget": {"cups": 1}},
    "an unknown field": {"name": "bob", "token": "dgm_mine"},
}


@pytest.mark.parametrize("case", WISHES)
async def test_a_wish_that_is_wrong_is_told(tmp_path: Path, case: str) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        response = await made(served, **WISHES[case])
        assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")
        assert await served.services.store.tokens() == []


async def test_a_name_has_one_token_and_one_spelling(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        served.client.headers |= await bearer(served, "root", "admin")
        answers = await asyncio.gather(*(made(served, name="bob") for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
        assert (
            (await made(served, name="bob")).json()["error"]["message"].startswith("bob already has an active token.")
        )
        for state in ("active", "revoked"):
            other = await made(served, name="BOB")
            assert (other.status_code, "Use that spelling" in other.json()["error"]["message"]) == (409, True), state
            await served.client.delete("/tokens/bob")
        await bearer(served, "eve", expires=time.time() - 1)
        assert (await made(served, name="eve")).status_code == 201, "an expired one is not in use"


async def test_the_local_user_never_comes_back(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        assert (await served.client.get("/tools")).status_code == 200
        only = {"authorization": f"Bearer {(await made(served, name='root', role='admin')).json()['token']}"}
        await revoke_token(served.services.store, "root", "root")  # on the command line: over HTTP the last admin stays
    async with serving(tmp_path, Scripted([])) as served:
        for headers in ({}, only, WRONG):
            refused = await served.client.get("/tools", headers=headers)
            assert refused.status_code == 401
            assert "No token is active any more: `dragoman token create" in refused.json()["error"]["message"]
        assert (await served.client.get("/livez")).status_code == 200


async def test_only_loopback_knows_a_local_user(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([]), host="0.0.0.0") as served:
        assert (await served.client.get("/tools")).status_code == 401


async def test_wrong_tokens_are_slowed_down(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        right = await bearer(served, "ann", "admin")

        async def tried(headers: dict[str, str], client: str | None = None) -> httpx2.Response:
            forwarded = {"x-forwarded-for": client} if client else {}
            return await served.client.get("/tools", headers=headers | forwarded)

        for _ in range(WRONG_PER_MINUTE):
            assert (await tried(WRONG)).status_code == 401
        slowed = await tried(WRONG)
        error = slowed.json()["error"]
        assert (slowed.status_code, error["code"]) == (429, "too_many_wrong_tokens")
        assert 0 < int(slowed.headers["retry-after"]) <= 60 and error["reset"] > time.time()
        assert (await tried({})).status_code == 401, "no token is not a wrong one"
        assert (await tried(right)).status_code == 200, "who has the right one is not shut out"
        assert (await tried(WRONG, "192.0.2.1")).status_code == 401, "others are not shut out"
        for number in range(WRONG_PER_MINUTE):
            assert (await tried(WRONG, f"2001:db8::{number:x}")).status_code == 401
        assert (await tried(WRONG, "2001:db8::ffff")).status_code == 429, "one subscriber has a whole /64"
        rows = [row for _, row in await served.services.store.audit(1 << 40, 1000)]
        assert [row.why.rpartition(" From ")[2] for row in rows] == ["2001:db8::/64.", "192.0.2.1.", "127.0.0.1."]
        assert {(row.action, row.decision) for row in rows} == {("sign_in", "refused")}


async def test_nobody_says_whom_they_come_from(tmp_path: Path) -> None:
    made = dragoman_at_home(tmp_path, "token", "create", "--name", "ann")
    assert made.returncode == 0, made.stderr
    async with asyncio.timeout(60), server(tmp_path, "scripted:") as (client, _):
        for number in range(WRONG_PER_MINUTE + 1):
            tried = await client.get("/tools", headers=WRONG | {"x-forwarded-for": f"198.51.100.{number}"})
        assert tried.status_code == 429


async def test_strangers_cannot_fill_the_audit(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted([])) as served:
        await bearer(served, "ann")
        for number in range(NOTED_PER_MINUTE + 20):
            refused = await served.client.get("/", headers=WRONG | {"x-forwarded-for": f"198.51.100.{number}"})
            assert refused.status_code == 401
        assert len(await served.services.store.audit(1 << 40, 1000)) == NOTED_PER_MINUTE


async def test_requests_per_minute(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann = await bearer(served, "ann", budget='{"requests_per_minute": 3}')
        bob = await bearer(served, "bob")
        asked = [await served.client.get("/sessions", headers=ann) for _ in range(5)]
        assert [response.status_code for response in asked] == [200, 200, 200, 429, 429]
        error = asked[-1].json()["error"]
        assert error["code"] == "too_many_requests" and time.time() < error["reset"] <= time.time() + 60
        assert 0 < int(asked[-1].headers["retry-after"]) <= 60
        assert (await served.client.get("/sessions", headers=bob)).status_code == 200


EXPIRIES = [
    ("30d", NOW + 30 * 86_400),
    ("12h", NOW + 12 * 3600),
    ("90m", NOW + 5400),
    ("2028-01-01", 1_830_297_600.0),
    ("2028-01-01T01:00:00+01:00", 1_830_297_600.0),
    ("2028-01-01T00:00:00Z", 1_830_297_600.0),
]


@pytest.mark.parametrize(("text", "at"), EXPIRIES)
def test_when_a_token_expires(text: str, at: float) -> None:
    assert expiry(text, NOW) == at


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "0d",
        "-1d",
        "1.5h",
        "9999999d",
        "2027-01-15",
        "9999-12-31",
        "0001-01-01T00:00:00+23:59",
        "tomorrow",
        "\u0663d",
    ],
)
def test_what_is_no_expiry(text: str) -> None:
    with pytest.raises(ValueError, match="30d, 12h or 90m"):
        expiry(text, NOW)


@pytest.mark.parametrize("name", ["a", "Ann", "ci-runner_2", "a.b", "x" * 64, "_", "7"])
def test_names(name: str) -> None:
    assert checked_name(name) == name


def said(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return dragoman_at_home(folder, "token", *words)


def test_the_command_line_makes_lists_and_revokes(tmp_path: Path) -> None:
    limits = ("--max-runs", "2", "--requests-per-minute", "9", "--tokens-per-month", "5", "--tool-seconds-per-day", "7")
    some = ("--tools", "read_*", "list_*", "--disabled", "bash", "--expires", "12h", *limits, "--cost-per-month", "2.5")
    first = said(tmp_path, "create", "--name", "bob", "--role", "guest", *some)
    assert first.returncode == 0 and first.stdout.startswith("dgm_") and "guest" in first.stdout
    second = said(tmp_path, "create", "--name", "bob")
    assert (second.returncode, "dragoman token revoke bob" in second.stderr, second.stdout) == (1, True, "")
    assert "is revoked" in said(tmp_path, "revoke", "bob").stdout
    assert said(tmp_path, "revoke", "bob").returncode == 1
    assert said(tmp_path, "create", "--name", "bob").returncode == 0
    listing = said(tmp_path, "list").stdout
    _, revoked, active = listing.splitlines()
    assert revoked.split()[:3] == ["bob", "guest", "revoked"] and revoked.split()[-3:] == ["read_*", "list_*", "bash"]
    assert active.split()[:3] == ["bob", "user", "active"] and "never" in active
    assert "dgm_" not in listing


WORDS = {
    "--role": ("root", "invalid choice"),
    "--expires": ("soon", "30d, 12h or 90m"),
    "--tools": ("", "a pattern of tools"),
    "--max-runs": ("0", "a whole number above 0"),
    "--requests-per-minute": (f"{1:020}{10**9}", "a whole number above 0"),
    "--tokens-per-month": ("9" * 5000, "a whole number above 0"),
    "--cost-per-month": ("1e3", "a number above 0"),
}


@pytest.mark.parametrize("flag", WORDS)
def test_a_wrong_word_is_told(tmp_path: Path, flag: str) -> None:
    word, told = WORDS[flag]
    ended = said(tmp_path, "create", "--name", "bob", flag, word)
    assert (ended.returncode, told in ended.stderr, "Traceback" in ended.stderr) == (2, True, False)


def test_another_bind_wants_a_token_that_is_in_use(tmp_path: Path) -> None:
    said(tmp_path, "create", "--name", "bob")
    said(tmp_path, "revoke", "bob")
    serve = ("serve", "--host", "0.0.0.0", "--port", "0", "--workspace", str(tmp_path / "work"))
    ended = dragoman_at_home(tmp_path, *serve, "--model-url", "scripted:")
    assert (ended.returncode, "dragoman token create --name NAME" in ended.stderr) == (1, True)
