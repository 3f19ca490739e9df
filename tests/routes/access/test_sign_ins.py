"""Sign-ins that last: a cookie and a key, each worth nothing alone; they end with their token, and when asked to."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from app.models.scripted import Scripted
from app.storage.people.sign_ins import SignInRow
from app.storage.tokens import TokenRevoked
from routes.access.sign_ins import MOST, SIGN_IN_HEADER
from routes.access.token_text import fingerprint
from tests.support.access.people import LIMIT_S, bearer
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Browser:
    """What a browser has kept of a sign-in."""

    id: str
    key: str
    cookie: str
    attributes: str

    @property
    def headers(self) -> dict[str, str]:
        return {SIGN_IN_HEADER: self.key, "cookie": self.cookie}


async def kept_signed_in(served: Served, token: dict[str, str], **more: str) -> Browser:
    answer = await served.client.post("/sign-ins", headers=token | more)
    assert answer.status_code == 201, answer.text
    cookie, _, attributes = answer.headers["set-cookie"].partition("; ")
    served.client.cookies.clear()  # each test sends what it means to
    return Browser(answer.json()["id"], answer.json()["key"], cookie, attributes.lower())


async def status(served: Served, headers: dict[str, str], path: str = "/sessions") -> int:
    return (await served.client.get(path, headers=headers)).status_code


async def test_a_browser_is_let_in_with_its_cookie_and_its_key_only(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann = await bearer(served, "ann")
        one, other = await kept_signed_in(served, ann), await kept_signed_in(served, ann)
        assert await status(served, one.headers) == 200
        wrong = [
            {SIGN_IN_HEADER: one.key},
            {"cookie": one.cookie},
            {SIGN_IN_HEADER: one.key, "cookie": other.cookie},
            {SIGN_IN_HEADER: other.key, "cookie": one.cookie},
            {SIGN_IN_HEADER: one.key, "cookie": other.cookie.replace(other.id, one.id)},
            {SIGN_IN_HEADER: one.id, "cookie": one.cookie},
            {SIGN_IN_HEADER: "x" * 5000, "cookie": one.cookie},
            {SIGN_IN_HEADER: f"{one.id}.{'A' * 43}", "cookie": f"dragoman-{one.id}={'A' * 43}"},
        ]
        for headers in wrong:
            answer = await served.client.get("/sessions", headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized"), headers
        assert "httponly" in one.attributes and "samesite=strict" in one.attributes and "path=/" in one.attributes
        assert "max-age=2592000" in one.attributes and "secure" not in one.attributes and "domain" not in one.attributes
        [row] = [row for row in await served.services.store.sign_ins() if row.id == one.id]
        assert one.key.partition(".")[2] not in repr(row) and one.cookie.partition("=")[2] not in repr(row)


async def test_over_https_the_cookie_is_kept_from_http_and_from_other_hosts(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        origin = f"https://{served.client.base_url.netloc.decode()}"
        browser = await kept_signed_in(served, await bearer(served, "ann"), origin=origin)
        assert browser.cookie.startswith("__Host-dragoman-") and "secure" in browser.attributes
        assert await status(served, browser.headers) == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"origin": "http://localhost:1"}, "wrong_origin"),
        ({"origin": "null"}, "wrong_origin"),
        ({"sec-fetch-site": "same-site"}, "wrong_site"),
        ({"sec-fetch-site": "cross-site"}, "wrong_site"),
    ],
)
async def test_another_page_cannot_use_the_cookie(tmp_path: Path, headers: dict[str, str], code: str) -> None:
    """Not even one that knew the key; and without it the cookie alone admits nothing, whatever the page may send."""
    async with serving(tmp_path, Scripted([])) as served:
        browser = await kept_signed_in(served, await bearer(served, "ann"))
        answer = await served.client.post("/sign-ins", headers=browser.headers | headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)
        simple = {"cookie": browser.cookie, "content-type": "text/plain"}
        assert (await served.client.post("/chat", headers=simple, content='{"message": "x"}')).status_code == 401


async def test_a_sign_in_ends_with_its_token(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann, root = await bearer(served, "ann"), await bearer(served, "root", "admin")
        browser = await kept_signed_in(served, ann)
        assert await status(served, browser.headers, "/tokens") == 403  # the rights are those of the token
        assert (await served.client.delete("/tokens/ann", headers=root)).status_code == 204
        assert await status(served, browser.headers) == 401
        assert not await served.services.store.sign_ins("ann")
        again = await kept_signed_in(served, await bearer(served, "ann"))
        assert await status(served, again.headers) == 200
        assert await status(served, browser.headers) == 401  # nor does a new token bring it back
        await served.services.store.write([TokenRevoked(fingerprint(ann["authorization"][7:]), 1.0)])


async def test_a_sign_in_is_listed_and_ended_by_its_owner_and_admins_only(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann, bob, root = [await bearer(served, *who) for who in (("ann",), ("bob", "guest"), ("root", "admin"))]
        first = await kept_signed_in(served, ann, **{"user-agent": "Mozilla/5.0 (X11; Linux) \tFirefox/140.0"})
        second = await kept_signed_in(served, ann)
        rows = (await served.client.get("/sign-ins", headers=second.headers)).json()["sign_ins"]
        assert [(row["id"], row["current"]) for row in rows] == [(second.id, True), (first.id, False)]
        assert rows[1]["device"] == "Mozilla/5.0 (X11; Linux) Firefox/140.0"
        assert (await served.client.get("/sign-ins?principal=ann", headers=bob)).status_code == 403
        assert len((await served.client.get("/sign-ins?principal=ann", headers=root)).json()["sign_ins"]) == 2
        assert (await served.client.delete(f"/sign-ins/{first.id}", headers=bob)).status_code == 404
        assert (await served.client.delete(f"/sign-ins/{first.id}", headers=root)).status_code == 404
        assert (await served.client.delete(f"/sign-ins/{first.id}", headers=ann)).status_code == 204
        assert await status(served, first.headers) == 401
        ended = await served.client.delete(f"/sign-ins/{second.id}", headers=second.headers)
        assert "max-age=0" in ended.headers["set-cookie"].lower()
        assert await status(served, second.headers) == 401
        third = await kept_signed_in(served, ann)
        assert (await served.client.delete("/sign-ins?principal=ann", headers=bob)).status_code == 403
        assert (await served.client.delete("/sign-ins?principal=ann", headers=root)).status_code == 204
        assert await status(served, third.headers) == 401
        decisions = [(row.action, row.decision, row.by) for _, row in await served.services.store.audit(10**9, 100)]
        assert ("sign_in", "made", "ann") in decisions and ("sign_in", "ended", "root") in decisions


async def test_streams_of_a_browser_end_with_its_sign_in(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        ann = await bearer(served, "ann")
        browser = await kept_signed_in(served, ann)
        stream = served.client.stream("GET", "/events", headers=browser.headers)
        async with stream as events, served.client.stream("GET", "/events", headers=ann) as others:
            pieces, kept = events.aiter_bytes(), others.aiter_bytes()
            await anext(pieces)
            await anext(kept)
            assert (await served.client.delete(f"/sign-ins/{browser.id}", headers=ann)).status_code == 204
            with pytest.raises((StopAsyncIteration, httpx2.RemoteProtocolError)):
                while True:
                    await anext(pieces)
            assert served.services.presence.streams("ann") == 1


async def test_a_sign_in_makes_no_other_and_there_are_at_most_so_many(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann = await bearer(served, "ann")
        first = await kept_signed_in(served, ann)
        refused = await served.client.post("/sign-ins", headers=first.headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_token")
        sha = fingerprint(ann["authorization"].removeprefix("Bearer "))
        rows = [SignInRow(f"sgn_{n}", "0" * 64, sha, "ann", "", 1.0 + n, 1.0, time.time() + 3600) for n in range(MOST)]
        await served.services.store.write(rows)
        await kept_signed_in(served, ann)
        ids = {row.id for row in await served.services.store.sign_ins("ann")}
        assert len(ids) == MOST and "sgn_0" not in ids and first.id in ids


async def test_expired_ones_admit_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        ann = await bearer(served, "ann")
        secret, key = "A" * 43, "B" * 43
        sha = fingerprint(ann["authorization"].removeprefix("Bearer "))
        rows = [
            SignInRow(f"sgn_{letter * 16}", fingerprint(f"{secret}.{key}"), sha, "ann", "", 1.0, 1.0, expires)
            for letter, expires in (("a", time.time() + 3600), ("b", time.time() - 1))
        ]
        await served.services.store.write(rows)
        found = [
            await status(served, {SIGN_IN_HEADER: f"{row.id}.{key}", "cookie": f"dragoman-{row.id}={secret}"})
            for row in rows
        ]
        assert found == [200, 401]
        [seen] = [row.seen for row in await served.services.store.sign_ins() if row.id == rows[0].id]
        assert seen > time.time() - 60  # its use is noted


async def test_wrong_ones_are_slowed_down_like_wrong_tokens(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        await bearer(served, "ann")
        wrong = {SIGN_IN_HEADER: f"sgn_{'a' * 16}.{'B' * 43}"}
        found = [await status(served, wrong) for _ in range(11)]
        assert found == [401] * 10 + [429]


async def test_the_operator_can_switch_them_off_or_shorten_them(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([]), sign_in_days=0) as served:
        answer = await served.client.post("/sign-ins", headers=await bearer(served, "ann"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "sign_in_off")
    async with serving(tmp_path, Scripted([]), sign_in_days=2) as served:
        ann = await bearer(served, "ann")
        for days, kept in ((1, 1), (9, 2)):
            row = (await served.client.post("/sign-ins", headers=ann, json={"days": days})).json()
            assert round((row["expires"] - row["created"]) / 86_400) == kept
        assert (await served.client.post("/sign-ins", headers=ann, json={"days": 0})).status_code == 422


async def test_without_tokens_there_is_nothing_to_keep(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        answer = await served.client.post("/sign-ins")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_token")


async def test_another_server_of_the_database_knows_a_sign_in(tmp_path: Path) -> None:
    """Nothing of it is in one process: a restarted server lets the same browser in."""
    async with serving(tmp_path, Scripted([])) as served:
        browser = await kept_signed_in(served, await bearer(served, "ann"))
    async with serving(tmp_path, Scripted([])) as served:
        assert await status(served, browser.headers) == 200
