"""Every route, as everybody: what belongs to somebody does not exist for others, and what is for admins is theirs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.endpoint_spec import EndpointSpec
from app.memory.memories import Source
from app.models.scripted import Scripted
from app.storage.approvals import GrantRow
from app.storage.documents import DocumentRow, VersionRow
from app.storage.profiles import ProfileRow
from routes.lanes.catalogue import LANES
from routes.protocol.errors import SAFE_HEADERS
from routes.server import ROUTES
from tests.belongings import schedules_of_ann, targets_of_ann
from tests.people import LIMIT_S, bearer
from tests.pictures import CAT, hashed, image_part, text_part
from tests.serving import Served, serving, until
from tests.test_routes_jobs import in_background, job_of, says

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class Open:
    """For probes, which have no token."""

    ok: int = 200


@dataclass(frozen=True, slots=True)
class Own:
    """Whoever has a token gets their own; `shows` is what of ann's only ann sees there (in a stream's first event)."""

    ok: int = 200
    shows: str | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Thing:
    """Something of ann's. `ok` is what she gets, in the order of the table."""

    body: object = None
    ok: int = 200


@dataclass(frozen=True, slots=True)
class Admins:
    body: object = None
    ok: int = 200


@dataclass(frozen=True, slots=True)
class ThingOrAdmins:
    """Something of ann's that admins see, too."""

    body: object = None
    ok: int = 200


@dataclass(frozen=True, slots=True)
class OfServer:
    """What an MCP server offers to those who may use its tools: here to admins. `ok`: it cannot be reached."""

    ok: int = 502


@dataclass(frozen=True, slots=True)
class NoGuests:
    """Whoever has a token and is no guest; `ok` is the answer without a body."""

    ok: int = 400


@dataclass(frozen=True, slots=True)
class OfLane:
    """A route of another API, whose errors are in its format, too. `ok` is the answer without a body or a right id."""

    ok: int = 400


