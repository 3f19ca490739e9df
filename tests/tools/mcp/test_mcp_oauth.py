from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.auth import OAuthFlowError

from tests.support.mcp.oauth import CALLBACK, WITHIN_S, Resource, callback_of, closed_server
from tools.mcp.auth.oauth import SignIns
from tools.mcp.auth.sign_in import refuse_open
from tools.mcp.model import NeedsAuth, ServerConfig, SignInFailed

pytestmark = pytest.mark.anyio


class Person:
    """Somebody at a server, whose tokens are in a folder; with the same folder, one after a restart."""

    def __init__(self, resource: Resource, folder: Path, callback: str = CALLBACK) -> None:
        self.secrets: list[str] = []
        self.sign_ins = SignIns(folder, callback, on_secret=self.secrets.append)
        self.resource = resource
        self.config = ServerConfig("closed", "http", url=resource.url)

    async def get(self, config: ServerConfig | None = None) -> str:
        """The page, or NeedsAuth."""
        auth = self.sign_ins.auth(config or self.config)
        async with httpx2.AsyncClient(auth=auth, timeout=WITHIN_S, trust_env=False) as client:
            answer = await client.get(self.resource.url.replace("/mcp", "/page"))
            return answer.raise_for_status().text

    async def asked_to_open(self) -> str:
        with pytest.raises(NeedsAuth) as needs:
            await self.get()
        return needs.value.url

    async def sign_in(self) -> None:
        came_back = await callback_of(await self.asked_to_open())
        assert self.sign_ins.finish(came_back["state"], came_back["code"], came_back.get("iss")) == "closed"
        assert await self.get() == "welcome"


@asynccontextmanager
async def visitor(tmp_path: Path) -> AsyncGenerator[Person, None]:
    async with closed_server() as resource:
        person = Person(resource, tmp_path / "tokens")
        try:
            yield person
        finally:
            await person.sign_ins.close()


async def restarted(person: Person, tmp_path: Path, callback: str = CALLBACK) -> Person:
    await person.sign_ins.close()
    return Person(person.resource, tmp_path / "tokens", callback)


