"""Sign-in at an OpenID provider: oidc-provider of npm, whose pages are sent as a browser would."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from app.config.settings import load_settings
from app.models.scripted import Scripted
from app.redaction.redactor import Redactor
from routes.access.sign_ins import SIGN_IN_HEADER, cookie_name
from routes.cli.doctor.finding import Finding, State, Subject, ok
from routes.cli.doctor.network import identity_provider
from routes.http.people.oidc import FLOW_S, Flow
from tests.support.access.identity import SECRET, STAFF, People, browsing_as, configure, real_provider
from tests.support.access.people import LIMIT_S, bearer
from tests.support.replicas.nginx import free_port
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)


@asynccontextmanager
async def server_with_provider(folder: Path, people: People, *more: str) -> AsyncGenerator[tuple[Served, str], None]:
    issuer = f"http://localhost:{(port := free_port())}"
    configure(folder, issuer, *more)
    async with asyncio.timeout(2 * LIMIT_S), serving(folder, Scripted([])) as served:
        async with real_provider(port, people, served):
            yield served, issuer


async def put_people(issuer: str, people: str) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        assert (await client.post(f"{issuer}/people", params={"people": people})).status_code == 200


def code_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("error", {}).get("code", "")


async def test_people_sign_in_with_the_role_of_their_groups(tmp_path: Path) -> None:
    people: dict[str, dict[str, Any]] = {"1": {"preferred_username": "Ann Lee"} | STAFF}
    people["2"] = {"preferred_username": "root", "groups": ["chiefs"]}
    async with server_with_provider(tmp_path, people) as (served, issuer):
        assert (await served.client.get("/sessions")).status_code == 401  # there is no local admin beside a provider
        assert (await served.client.get("/oidc")).json() == {"label": "Example"}
        token = await bearer(served, "root", "admin")
        async with browsing_as(served, "1") as ann, browsing_as(served, "2") as chief:
            finished = await ann.sign_in()
            assert finished.status_code == 201, finished.text
            assert finished.json()["logout"].startswith(f"{issuer}/session/end?client_id=dragoman&post_logout")
            assert "code" not in str(finished.json()) and "httponly" in finished.headers["set-cookie"].lower()
            assert await ann.status() == 200 and await ann.status("/people") == 403
            assert (await chief.sign_in()).status_code == 201 and await chief.status("/people") == 200
            listed = (await served.client.get("/people", headers=token)).json()["people"]
            assert {(row["name"], row["role"], row["by"]) for row in listed} == {
                ("Ann-Lee", "user", "oidc"),
                ("root", "admin", "token"),
                ("root-2", "admin", "oidc"),  # the name of a token, and with it its conversations, is not given again
            }
            # The same person by another name, with another role; then with none; then disabled by an admin.
            await put_people(issuer, '{"1": {"preferred_username": "root", "groups": ["chiefs"]}}')
            assert (await ann.sign_in()).status_code == 201 and await ann.status("/people") == 200
            await put_people(issuer, '{"1": {"groups": ["other"]}}')
            assert code_of(await ann.sign_in()) == (403, "not_admitted")
            await put_people(issuer, '{"1": {"groups": ["staff"]}}')
            assert (await served.client.patch("/people/Ann-Lee", headers=token, json={"disabled": True})).is_success
            assert code_of(await ann.sign_in()) == (403, "not_admitted") and await ann.status() == 401
            # A person of the provider is no token: the key of the row lets none in.
            for row in await served.services.store.tokens():
                for given in (row.sha256, row.sha256.partition(":")[2] or "x"):
                    headers = {"authorization": f"Bearer {given}"}
                    assert (await served.client.get("/sessions", headers=headers)).status_code == 401
            log = [(row.principal, row.decision, row.by) for _, row in await served.services.store.audit(10**9, 100)]
            assert {("Ann-Lee", "made", "oidc"), ("Ann-Lee", "changed", "oidc"), ("", "refused", "oidc")} <= set(log)


async def test_an_answer_is_worth_something_in_its_own_browser_page_and_time_only(tmp_path: Path) -> None:
    async with server_with_provider(tmp_path, {"1": STAFF, "2": STAFF}) as (served, _):
        async with browsing_as(served, "1") as ann, browsing_as(served, "2") as mallory:
            answer = await ann.answer_of(await ann.begin())
            of_mallory = await mallory.answer_of(await mallory.begin())
            tried: list[tuple[int, str]] = []
            # Another browser; another page; a foreign sign-in in this one (login CSRF); a code put into another flow.
            tried.append(code_of(await mallory.finish(answer)))
            tried.append(code_of(await ann.finish(answer, key="0" * 64)))
            tried.append(code_of(await ann.finish(of_mallory)))
            assert tried == [(403, "sign_in_expired")] * 3
            assert code_of(await ann.finish(answer, code=of_mallory["code"])) == (403, "provider_refused")
            assert code_of(await ann.finish(answer, code="made-up")) == (403, "provider_refused")
            cookies = dict(ann.here.cookies)
            assert (await ann.finish(answer)).status_code == 201 and await ann.status() == 200
            assert code_of(await ann.finish(answer)) == (403, "sign_in_expired")  # its cookie is gone
            ann.here.cookies.update(cookies)
            assert code_of(await ann.finish(answer)) == (
                403,
                "provider_refused",
            )  # the code was used before
            old = Flow(f"{int(time.time()) - FLOW_S - 1}-x", "s" * 43, ann.key)
            ann.here.cookies.set(cookie_name(f"oidc-{old.id}", secure=False), old.secret)
            assert code_of(await ann.finish({"state": old.state, "code": "c"})) == (403, "sign_in_expired")
            for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
                for path in ("/oidc/begin", "/oidc/finish"):
                    assert (await served.client.post(path, headers=headers, json={"key": ann.key})).status_code == 403
            link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
            led = await served.client.get("/oidc/callback?state=a&code=b&next=//evil.example", headers=link)
            assert (led.status_code, led.headers["location"].partition("#")[0]) == (303, "/")
            pinned = dict(parse_qsl(urlsplit(await ann.begin()).query))
            assert pinned["code_challenge_method"] == "S256" and pinned["redirect_uri"].endswith("/oidc/callback")


async def test_the_end_of_the_session_there_ends_the_sign_in_here(tmp_path: Path) -> None:
    async with server_with_provider(tmp_path, {"1": STAFF, "2": STAFF}) as (served, issuer):
        async with browsing_as(served, "1") as ann, browsing_as(served, "1") as other, browsing_as(served, "2") as bob:
            for browser in (ann, other, bob):
                assert (await browser.sign_in()).status_code == 201
            async with ann.here.stream("GET", "/events", headers={SIGN_IN_HEADER: ann.kept}) as events:
                pieces = events.aiter_bytes()
                await anext(pieces)
                await ann.sign_out_there(issuer)
                assert [await one.status() for one in (ann, other, bob)] == [401, 200, 200]
                with pytest.raises((StopAsyncIteration, httpx2.RemoteProtocolError)):
                    while True:
                        await anext(pieces)


async def test_new_keys_and_a_provider_that_is_down(tmp_path: Path) -> None:
    port = free_port()
    configure(tmp_path, f"http://localhost:{port}")
    async with asyncio.timeout(2 * LIMIT_S), serving(tmp_path, Scripted([])) as served, browsing_as(served, "1") as ann:
        loaded = load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path)
        subject = Subject({"OIDC_SECRET": SECRET}, loaded, Redactor())
        async with real_provider(port, {"1": STAFF}, served):
            assert (await ann.sign_in()).status_code == 201
            assert await identity_provider(subject) == ok(f"http://localhost:{port} answers")
            found = await identity_provider(Subject({}, loaded, Redactor()))
            assert isinstance(found, Finding) and "oidc.client_secret is missing from env:OIDC_SECRET" in found.found
        found = await identity_provider(subject)
        assert isinstance(found, Finding) and found.state is State.PROBLEM
        answer = await ann.finish({"state": "", "code": "c"})
        assert code_of(answer) == (403, "sign_in_expired")
        [provider] = [served.services.provider]
        assert provider
        provider._metadata = (-1e9, {})  # as an hour later
        down = await ann.here.post("/oidc/begin", json={"key": ann.key})
        assert code_of(down) == (502, "provider_unavailable") and "access tokens work" in down.text
        assert await ann.status() == 200
        provider._keys_tried -= 60  # as a minute later
        async with real_provider(port, {"1": STAFF}, served):
            ann.there.cookies.clear()
            assert (await ann.sign_in()).status_code == 201  # with a key that was not there at the first one


async def test_without_the_provider_its_sign_ins_are_worth_nothing(tmp_path: Path) -> None:
    async with server_with_provider(tmp_path, {"1": STAFF}) as (served, _), browsing_as(served, "1") as ann:
        assert (await ann.sign_in()).status_code == 201
    (tmp_path / "dragoman.toml").unlink()
    async with serving(tmp_path, Scripted([])) as served, browsing_as(served) as again:
        again.kept, again.here.cookies = ann.kept, ann.here.cookies
        assert await again.status() == 401


async def test_who_may_enter_can_be_narrowed_to_domains(tmp_path: Path) -> None:
    people: dict[str, dict[str, Any]] = {"1": STAFF, "2": STAFF | {"email_verified": False}}
    people["3"] = STAFF | {"email": "a@example.org.evil.example"}
    more = ('domains = ["example.org"]', 'name_claim = "email"')
    async with server_with_provider(tmp_path, people, *more) as (served, _):
        seen = []
        for login in people:
            async with browsing_as(served, login) as browser:
                seen.append(code_of(await browser.sign_in()))
        assert seen == [(201, ""), (403, "not_admitted"), (403, "not_admitted")]
        assert [row.name for row in await served.services.store.tokens()] == ["a-example.org"]
