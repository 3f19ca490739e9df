"""Lasting sign-ins at several servers of one database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from routes.access.oidc import LOGOUT_EVENT
from routes.access.sign_ins import SIGN_IN_HEADER
from tests.support.access.identity import Browser, configure, fake_issuer
from tests.support.databases.postgres import Cluster
from tests.support.nightly import only_at_night
from tests.support.replicas.servers import three_replicas

pytestmark = pytest.mark.anyio
LIMIT_S = 120


@only_at_night
async def test_a_sign_in_of_one_server_holds_and_ends_at_all(tmp_path: Path, postgres: Cluster) -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        three_replicas(tmp_path, postgres.database(), None, "--model-url", "scripted:", count=2) as replicas,
    ):
        one, other = replicas.members
        made = await one.client.post("/tokens", json={"name": "ann"})
        ann = {"authorization": f"Bearer {made.json()['token']}"}
        answer = await one.client.post("/sign-ins", headers=ann)
        cookie = answer.headers["set-cookie"].partition(";")[0]
        signed_in = {SIGN_IN_HEADER: answer.json()["key"], "cookie": cookie}
        async with httpx2.AsyncClient(base_url=other.base_url, timeout=LIMIT_S) as browser:
            assert (await browser.get("/sessions", headers=signed_in)).status_code == 200
            async with browser.stream("GET", "/events", headers=signed_in) as events:
                pieces = events.aiter_bytes()
                await anext(pieces)
                ended = await one.client.delete(f"/sign-ins/{answer.json()['id']}", headers=ann)
                assert ended.status_code == 204
                assert (await browser.get("/sessions", headers=signed_in)).status_code == 401
                with pytest.raises((StopAsyncIteration, httpx2.RemoteProtocolError)):
                    while True:
                        await anext(pieces)  # the other server looks every two seconds
            disabled = await one.client.patch("/people/ann", json={"disabled": True})
            assert disabled.json()["state"] == "disabled"
            assert (await browser.get("/sessions", headers=ann)).status_code == 401


@only_at_night
async def test_a_sign_in_at_a_provider_begins_at_one_server_and_ends_at_another(
    tmp_path: Path, postgres: Cluster
) -> None:
    async with asyncio.timeout(LIMIT_S), fake_issuer() as issuer:
        configure(tmp_path, issuer.url)
        file = tmp_path / "dragoman.toml"
        file.write_text(file.read_text().replace('client_secret = "env:OIDC_SECRET"', ""))  # a public client
        flags = ("--model-url", "scripted:", "--config", str(file))
        async with three_replicas(tmp_path, postgres.database(), None, *flags, count=2) as replicas:
            one, other = replicas.members
            async with httpx2.AsyncClient(base_url=one.base_url, timeout=LIMIT_S) as here:
                browser = Browser(here, here, "ann")
                asked = dict(parse_qsl(urlsplit(await browser.begin()).query))
                issuer.nonce, here.base_url = asked["nonce"], httpx2.URL(other.base_url)
                assert (await browser.finish({"state": asked["state"], "code": "c"})).status_code == 201
                here.base_url = httpx2.URL(one.base_url)
                assert await browser.status() == 200
                token = issuer.signed(issuer.claims(events={LOGOUT_EVENT: {}}))
                out = await other.client.post("/oidc/backchannel-logout", data={"logout_token": token})
                assert out.status_code == 200 and await browser.status() == 401
