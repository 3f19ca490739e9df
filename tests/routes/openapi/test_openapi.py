"""The OpenAPI document: valid, complete, and kept by what the server really answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from pydantic import BaseModel

from app.core.endpoint_spec import EndpointSpec
from app.models.scripted import Scripted
from routes.openapi.document import NAME, document, merged
from routes.protocol.route import Route
from tests.support.access.access_table import ROWS
from tests.support.access.belongings import things_of_ann
from tests.support.access.people import LIMIT_S, bearer
from tests.support.documented.routes import ROUTES
from tests.support.models.replies import in_background, says
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
# Operations of which an answer that is no error is seen here, beside all that read.
CHANGING = frozenset(
    {"POST /chat", "POST /memory", "POST /schedules", "POST /triggers", "POST /tokens"}
    | {"POST /pause", "POST /resume", "PATCH /settings", "PATCH /sessions/{session}", "PUT /documents/{document}"}
    | {"POST /runs/{run}/messages", "POST /runs/{run}/approvals/{call}", "POST /v1/chat/completions"}
    | {"PUT /profiles/{profile}", "PATCH /webhooks/{webhook}", "POST /endpoints", "POST /mcp/servers"}
)
NOT_THERE = frozenset(  # reads of what is not made here, or not yet
    {
        "GET /runs/{run}/calls/{call}/output",
        "GET /mcp",
        "GET /runs/{run}/calls/{call}/app",
        "GET /mcp/callback",
        "GET /decide/{token}",
        "GET /audit/{number}",
        "GET /proof",
        "GET /served-models/{name}",
        "GET /v1/responses/{response}",
    }
    | {"GET /v1/responses/{response}/input_items", "GET /v1/models/{model:path}"}
    | {"GET /workspace/files/{path:path}", "GET /sessions/{session}/changes", "GET /runs/{run}/recording"}
    | {"GET /sessions/{session}/workspace/{path:path}", "GET /mcp/servers/{name:path}/resources"}
    | {"GET /mcp/servers/{name:path}/resources/read", "GET /mcp/servers/{name:path}/prompts"}
)
# Examples name hosts of the internet, which no test connects to.
LOCAL = {
    "POST /secrets": {"name": "github", "value": "another-value-than-in-the-document"},
    "POST /mcp/servers": {"name": "docs", "url": "http://127.0.0.1:9/"},
    "POST /webhooks": {"url": "https://127.0.0.1:9/"},
    "POST /push": {},
}
ENDLESS = ("/chat", "/events")
BY_NAME = {row.name: row for row in ROUTES}


@cache
def whole() -> dict[str, Any]:
    return document(ROUTES)


def described(route: str) -> dict[str, Any]:
    method, path = route.split()
    operation = whole()["paths"][NAME.sub(r"{\1}", path)][method.lower()]
    assert isinstance(operation, dict)
    return operation


def complaints(schema: Mapping[str, Any], value: object) -> list[str]:
    """The errors of a value, with the components that the schema refers to."""
    validator = Draft202012Validator({**schema, "components": whole()["components"]})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def test_every_route_is_there_once_and_has_a_sentence() -> None:
    assert len(BY_NAME) == len(ROUTES)
    assert [row.name for row in ROUTES if not row.summary] == []


def test_the_document_is_valid_and_its_names_are_unique() -> None:
    validate(whole())
    names = [one["operationId"] for path in whole()["paths"].values() for one in path.values()]
    assert len(names) == len(set(names)) == len(ROUTES)
    titles = [schema["title"] for schema in whole()["components"]["schemas"].values() if "title" in schema]
    assert len(titles) == len(set(titles))
    assert json.loads(json.dumps(whole())) == whole()


def test_two_schemas_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="called Usage"):
        merged({"Usage": {}}, {"Run": {}}, {"Usage": {}})


@pytest.mark.parametrize("route", [row.name for row in ROUTES if row.body is not None])
def test_examples_of_bodies_are_valid(route: str) -> None:
    body = BY_NAME[route].body
    schema = described(route)["requestBody"]["content"]["application/json"]["schema"]
    assert body is not None
    assert complaints(schema, body.example) == []
    if isinstance(body.model, type) and issubclass(body.model, BaseModel) and not body.partial:
        body.model.model_validate(body.example)
        assert complaints(schema, {"no such field": 1}) != []


def test_only_open_routes_need_no_token() -> None:
    for route, row in BY_NAME.items():
        assert (described(route).get("security") == []) == (row.rights == "open"), route


def filled(path: str, ids: Mapping[str, str]) -> str:
    return NAME.sub(lambda found: ids.get(found[1], "x"), path)


async def asked(served: Served, row: Route, ids: Mapping[str, str], **more: Any) -> httpx2.Response:
    """The answer to the example; of a stream that may not end the first event."""
    path = filled(row.path, ids)
    if row.stream is None or not path.endswith(ENDLESS):
        return await served.client.request(row.method, path, **more)
    seen = b""
    async with served.client.stream(row.method, path, **more) as answer, aclosing(answer.aiter_bytes()) as blocks:
        async for block in blocks:
            seen += block
            if b"\n\n" in seen:
                break
    return httpx2.Response(answer.status_code, headers=answer.headers, content=seen)


def events_in(text: str) -> list[dict[str, Any]]:
    whole_events = text.split("\n\n")[:-1]
    lines = [line for event in whole_events for line in event.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def check(route: str, row: Route, answer: httpx2.Response) -> None:
    """The status is declared, and the answer has the schema of its type."""
    declared = described(route)["responses"].get(str(answer.status_code))
    assert declared is not None, f"{route}: {answer.status_code} is not declared: {answer.text[:300]}"
    if "$ref" in declared:
        declared = whole()["components"]["responses"][declared["$ref"].rpartition("/")[2]]
    content, kind = declared.get("content", {}), answer.headers.get("content-type", "").partition(";")[0]
    if answer.status_code in (204, 303, 304):
        assert (content, answer.content) == ({}, b""), route
    elif kind == "application/json":
        assert complaints(content[kind]["schema"], answer.json()) == [], route
    elif kind == "text/event-stream" and row.stream != "lane":
        events = events_in(answer.text)
        assert events, route
        assert [complaints(content[kind]["schema"]["contentSchema"], event) for event in events] == [[]] * len(events)
    else:
        assert kind in content or "application/octet-stream" in content, f"{route}: {kind}"


async def test_what_the_server_answers_is_declared(tmp_path: Path) -> None:
    """The example of each operation, sent as the principal that may."""
    provider = Scripted(
        [in_background("sleep 600"), says("It runs."), "```write_file\nnote.txt\nfirst\n```", *["Done."] * 20]
    )
    done: dict[str, int] = {}
    async with asyncio.timeout(3 * LIMIT_S), serving(tmp_path, provider) as served:
        ann, numbers = await bearer(served, "ann"), count()
        served.client.headers |= ann
        ids = await things_of_ann(served)
        del served.client.headers["authorization"]
        admin = await bearer(served, "root", "admin")
        await bearer(served, "carl")
        await served.services.mcp.add("carl", {"url": "http://127.0.0.1:9/"}, "root")
        await served.services.endpoints.add("hosted", EndpointSpec(url="http://127.0.0.1:9/"), (), "root")
        for route in ROWS:  # what deletes comes behind what reads
            row = BY_NAME[route]
            number = next(numbers)
            headers = {"x-forwarded-for": f"10.0.{number // 256}.{number % 256}"}
            headers |= {} if row.rights == "open" else admin if row.rights == "admin" else ann
            answer = await asked(
                served, row, ids, headers=headers, json=LOCAL.get(route, row.body and row.body.example)
            )
            check(route, row, answer)
            done[route] = answer.status_code
        served_document = (await served.client.get("/openapi.json")).json()
        unknown = await served.client.request("PUT", "/openapi.json")
    assert served_document == whole()
    assert unknown.status_code == 405
    reading = {route for route in BY_NAME if route.startswith("GET ")} - NOT_THERE
    failed = {route: status for route, status in done.items() if route in reading | CHANGING and status >= 400}
    assert failed == {}