async def test_a_person_opens_the_page_and_the_next_request_is_let_in(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        await person.sign_in()
        assert person.resource.issuer.granted == ["authorization_code"]
        assert not person.resource.misled


async def test_whoever_asks_meanwhile_is_shown_the_same_page(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        page = await person.asked_to_open()
        assert {await person.asked_to_open(), await person.asked_to_open()} == {page}
        assert len(person.resource.issuer.clients) == 1


async def test_a_restart_asks_nobody(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        await person.sign_in()
        person = await restarted(person, tmp_path)
        assert await person.get() == "welcome"
        assert person.resource.issuer.granted == ["authorization_code"]


async def test_tokens_that_ended_while_the_server_was_down_are_renewed_where_they_came_from(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        person.resource.issuer.lifetimes = [3600, -1, 3600]
        await person.sign_in()
        person.resource.issuer.tokens.clear()
        await person.sign_ins.close()
        assert await (await restarted(person, tmp_path)).get() == "welcome"  # refused, renewed
        assert await (await restarted(person, tmp_path)).get() == "welcome"  # known to have ended, renewed at once
        assert person.resource.issuer.granted == ["authorization_code", "refresh_token", "refresh_token"]
        assert person.resource.refused == 2  # before the sign-in, and the token that was not known to have ended
        assert not person.resource.misled


async def test_five_refused_at_once_renew_once_and_run_side_by_side(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person, asyncio.timeout(WITHIN_S):
        await person.sign_in()
        person.resource.issuer.tokens.clear()
        person.resource.wait = True
        calls = [asyncio.create_task(person.get()) for _ in range(5)]
        for _ in calls:
            await person.resource.waiting.acquire()  # all five are let in before the first is answered
        person.resource.go.set()
        assert await asyncio.gather(*calls) == ["welcome"] * 5
        assert person.resource.issuer.granted == ["authorization_code", "refresh_token"]


async def test_a_call_that_is_cancelled_does_not_take_the_new_tokens_with_it(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person, asyncio.timeout(WITHIN_S):
        await person.sign_in()
        person.resource.issuer.tokens.clear()
        person.resource.issuer.go.clear()
        call = asyncio.create_task(person.get())
        await person.resource.issuer.taken.wait()  # the old refresh token is worth nothing any more
        call.cancel()
        await asyncio.wait({call})
        person.resource.issuer.go.set()
        assert await person.get() == "welcome"
        assert person.resource.issuer.granted == ["authorization_code", "refresh_token"]


async def test_an_issuer_that_is_down_costs_no_sign_in(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        await person.sign_in()
        person.resource.issuer.tokens.clear()
        person.resource.issuer.down = True
        with pytest.raises(Exception, match="503; the tokens are kept"):
            await person.get()
        person.resource.issuer.down = False
        assert await person.get() == "welcome"
        assert person.resource.issuer.granted == ["authorization_code", "refresh_token"]


async def test_a_revoked_permission_asks_a_person_again(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        await person.sign_in()
        person.resource.issuer.tokens.clear()
        person.resource.issuer.refreshers.clear()
        await person.asked_to_open()
        person = await restarted(person, tmp_path)
        await person.sign_in()
        assert person.resource.issuer.asked.count("/register") == 1


async def test_another_callback_registers_anew(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        await person.sign_in()
        person.resource.issuer.tokens.clear()
        person.resource.issuer.refreshers.clear()
        person = await restarted(person, tmp_path, CALLBACK.replace("8724", "8725"))
        await person.sign_in()
        assert person.resource.issuer.asked.count("/register") == 2


async def test_only_the_owner_reads_the_tokens_and_the_redactor_hears_them(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        await person.sign_in()
        [file] = (tmp_path / "tokens").iterdir()
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        [kept] = json.loads(file.read_text())["issuers"].values()
        assert {kept["tokens"]["access_token"], kept["tokens"]["refresh_token"]} <= set(person.secrets)


async def test_servers_do_not_share_tokens(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        await person.sign_in()
        with pytest.raises(NeedsAuth):
            await person.get(ServerConfig("other", "http", url=person.config.url))


async def test_signing_out_forgets(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        await person.sign_in()
        await person.sign_ins.forget("closed")
        await person.asked_to_open()


@pytest.mark.parametrize("state", ["", "guessed", "\N{SNOWMAN}"])
async def test_a_callback_that_nobody_waits_for_says_so(tmp_path: Path, state: str) -> None:
    async with visitor(tmp_path) as person:
        await person.asked_to_open()
        with pytest.raises(SignInFailed, match="Reconnect the server"):
            person.sign_ins.finish(state, "code")


async def test_a_callback_counts_once(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        came_back = await callback_of(await person.asked_to_open())
        person.sign_ins.finish(came_back["state"], came_back["code"])
        with pytest.raises(SignInFailed):
            person.sign_ins.finish(came_back["state"], "another")
        assert await person.get() == "welcome"


async def test_a_person_who_refuses_is_believed_and_may_try_again(tmp_path: Path) -> None:
    async with visitor(tmp_path) as person:
        state = parse_qs(urlsplit(await person.asked_to_open()).query)["state"][0]
        assert person.sign_ins.refuse(state, "access_denied") == "closed"
        with pytest.raises(SignInFailed, match="access_denied"):
            await person.get()
        await person.sign_in()


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://issuer.example/token", True),
        ("http://localhost:8/token", True),
        ("http://127.0.0.1:8/token", True),
        ("http://[::1]:8/token", True),
        ("http://issuer.example/token", False),
        ("http://10.0.0.1/token", False),
        ("http://localhost.example/token", False),
        ("ftp://issuer.example/token", False),
    ],
)
def test_codes_and_tokens_go_over_https_or_stay_here(url: str, good: bool) -> None:
    with nullcontext() if good else pytest.raises(OAuthFlowError, match="https is needed"):
        refuse_open(url)


def test_an_entry_that_signs_itself_needs_no_sign_in(tmp_path: Path) -> None:
    sign_ins = SignIns(tmp_path, CALLBACK)
    assert (
        sign_ins.auth(ServerConfig("a", "http", url="http://127.0.0.1/", headers={"authorization": "Bearer x"})) is None
    )
    assert sign_ins.auth(ServerConfig("b", command="true")) is None
