"""/prompts: prompts that a person has stored; /preferences: what the page gives to the person's new conversations."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.profile_spec import MOST_DESCRIPTION, MOST_PROMPT, SessionPresets
from app.core.strict_model import StrictModel, storable
from app.storage.people.prompts import PreferencesRow, PromptRemoved, PromptRow
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.patterns import lazy_pattern

MOST = 200  # prompts of one person
MOST_BYTES = 256 * 1024
NAME = lazy_pattern(r"[a-z0-9][a-z0-9_-]{0,63}")
NAME_RULE = "A prompt's name has 1 to 64 lower-case letters, digits, _ and -, and begins with a letter or digit."


def _written(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; write the prompt")
    return storable(text)


class StoredPromptRequest(StrictModel):
    """The body of PUT /prompts/{name}. `{{name}}` in the text is asked for when the prompt is used."""

    text: Annotated[str, Field(max_length=MOST_PROMPT), AfterValidator(_written)]
    about: Annotated[str, Field(max_length=MOST_DESCRIPTION), AfterValidator(storable)] = ""


class PreferencesRequest(StrictModel):
    """The body of PUT /preferences: `profile`, `options` and `plan` of new conversations; it replaces all of them."""

    profile: str | None = Field(default=None, max_length=64)
    options: SessionPresets = Field(default_factory=SessionPresets)
    plan: bool = False


def prompt_fields(row: PromptRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("name", "about", "text", "updated")}


async def list_prompts(request: Request) -> Response:
    """Your stored prompts. By name."""
    rows = await services_of(request).store.prompts(current_principal(request).name)
    return ASCIIResponse({"prompts": [prompt_fields(row) for row in rows]})


async def show_prompt(request: Request) -> Response:
    """A stored prompt."""
    return ASCIIResponse(prompt_fields(await _named(request, services_of(request))))


async def save_prompt(request: Request) -> Response:
    """Store a prompt, or replace it whole.

    201 for a new one. At most 200, of 16,000 characters. Names have small letters, digits, `_` and `-`.
    """
    services, owner, name = services_of(request), current_principal(request).name, request.path_params["prompt"]
    if not NAME.fullmatch(name):
        raise Refused(422, "invalid_request", NAME_RULE)
    body = await read_fields(request, StoredPromptRequest, MOST_BYTES)
    names = {row.name for row in await services.store.prompts(owner)}
    if name not in names and len(names) >= MOST:
        raise Refused(409, "too_many_prompts", f"There are {len(names)} prompts, which is the most. Delete one first.")
    row = PromptRow(owner, name, body.about, body.text, time.time())
    await services.store.write([row])
    return ASCIIResponse(prompt_fields(row), 200 if name in names else 201)


async def delete_prompt(request: Request) -> Response:
    """Delete a stored prompt."""
    services = services_of(request)
    row = await _named(request, services)
    await services.store.write([PromptRemoved(row.owner, row.name)])
    return Response(status_code=204)


async def _named(request: Request, services: Services) -> PromptRow:
    """Raises NotFound, StoreFailed."""
    row = await services.store.prompt(current_principal(request).name, request.path_params["prompt"])
    if row is None:
        raise NotFound("There is no such prompt. GET /prompts lists yours.")
    return row


async def show_preferences(request: Request) -> Response:
    """The defaults of your new conversations. What the page gives to them; other clients are not affected."""
    row = await services_of(request).store.preferences(current_principal(request).name)
    return ASCIIResponse(_preferences(row))


async def save_preferences(request: Request) -> Response:
    """Set the defaults of your new conversations.

    All of them: `profile`, `options` as in `PATCH /sessions/{session}`, and `plan`.
    """
    services, principal = services_of(request), current_principal(request)
    body = await read_fields(request, PreferencesRequest, MOST_BYTES)
    if body.profile:
        await services.factory.profiles.named(body.profile, principal.name)
    services.models.route(body.options.model, principal.name)
    services.factory.gate(principal, body.options.approval)
    row = PreferencesRow(principal.name, body.model_dump_json(exclude_defaults=True), time.time())
    await services.store.write([row])
    return ASCIIResponse(_preferences(row))


def _preferences(row: PreferencesRow | None) -> dict[str, Any]:
    stored = json.loads(row.options) if row else {}
    return {"profile": None, "options": {}, "plan": False} | stored


ROUTES = tagged(
    "Server",
    Route("GET /prompts", list_prompts, rights="user", answer={"prompts": ["@StoredPrompt"]}),
    Route("GET /prompts/{prompt}", show_prompt, rights="owner", answer="@StoredPrompt"),
    Route(
        "PUT /prompts/{prompt}",
        save_prompt,
        rights="user",
        answer="@StoredPrompt",
        statuses=(200, 201),
        errors=(409,),
        body=Body(StoredPromptRequest, {"text": "Review {{file}}."}),
    ),
    Route("DELETE /prompts/{prompt}", delete_prompt, rights="owner"),
    Route("GET /preferences", show_preferences, rights="user", answer="@Preferences"),
    Route(
        "PUT /preferences",
        save_preferences,
        rights="user",
        answer="@Preferences",
        errors=(404,),
        body=Body(PreferencesRequest, {"options": {"temperature": 0.5}}),
    ),
)
