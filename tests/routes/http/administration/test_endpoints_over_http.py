"""GET, POST and DELETE /endpoints: who sees what of the models, and what admins do about them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.models.endpoints import LIMIT_S, NOWHERE, listing, model_server, running_server
from tests.support.models.upstream import answer, hang, upstream
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
KEY = "sk-a-secret-that-nobody-sees"


async def listed(served: Served, **headers: str) -> dict[str, dict[str, Any]]:
    answer = await served.client.get("/endpoints", headers=headers)
    assert answer.status_code == 200
    return {one["name"]: one for one in answer.json()["endpoints"]}


async def test_an_endpoint_from_beginning_to_end(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), model_server("qwen") as server, serving(tmp_path, Scripted(["x"])) as served:
        body = {"name": "hosted", "url": server.base_url, "model": "qwen", "keys": [KEY]}
        added = await served.client.post("/endpoints", json=body)
        assert (added.status_code, added.json()["name"], added.json()["origin"]) == (201, "hosted", "added")
        events = await served.chat(model="hosted/qwen")
        assert (events[0]["model"], events[-1]["text"]) == ("qwen", "Hi")
        assert server.asked[-1].headers["authorization"] == f"Bearer {KEY}"
        row = (await listed(served))["hosted"]
        assert (row["default"], row["kind"], row["url"]) == (False, "openai-compatible", server.base_url)
        assert (row["state"], row["keys"]["count"], row["last_error"]) == ("ok", 1, None)
        [model] = row["models"]
        assert (model["name"], model["default"], model["window"]) == ("qwen", False, 32_768)
        assert all(set(ability) == {"name", "value", "source", "detail"} for ability in model["abilities"])
        removed = await served.client.delete("/endpoints/hosted")
        assert removed.status_code == 204
        lost = await served.client.post("/chat", json={"message": "x", "model": "hosted/qwen"})
        assert (lost.status_code, lost.json()["error"]["code"]) == (422, "unknown_model")
        audit = (await served.client.get("/audit")).json()["audit"]
        assert [(row["action"], row["decision"]) for row in audit[:2]] == [
            ("endpoint hosted", "removed"),
            ("endpoint hosted", "added"),
        ]
        everything = json.dumps([added.json(), events, row, audit])
        assert KEY not in everything
    assert KEY.encode() not in b"".join(file.read_bytes() for file in (tmp_path / "data").glob("dragoman.db*"))


async def test_what_each_role_sees(tmp_path: Path) -> None:
    flags = {"endpoints": json.dumps({"hosted": running_server(model="big")}), "aliases": '{"sharp": "hosted/big"}'}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["x"]), None, **flags) as served:
        people = {role: await bearer(served, role, role) for role in ("guest", "user", "admin")}
        seen = {role: await listed(served, **headers) for role, headers in people.items()}
        all_of_it = (await served.client.get("/endpoints", headers=people["guest"])).json()
    assert seen["guest"]["hosted"] == {"name": "hosted", "models": [{"name": "big"}]}
    assert set(seen["user"]["hosted"]) == {"name", "default", "kind", "models"}
    assert set(seen["admin"]["hosted"]) > {"url", "origin", "problem", "state", "keys", "waiting", "under_way"}
    assert (all_of_it["default"], all_of_it["aliases"]) == ("default/scripted", {"sharp": "hosted/big"})
    assert seen["user"]["default"]["default"] is True


BAD = {
    "no url": ({"name": "a"}, 422, "url is missing"),
    "a variable": ({"name": "a", "url": NOWHERE, "key_env": ["HOME"]}, 422, "key_env: is for the settings"),
    "a file": ({"name": "a", "url": NOWHERE, "key_file": "/etc/passwd"}, 422, "key_file: is for the settings"),
    "a query": ({"name": "a", "url": "http://h/v1?x=1"}, 422, "url: has a query or a fragment"),
    "a password": ({"name": "a", "url": "http://u:p@h/v1"}, 422, "url: is not a plain http(s) URL"),
    "another scheme": ({"name": "a", "url": "file:///etc/passwd"}, 422, "url: is not a plain"),
    "a slash": ({"name": "a/b", "url": NOWHERE}, 422, "an endpoint's name has 1 to 64"),
    "a bad key": ({"name": "a", "url": NOWHERE, "keys": [f"{KEY}\n"[:5] + " " + KEY]}, 422, "One of the keys holds"),
    "of the settings": ({"name": "default", "url": NOWHERE}, 409, "default is in the settings"),
    "unknown": ({"name": "a", "url": NOWHERE, "token": KEY}, 422, "unknown field token"),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_added_says_why_and_repeats_no_key(tmp_path: Path, name: str) -> None:
    body, status, told = BAD[name]
    async with serving(tmp_path, Scripted(["x"])) as served:
        answer = await served.client.post("/endpoints", json=body)
        assert (answer.status_code, told in answer.json()["error"]["message"]) == (status, True), answer.text
        assert KEY not in answer.text
        assert list(await listed(served)) == ["default"]


async def test_what_cannot_be_removed_says_what_to_do(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["x"])) as served:
        codes = {name: await served.client.delete(f"/endpoints/{name}") for name in ("default", "nowhere")}
    assert (codes["default"].status_code, codes["default"].json()["error"]["code"]) == (409, "endpoint_of_settings")
    assert codes["nowhere"].status_code == 404


async def test_what_the_settings_need_is_not_removed(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["x"])) as served:
        await served.client.post("/endpoints", json={"name": "b", "url": NOWHERE, "model": "m"})
    async with serving(tmp_path, Scripted(["x"]), fallback="b/m") as served:
        refused = await served.client.delete("/endpoints/b")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "endpoint_needed")
        assert "The setting fallback names a model of b" in refused.json()["error"]["message"]


async def test_an_endpoint_is_tried_before_it_is_added(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), model_server("qwen") as server, serving(tmp_path, Scripted(["x"])) as served:
        body = {"name": "a", "url": server.base_url, "keys": [KEY], "test": True}
        good = (await served.client.post("/endpoints", json=body)).json()
        odd = (await served.client.post("/endpoints", json=body | {"model": "quen"})).json()
        dead = (await served.client.post("/endpoints", json=body | {"url": NOWHERE})).json()
        assert list(await listed(served)) == ["default"]
    assert good == {"ok": True, "models": ["qwen"], "problem": None}
    assert (odd["ok"], odd["problem"]) == (False, "It does not list quen: check the spelling.")
    assert (dead["ok"], dead["models"]) == (False, [])
    assert "Nothing listens" in dead["problem"]
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}


async def test_each_key_is_tried_and_the_one_that_is_refused_is_named(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["x"])) as served:
        async with upstream(listing("qwen"), answer("{}", 401), answer("{}", 401)) as server:
            body = {"name": "a", "url": server.base_url, "test": True}
            second = (await served.client.post("/endpoints", json=body | {"keys": [KEY, f"{KEY}-2"]})).json()
            none = (await served.client.post("/endpoints", json=body)).json()
    told = "a did not accept key 2 of 2 when listing its models (status 401). Check that key."
    assert second == {"ok": False, "models": ["qwen"], "problem": told}
    assert none["problem"].startswith("a requires a key (status 401). Set key_file")


async def test_a_server_that_repeats_the_key_does_not_make_it_known(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["x"])) as served:
        async with upstream(answer(f'{{"error": "bad key {KEY}"}}', 401), repeat=True) as server:
            body = {"name": "a", "url": server.base_url, "model": "m", "keys": [KEY]}
            tried = await served.client.post("/endpoints", json=body | {"test": True})
            await served.client.post("/endpoints", json=body)
            events = await served.chat(model="a/m")
            rows = await listed(served)
    assert events[-1]["type"] == "run.failed"
    assert KEY not in json.dumps([tried.json(), events, rows])


async def test_a_server_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), upstream(hang, repeat=True) as server:
        endpoints = json.dumps({"slow": running_server(server.base_url)})
        async with serving(tmp_path, Scripted(["x"]), endpoints=endpoints) as served:
            assert (await served.chat())[-1]["text"] == "x"
            assert (await listed(served))["slow"]["models"] == []
