"""The document, in OpenAPI 3.1.

Paths come from the rows of routes, bodies from the models that check them, events from their structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, get_args

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.core.events import AgentEvent
from app.core.job_events import JobEvent
from routes.openapi.components import COMPONENTS, schema_of
from routes.protocol.route import RIGHTS, Body, Route, Tag
from tools.base.patterns import lazy_pattern

REFERENCE = "#/components/schemas/{model}"
OF_EVERY_TOKEN = (401, 403, 429)  # an unknown token; another host or origin; a budget, a rate
OF_BODY = (400, 408, 413, 422)
OF_ANY = (500, 503)
CHANGES = "Changes"  # ends the name of a body of which each field may be left out
JSON = "application/json"
SSE = "text/event-stream"
STREAMED = {"run": "RunEvent", "job": "JobEvent", "page": "PageEvent", "examination": "ExaminationEvent"}
NAME = lazy_pattern(r"\{(\w+)(?::(\w+))?\}")
WORD = lazy_pattern(r"\w+")
ABOUT = """The HTTP API of dragoman. Streams are Server-Sent Events: `event:` is the type, `id:` the cursor for
`Last-Event-ID`, `data:` the JSON of the schema in `contentSchema`. Fields and events may be added: ignore what you do
not know."""


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The document of these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for row in routes:
        paths.setdefault(NAME.sub(r"{\1}", row.path), {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dragoman",
            "version": version("dragoman"),
            "description": ABOUT.replace("\n", " "),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"apiKey": []}],
        "tags": [{"name": tag} for tag in get_args(Tag)],
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "securitySchemes": SECURITY,
            "responses": _error_responses(routes),
        },
    }


SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `dragoman token create`."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def _operation(row: Route) -> dict[str, Any]:
    about: dict[str, Any] = {
        "operationId": "_".join([row.method.lower(), *WORD.findall(NAME.sub(r"\1", row.path))]),
        "tags": [row.tag],
        "summary": row.summary,
        "description": RIGHTS[row.rights],
        "x-rights": row.rights,
    }
    if parameters := list(_parameters(row)):
        about["parameters"] = parameters
    if row.body is not None:
        content = {"schema": _body_schema(row.body), "example": row.body.example}
        about["requestBody"] = {"required": row.body.required, "content": {JSON: content}}
    if row.takes_file:
        about["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    about["responses"] = {str(status): answer for status, answer in sorted(_responses(row).items())}
    if row.rights == "open":
        about["security"] = []
    return about


def _body_schema(body: Body) -> dict[str, Any]:
    if isinstance(body.model, type):
        return {"$ref": REFERENCE.format(model=f"{body.model.__name__}{CHANGES if body.partial else ''}")}
    return schema_of(body.model)


def _parameters(row: Route) -> Iterator[dict[str, Any]]:
    for name, kind in NAME.findall(row.path):
        described = {"description": "May contain slashes."} if kind else {}
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} | described
    for one in row.query:
        about: dict[str, Any] = {"required": one.required, "description": one.about, "schema": schema_of(one.kind)}
        yield {"name": one.name, "in": "query"} | about
    for name, why in row.headers.items():
        about = {"required": False, "description": why, "schema": {"type": "string"}}
        yield {"name": name, "in": "header"} | about


def _responses(row: Route) -> dict[int, dict[str, Any]]:
    answers = {status: _answer(row, status) for status in row.answers}
    errors = set(row.errors) | set(OF_ANY)
    errors |= set(OF_EVERY_TOKEN) if row.rights != "open" else set()
    errors |= set(OF_BODY) if row.body is not None else set()
    errors |= {404} if NAME.search(row.path) else set()
    errors |= {400} if row.query else set()
    foreign = "Foreign" if row.foreign_errors else ""
    return {one: {"$ref": f"#/components/responses/{foreign}Error{one}"} for one in errors} | answers


def _answer(row: Route, status: int) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if row.stream and status == HTTPStatus.OK:
        events = STREAMED.get(row.stream)
        described = {"contentMediaType": SSE} | (
            {"contentSchema": {"$ref": REFERENCE.format(model=events)}} if events else {}
        )
        content[SSE] = {"schema": {"type": "string"} | described}
    shape = row.accepted if row.accepted is not None and status == HTTPStatus.ACCEPTED else row.answer
    if shape is not None and status != HTTPStatus.NO_CONTENT:
        content[JSON] = {"schema": schema_of(shape)}
    if status not in (HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        content |= {kind: {"schema": {"type": "string"}} for kind in row.media}
    return {"description": HTTPStatus(status).phrase} | ({"content": content} if content else {})


def _error_responses(routes: Sequence[Route]) -> dict[str, Any]:
    """One for each status, in the one shape of errors; for lanes in that of their API."""
    statuses = {*OF_EVERY_TOKEN, *OF_BODY, *OF_ANY, *(one for row in routes for one in row.errors), 404}
    native = {"content": {JSON: {"schema": {"$ref": REFERENCE.format(model="Error")}}}}
    foreign = {"content": {JSON: {"schema": {"type": "object"}}, "text/plain": {"schema": {"type": "string"}}}}
    return {
        f"{prefix}Error{status}": {"description": HTTPStatus(status).phrase} | content
        for prefix, content in (("", native), ("Foreign", foreign))
        for status in sorted(statuses)
    }


ERROR = {
    "type": "object",
    "description": "The one shape of errors. Some codes add fields.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "such as not_found; see docs/errors.md"},
                "message": {"type": "string", "description": "what happened, and what to do next"},
                "reset": {"type": "number", "description": "with 429: the Unix time from which on it works again"},
            },
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}


def _schemas(routes: Sequence[Route]) -> dict[str, Any]:
    bodies = [(row.body.model, row.body.partial) for row in routes if row.body and isinstance(row.body.model, type)]
    page = ["RunAsked", "ServerState", "RunEvent", "JobEvent"]
    schemas = merged(
        {"Error": ERROR, "PageEvent": {"anyOf": [{"$ref": REFERENCE.format(model=name)} for name in page]}},
        {name: schema_of(shape) for name, shape in COMPONENTS.items()},
        _event_schemas("RunEvent", get_args(AgentEvent)),
        _event_schemas("JobEvent", get_args(JobEvent)),
        _model_schemas(list(dict.fromkeys(model for model, _ in bodies))),
    )
    for model, partial in bodies:
        if partial:
            name = f"{model.__name__}{CHANGES}"
            whole = {key: value for key, value in schemas[model.__name__].items() if key != "required"}
            schemas[name] = whole | {"title": name}  # generators name classes by it
    return {name: schemas[name] for name in sorted(schemas)}


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """All parts in one. Raises ValueError where two have the same name: one schema would stand for the other."""
    found: dict[str, Any] = {}
    for part in parts:
        if twice := sorted(found.keys() & part.keys()):
            raise ValueError(f"Two schemas are called {', '.join(twice)}: rename one in COMPONENTS.")
        found |= part
    return found


def _event_schemas(union: str, kinds: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    """A schema for each event, with its `type`, and one for any of them."""
    _, found = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas: dict[str, Any] = {name: dict(schema) for name, schema in found.items()}
    mapping: dict[str, str] = {}
    for kind in kinds:
        wire, schema = kind.type, schemas[kind.__name__]  # type: ignore[attr-defined]
        schema["properties"] = {"type": {"const": wire, "type": "string"}} | schema.get("properties", {})
        schema["required"] = ["type", *schema.get("required", [])]
        mapping[wire] = REFERENCE.format(model=kind.__name__)
    discriminator = {"propertyName": "type", "mapping": mapping}
    schemas[union] = {"oneOf": [{"$ref": one} for one in mapping.values()], "discriminator": discriminator}
    return schemas


def _model_schemas(models: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """The schemas of bodies. Bytes are base64 in JSON; `binary` would be a part of a form."""
    _, found = models_json_schema([(model, "validation") for model in models], ref_template=REFERENCE)
    definitions: Mapping[str, Any] = found.get("$defs", {})
    return {name: _with_base64(schema) for name, schema in definitions.items()}


def _with_base64(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        rest = {name: _with_base64(value) for name, value in schema.items()}
        if rest.get("format") == "binary":
            return {name: value for name, value in rest.items() if name != "format"} | {"contentEncoding": "base64"}
        return rest
    return [_with_base64(one) for one in schema] if isinstance(schema, list) else schema