Row = Open | Own | Thing | ThingOrAdmins | Admins | OfServer | NoGuests | OfLane
ROWS: dict[str, Row] = {
    **{f"GET {path}": Open() for path in ("/livez", "/readyz", "/openapi.json")},
    "GET /metrics": Admins(),
    "GET /proof": Open(422),
    "GET /": Own(),
    "GET /page/{path:path}": Open(),
    "GET /events": Own(shows="job", stream=True),
    "GET /tools": Own(),
    "GET /options": Own(),
    "GET /profiles": Own(shows="profile"),
    "GET /profiles/{profile}": Thing(),
    "PUT /profiles/{profile}": Own(400),  # adds one's own
    "DELETE /profiles/{profile}": Thing(ok=204),
    "GET /usage": Own(),
    "GET /sessions": Own(shows="session"),
    "GET /jobs": Own(shows="job"),
    "GET /approvals": Own(shows="call"),
    "GET /project": Own(),
    "POST /project": NoGuests(),
    "GET /sessions/{session}": Thing(),
    "GET /sessions/{session}/log": Thing(),
    "PATCH /sessions/{session}": Thing({"disabled_tools": []}),
    "GET /sessions/{session}/files/{sha256}": Thing(),
    "GET /sessions/{session}/files": Thing(),
    "GET /sessions/{session}/workspace/{path:path}": Thing(ok=404),  # there is no such file
    "GET /sessions/{session}/documents": Thing(),
    "GET /documents/{document}": Thing(),
    "PUT /documents/{document}": Thing({"version": 1, "text": "x"}),
    "GET /documents/{document}/versions": Thing(),
    "GET /documents/{document}/file": Thing(),
    "POST /documents/{document}/suggestions/{number}": Thing({"decision": "accept"}, 404),
    "GET /memory": Own(shows="memory"),
    "POST /memory": Own(400),
    "DELETE /memory": Own(400),
    "GET /memory/{memory}": Thing(),
    "PATCH /memory/{memory}": Thing({"text": "Likes tea", "kind": "preference"}),
    "DELETE /memory/{memory}": Thing(ok=204),
    "GET /sessions/{session}/grants": Thing(),
    "DELETE /sessions/{session}/grants/{grant}": Thing(),
    "DELETE /sessions/{session}/grants": Thing(),
    "GET /runs/{run}": Thing(),
    "POST /runs/{run}/messages": Thing({"message": "x"}, 202),
    "POST /runs/{run}/approvals/{call}": Thing({"decision": "approve"}),
    "GET /runs/{run}/approvals/{call}/preview": Thing(),
    "GET /runs/{run}/events": Thing(),
    "GET /runs/{run}/calls/{call}/output": Thing(),
    "POST /runs/{run}/calls/{call}/cancel": Thing(),
    "POST /runs/{run}/calls/{call}/input": Thing({"text": "x"}, 409),
    "POST /runs/{run}/cancel": Thing(),
    "GET /runs/{run}/changes": ThingOrAdmins(),
    "POST /runs/{run}/undo": ThingOrAdmins(),
    "POST /chat": Thing({"message": "x", "session": "{session}", "when_busy": "queue"}),
    "GET /jobs/{job}": Thing(),
    "POST /jobs/{job}/cancel": Thing(),
    "GET /jobs/{job}/events": Thing(),
    "GET /jobs/{job}/output": Thing(),
    "DELETE /sessions/{session}": Thing(ok=204),
    "GET /mcp/callback": Open(400),
    "GET /mcp/servers": Admins(),
    "POST /mcp/servers": Admins({"name": "new", "url": "http://127.0.0.1:9/"}, 201),
    "GET /mcp/servers/{name:path}": Admins(),
    "GET /mcp/servers/{name:path}/logs": Admins(),
    "GET /mcp/servers/{name:path}/resources": OfServer(),
    "GET /mcp/servers/{name:path}/resources/read": OfServer(422),
    "GET /mcp/servers/{name:path}/prompts": OfServer(),
    "POST /mcp/servers/{name:path}/prompts/{prompt:path}": OfServer(),
    "POST /mcp/servers/{name:path}/{action}": Admins(),
    "DELETE /mcp/servers/{name:path}": Admins(ok=204),
    "GET /endpoints": Own(),
    "POST /endpoints": Admins({"name": "new", "url": "http://127.0.0.1:9/"}, 201),
    "DELETE /endpoints/{endpoint}": Admins(ok=204),
    "GET /hooks": Admins(),
    "GET /rules": Admins(),
    "GET /settings": Admins(),
    "PATCH /settings": Admins({"changes": {"max_rounds": 20}}),
    "GET /schedules": Own(shows="schedule"),
    "POST /schedules": NoGuests(),
    "GET /schedules/{schedule}": Thing(),
    "PATCH /schedules/{schedule}": Thing({"name": "x"}),
    "POST /schedules/{schedule}/run": Thing(ok=202),
    "DELETE /schedules/{schedule}": Thing(ok=204),
    "GET /triggers": Own(shows="trigger"),
    "POST /triggers": NoGuests(),
    "GET /triggers/{trigger}": Thing(),
    "PATCH /triggers/{trigger}": Thing({"name": "x"}),
    "POST /triggers/{trigger}/secret": Thing(),
    "POST /triggers/{trigger}": Open(401),  # it is proven with the trigger's own secret
    "DELETE /triggers/{trigger}": Thing(ok=204),
    "GET /webhooks": Own(shows="webhook"),
    "POST /webhooks": NoGuests(),
    "GET /webhooks/{webhook}": Thing(),
    "PATCH /webhooks/{webhook}": Thing({"name": "x"}),
    "POST /webhooks/{webhook}/secret": Thing(),
    "POST /webhooks/{webhook}/test": Thing(),
    "GET /webhooks/{webhook}/deliveries": Thing(),
    "POST /webhooks/{webhook}/deliveries/{delivery}/retry": Thing(ok=202),
    "DELETE /webhooks/{webhook}": Thing(ok=204),
    "GET /push": Own(shows="subscription"),
    "POST /push": Own(400),
    "PATCH /push/{subscription}": Thing({"events": ["run.ended"]}),
    "POST /push/{subscription}/test": Thing(),
    "DELETE /push/{subscription}": Thing(ok=204),
    "GET /served-models": Admins(),
    "POST /served-models": Admins({"file": "x.gguf"}, 422),  # no folder is allowed
    "GET /served-models/{name}": Admins(ok=404),
    "POST /served-models/{name}/serve": Admins(ok=404),
    "POST /served-models/{name}/stop": Admins(ok=404),
    "DELETE /served-models/{name}": Admins(ok=404),
    "GET /audit": Admins(),
    "POST /pause": Admins(),
    "POST /resume": Admins(),
    "GET /tokens": Admins(),
    "POST /tokens": Admins({"name": "new"}, 201),
    "DELETE /tokens/{name}": Admins(ok=204),
    "GET /api/hello": Open(204),
    **{f"POST {lane.path}": OfLane() for lane in LANES},
    "POST /v1/messages/count_tokens": OfLane(),
    "GET /v1/models": OfLane(200),
    "GET /v1/models/{model:path}": OfLane(404),
    "GET /ui-message-stream/{chat:path}/stream": OfLane(204),
    "GET /v1/responses/{response}": OfLane(404),
    "DELETE /v1/responses/{response}": OfLane(404),
    "POST /v1/responses/{response}/cancel": OfLane(404),
    "GET /v1/responses/{response}/input_items": OfLane(404),
}
LOST = {
    "session": "ses_" + "0" * 20,
    "run": "run_" + "0" * 20,
    "call": "call_" + "0" * 20,
    "job": "job_" + "0" * 20,
    "sha256": "0" * 64,
    "grant": "grt_" + "0" * 20,
    "document": "doc_" + "0" * 20,
    "profile": "no_such_profile",
    "number": "8" * 12,
    "memory": "mem_" + "0" * 20,
    "webhook": "whk_" + "0" * 20,
    "schedule": "sch_" + "0" * 20,
    "trigger": "trg_" + "0" * 20,
    "delivery": "msg_" + "0" * 32,
    "subscription": "psh_" + "0" * 20,
    "name": "nobody",
    "action": "reconnect",
    "endpoint": "nowhere",
    "path": "icon.svg",
}
OWN_HEADERS = {  # of routes that end so, which say themselves what a browser may do
    "/events": {"Cache-Control"},
    "/chat": {"Cache-Control"},
    "/{sha256}": {"Content-Security-Policy"},
    "/file": {"Content-Security-Policy"},
    "/{path:path}": {"Content-Security-Policy", "Cache-Control"},
}
EVERYBODYS = ("endpoint", "path", "action")  # names that all may know
OF_ADMINS = ("name",)


