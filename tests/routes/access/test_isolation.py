"""Every route, as everybody: what belongs to somebody does not exist for others, and what is for admins is theirs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.endpoint_spec import EndpointSpec
from app.models.scripted import Scripted
from routes.protocol.errors import SAFE_HEADERS
from tests.support.access.access_table import LOST, OWN_HEADERS, ROWS, TRIED
from tests.support.access.belongings import things_of_ann
from tests.support.access.people import LIMIT_S, bearer
from tests.support.documented.routes import ROUTES
from tests.support.models.replies import in_background, says
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio


EVERYBODYS = ("endpoint", "path", "action")  # names that all may know
OF_ADMINS = ("name",)


def test_the_table_has_every_route_and_no_other() -> None:
    assert {route.name for route in ROUTES} == ROWS.keys() >= TRIED.keys()


def filled(text: str, ids: Mapping[str, str]) -> str:
    for name, value in ids.items():
        text = text.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
    return text


@dataclass(slots=True)
class Asking:
    """Requests of the table's routes. Each seems to come from another address, so that none is slowed down."""

    served: Served
    addresses: Iterator[int]

    async def __call__(self, route: str, headers: Mapping[str, str], ids: Mapping[str, str]) -> httpx2.Response:
        method, path = route.split()
        row, number = ROWS[route], next(self.addresses)
        body = json.loads(filled(json.dumps(row.tried.body), ids))
        forwarded = {"x-forwarded-for": f"10.0.{number // 256}.{number % 256}"}
        asked: dict[str, Any] = {"headers": dict(headers) | forwarded, "json": body}
        if row.route.stream == "page":
            answer = await self._beginning(method, filled(path, ids), asked)
        else:
            answer = await self.served.client.request(method, filled(path, ids), **asked)
        safe = SAFE_HEADERS.keys() - set().union(*(own for end, own in OWN_HEADERS.items() if path.endswith(end)))
        assert {name: answer.headers.get(name) for name in safe} == {name: SAFE_HEADERS[name] for name in safe}, route
        return answer

    async def _beginning(self, method: str, path: str, asked: dict[str, Any]) -> httpx2.Response:
        """Of a stream that has no end."""
        seen = b""
        async with self.served.client.stream(method, path, **asked) as answer:
            async for block in answer.aiter_bytes():
                seen += block
                if b"\n\n" in seen:
                    break
        return httpx2.Response(answer.status_code, headers=answer.headers, content=seen)


async def nobody_comes_in(asking: Asking, strangers: Mapping[str, Mapping[str, str]], ids: Mapping[str, str]) -> None:
    for route, row in ROWS.items():
        for who, headers in strangers.items():
            answer = await asking(route, headers, ids)
            expected = row.ok if row.rights == "open" else 401
            assert answer.status_code == expected, f"{route} as {who}"
            if expected == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
                assert row.route.foreign_errors or answer.json()["error"]["code"] == "unauthorized"
                assert not any(value in answer.text for value in ids.values() if value != "carl"), f"{route} as {who}"


async def others_see_nothing(asking: Asking, others: Mapping[str, Mapping[str, str]], ids: Mapping[str, str]) -> None:
    for route, row in ROWS.items():
        for who, headers in others.items():
            if who == "admin" and (row.rights == "admin" or row.tried.admins):
                continue
            answer = await asking(route, headers, ids)
            match row.rights:
                case "open" | "user":
                    assert answer.status_code == row.ok, f"{route} as {who}"
                    known = EVERYBODYS + (OF_ADMINS if who == "admin" else ())
                    theirs = [value for name, value in ids.items() if name not in known]
                    assert not any(value in answer.text for value in theirs), f"{route} as {who}"
                case "not guests":
                    assert answer.status_code == (403 if who == "guest" else row.ok), f"{route} as {who}"
                case "owner":
                    assert answer.status_code == 404, f"{route} as {who}"
                    assert told(answer, ids) == told(await asking(route, headers, LOST), LOST), f"{route} as {who}"
                case "admin":
                    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), f"{route} {who}"


def told(answer: httpx2.Response, ids: Mapping[str, str]) -> tuple[int, str]:
    """What somebody learns from an answer, whatever they asked for by name."""
    text = answer.text
    for name, value in ids.items():
        text = text.replace(value, name)
    return answer.status_code, text


async def test_every_route_as_everybody(tmp_path: Path) -> None:
    provider = Scripted(
        [
            in_background("sleep 600"),
            says("It runs."),
            "```write_file\nnote.txt\nfirst\n```",
            "Done.",
            "Good.",
            "Fine.",
            "On time.",
        ]
    )
    async with asyncio.timeout(3 * LIMIT_S), serving(tmp_path, provider) as served:
        ann = await bearer(served, "ann")
        served.client.headers |= ann
        ids = await things_of_ann(served)
        del served.client.headers["authorization"]
        admin = await bearer(served, "root", "admin")
        strangers = {
            "nobody": {},
            "a wrong token": {"authorization": "Bearer dgm_wrong"},
            "a right one, as a cookie": {"cookie": f"authorization={ann['authorization']}"},
            "a right one, as a password": {"authorization": ann["authorization"].replace("Bearer", "Basic")},
            "an expired one": await bearer(served, "eve", "admin", expires=time.time() - 1),
            "a revoked one": await bearer(served, "mallory", "admin", revoked=time.time() - 1),
        }
        others = {"guest": await bearer(served, "gus", "guest"), "user": await bearer(served, "bob"), "admin": admin}
        await bearer(served, "carl")
        await served.services.mcp.add("carl", {"url": "http://127.0.0.1:9/"}, "root")
        await served.services.endpoints.add("hosted", EndpointSpec(url="http://127.0.0.1:9/"), (), "root")
        asking = Asking(served, count())
        await nobody_comes_in(asking, strangers, ids)
        await others_see_nothing(asking, others, ids)
        theirs = await served.client.get("/usage?principal=ann", headers=others["user"])
        assert theirs.status_code == 403
        for route, row in ROWS.items():
            if row.rights in ("user", "owner"):
                answer = await asking(route, ann, ids)
                assert answer.status_code == row.ok, f"{route} as ann: {answer.text}"
                assert not row.tried.shows or ids[row.tried.shows] in answer.text, route
            if row.rights == "admin" or row.tried.admins:
                answer = await asking(route, admin, ids)
                assert answer.status_code == (row.tried.admins or row.ok), f"{route} as admin: {answer.text}"