def test_every_route_has_a_row() -> None:
    there = {f"{method} {route.path}" for route in ROUTES for method in (route.methods or set()) - {"HEAD"}}
    assert there == ROWS.keys()


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
        body = json.loads(filled(json.dumps(row.body), ids)) if isinstance(row, Thing | Admins) and row.body else None
        forwarded = {"x-forwarded-for": f"10.0.{number // 256}.{number % 256}"}
        asked: dict[str, Any] = {"headers": dict(headers) | forwarded, "json": body}
        if isinstance(row, Own) and row.stream:
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


async def things_of_ann(served: Served) -> dict[str, str]:
    """A background job that runs, and a call that waits for her."""
    _, job = await job_of(served)
    async with aclosing(served.turn(message=[text_part("x"), image_part(CAT)], approval="ask")) as turn:
        started = await until(turn, "run.started")
        question = await until(turn, "approval.required")
    grant = GrantRow("grt_" + "1" * 20, started["session"], "ann", "write_file", 1.0, "ann", "0" * 64)
    document = DocumentRow("doc_" + "1" * 20, started["session"], "Notes", "plain", 1, 1, 1.0, 1.0)
    version = VersionRow(document.id, 1, "model", started["run"], question["call"], 1.0, "Milk")
    profile = ProfileRow("ann", "profile_of_hers", "{}", "ann", 1.0)
    await served.services.store.write([grant, document, version, profile])
    named = {"document": document.id, "number": "7" * 12, "profile": profile.name}
    kept, _ = await served.services.memories.remember("ann", "Likes milk", "fact", Source())
    named |= {"memory": kept.id}
    named |= {"name": "carl", "action": "reconnect", "endpoint": "hosted", "path": "icon.svg"}
    ids = {"session": started["session"], "run": started["run"], "call": question["call"], "sha256": hashed(CAT)}
    named |= await targets_of_ann(served, started["run"]) | await schedules_of_ann(served)
    return {"job": job, "grant": grant.id, **ids, **named}


async def nobody_comes_in(asking: Asking, strangers: Mapping[str, Mapping[str, str]], ids: Mapping[str, str]) -> None:
    for route, row in ROWS.items():
        for who, headers in strangers.items():
            answer = await asking(route, headers, ids)
            expected = row.ok if isinstance(row, Open) else 401
            assert answer.status_code == expected, f"{route} as {who}"
            if expected == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
                assert isinstance(row, OfLane) or answer.json()["error"]["code"] == "unauthorized"
                assert not any(value in answer.text for value in ids.values() if value != "carl"), f"{route} as {who}"


async def others_see_nothing(asking: Asking, others: Mapping[str, Mapping[str, str]], ids: Mapping[str, str]) -> None:
    for route, row in ROWS.items():
        for who, headers in others.items():
            if isinstance(row, Admins | ThingOrAdmins | OfServer) and who == "admin":
                continue
            answer = await asking(route, headers, ids)
            match row:
                case Open(ok) | Own(ok) | OfLane(ok):
                    assert answer.status_code == ok, f"{route} as {who}"
                    known = EVERYBODYS + (OF_ADMINS if who == "admin" else ())
                    theirs = [value for name, value in ids.items() if name not in known]
                    assert not any(value in answer.text for value in theirs), f"{route} as {who}"
                case NoGuests(ok):
                    assert answer.status_code == (403 if who == "guest" else ok), f"{route} as {who}"
                case Thing() | ThingOrAdmins() | OfServer():
                    assert answer.status_code == 404, f"{route} as {who}"
                    assert told(answer, ids) == told(await asking(route, headers, LOST), LOST), f"{route} as {who}"
                case Admins():
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
            if isinstance(row, Own | Thing | ThingOrAdmins):
                answer = await asking(route, ann, ids)
                assert answer.status_code == row.ok, f"{route} as ann: {answer.text}"
                if isinstance(row, Own) and row.shows:
                    assert ids[row.shows] in answer.text, route
            if isinstance(row, Admins | ThingOrAdmins | OfServer):
                answer = await asking(route, admin, ids)
                assert answer.status_code == row.ok, f"{route} as admin: {answer.text}"
