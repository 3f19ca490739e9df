"""Sessions: conversations with their messages and runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.budget.usage_report import of_runs, sums
from app.core.messages import shown
from app.core.profile_spec import MODE_NAMES, SessionDefaults, SessionPresets
from app.profiles.library import defaults_of
from app.runs.branching.forking import MOST_BRANCHES
from app.storage.library.folders import EVERYWHERE, Shelf
from app.storage.principals import Principal
from app.storage.runs import HelperRow
from app.storage.sessions import SessionRow, SummaryRow
from routes.deletion import delete_conversation
from routes.http.automation.schedules import schedule_summary
from routes.http.branching.branches import branch_fields, delete_branches
from routes.http.library.listing import (
    folders_of,
    found_fields,
    place_changes,
    session_fields,
    shelf_of,
    write_list,
)
from routes.http.runs import run_fields
from routes.http.session_labels import known_labels, label_details, label_fields, mark_session
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import SessionRequest, read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import Services, current_principal, services_of

LISTED = 200  # sessions that one listing shows
FOUND = 100  # that a search finds
LONGEST_QUERY = 1_000  # characters


async def _busy(services: Services, principal: str) -> set[str]:
    return {run.session for run in await services.runs.of(principal)}


async def list_sessions(request: Request) -> Response:
    """Your conversations, the last used first.

    200 at a time, of a conversation with [branches](#branches) the one used last: `title`, `created`, `updated`, if one
    is `running`, `pinned` or `archived`, its `folder`, and with titles of a model the `summary`. Archived ones are left
    out. The first page of all has all `pinned` ones and the `folders`, too. `q` finds up to 100, archived ones
    included, that contain the words in one message or in the title, best match first (the title itself, whole words in
    it, parts of it, messages; of equal ones the last used), with a `snippet`, the places of the words in it (`marks`)
    and in the title (`title_marks`) as `[from, to]` in code points, and the `run` of the message. Those of
    [helpers](helpers.md) are listed by `parent` only.
    """
    services, principal = services_of(request), current_principal(request)
    query, before = request.query_params.get("q", "").strip(), request.query_params.get("before")
    if (parent := request.query_params.get("parent")) is not None:
        await services.runs.session(parent, principal)
        helpers = [await services.store.session(row.session) for row in await services.store.helpers(parent)]
        busy = await _busy(services, principal.name)
        return ASCIIResponse({"sessions": [session_fields(row, busy) for row in helpers if row]})
    if key := request.query_params.get("conversation"):
        session = await services.store.keyed_session(principal.keeper, key, principal.name)
        row = await services.store.session(session) if session else None
        return ASCIIResponse({"sessions": await _listed(services, principal.name, [row] if row else [])})
    if query:
        return ASCIIResponse({"sessions": await _found(services, principal.name, query)})
    if before is not None:
        await services.runs.session(before, principal)
    shelf = await shelf_of(services, request, principal.name)
    rows = await services.store.sessions(principal.name, LISTED, before, shelf or EVERYWHERE)
    listed: dict[str, Any] = {"sessions": await _listed(services, principal.name, rows)}
    if before is None and shelf is None:
        pinned = await services.store.sessions(principal.name, LISTED, None, Shelf(pinned=True))
        listed["pinned"] = await _listed(services, principal.name, pinned)
        listed["folders"] = await folders_of(services, principal.name)
    return ASCIIResponse(listed)


async def _listed(services: Services, principal: str, rows: Sequence[SessionRow]) -> list[dict[str, Any]]:
    if not rows:
        return []
    labels = await label_fields(services, [row.id for row in rows])
    summaries, busy = await _summaries(services, principal), await _busy(services, principal)
    others = await services.store.other_branches([row.id for row in rows])
    keys = await services.store.conversation_keys([row.id for row in rows])
    listed = [session_fields(row, busy) | labels.get(row.id, {}) | summaries.get(row.id, {}) for row in rows]
    for fields in listed:
        fields |= {"conversation": keys[fields["id"]]} if fields["id"] in keys else {}
    return [fields | ({"branches": others[fields["id"]]} if fields["id"] in others else {}) for fields in listed]


async def _summaries(services: Services, principal: str) -> dict[str, dict[str, str]]:
    """Return the field `summary` of each session that has a generated one. Raises StoreFailed."""
    if services.settings.generated_titles == "never":
        return {}
    found = await services.store.session_summaries(principal)
    return {session: {"summary": summary} for session, summary in found.items()}


async def _found(services: Services, principal: str, query: str) -> list[dict[str, Any]]:
    if len(query) > LONGEST_QUERY:
        raise Refused(400, "invalid_query", f"q is longer than {LONGEST_QUERY:,} characters; search for fewer words")
    # The branches of one conversation must not keep the others out.
    found = await services.store.find_sessions(principal, query, FOUND + MOST_BRANCHES)
    rows = await _listed(services, principal, [one.session for one in found])
    pairs = zip(rows, found, strict=True)
    kept = {row["id"]: row | found_fields(one, query) for row, one in pairs}
    for row in rows:
        if row["id"] in kept:  # of the branches of a conversation the best match
            for other in row.get("branches", ()):
                kept.pop(other, None)
    return list(kept.values())[:FOUND]


async def show_session(request: Request) -> Response:
    """One conversation with its messages.

    With its summaries (`upto`, `text`, `before`, `after`, `created`), runs and `usage`; its [helpers](helpers.md), or
    whose helper it is (`helper_of`); its [branches](#branches); the [schedules](schedules.md) that answer in it.
    """
    services = services_of(request)
    row = await services.runs.session(request.path_params["session"], current_principal(request))
    messages = [shown(message) for message in await services.store.messages(row.id)]
    spent = await services.store.spent_by_runs(row.id)
    used = of_runs(spent)
    runs = [run_fields(run) | {"usage": used.get(run.id, sums(()))} for run in await services.store.runs(row.id)]
    summaries = [summary_fields(one) for one in await services.store.summaries(row.id)]
    helpers = [helper_fields(one) for one in await services.store.helpers(row.id)]
    content: dict[str, Any] = {"helpers": helpers} if helpers else {}
    if own := await services.store.helper(row.id):
        content["helper_of"] = {"session": own.parent_session, "run": own.parent_run, "call": own.call}
    schedules = services.automation.scheduler.in_conversation(row.id, row.principal)
    if schedules:
        content["schedules"] = [schedule_summary(services, one) for one in schedules]
    content |= {"messages": messages, "summaries": summaries, "runs": runs, "usage": sums(spent)}
    fields = session_fields(row, await _busy(services, row.principal))
    fields |= await branch_fields(services, row.id)
    if keys := await services.store.conversation_keys([row.id]):
        fields["conversation"] = keys[row.id]
    return ASCIIResponse(fields | content | await label_details(services, row.id))


def helper_fields(row: HelperRow) -> dict[str, Any]:
    """A helper that a call of this session's runs has begun."""
    return {name: getattr(row, name) for name in ("run", "session", "parent_run", "call", "depth", "created")}


def summary_fields(row: SummaryRow) -> dict[str, Any]:
    """The summary that a model reads in place of the first `upto` messages; `before` and `after` are tokens."""
    return {name: getattr(row, name) for name in ("upto", "text", "before", "after", "created")}


async def change_session(request: Request) -> Response:
    """Rename, pin, archive or move a session, or change its tools, profile, options or labels.

    A `title` has 200 characters at most. `pinned`, `archived` and `folder` (null: none) set its place in the list.
    `{"disabled_tools": ["web_fetch", "mcp__*"]}` removes tools from it, from now on and including the run under way.
    `{"profile": "careful"}` and `{"options": {"model": ..., "max_rounds": 5}}` set the [profile](profiles.md) and
    options of its next runs (null and `{}` none), among them `instructions`, which are added to the system prompt.
    `{"read_only": true}` lets only reading tools run from now on, `false` all again (see [modes](#modes)).
    `{"labels": ["customer"]}` adds [sensitivity labels](labels.md), of which none is taken away.
    """
    services = services_of(request)
    row = await services.runs.session(request.path_params["session"], current_principal(request))
    body = await read_fields(request, SessionRequest, services.settings.max_message_bytes)
    marks = known_labels(services.settings, body.labels or ())
    if body.sets_options:
        async with services.factory.profiles.session_change:
            row = await services.runs.session(row.id, current_principal(request))  # as other requests have left it
            row = replace(row, options=await _set_options(services, current_principal(request), row, body))
    if marks:
        await mark_session(services, current_principal(request), row, marks)
    if changes := await place_changes(services, row, body):
        await write_list(services, row.principal, changes)
        row = await services.runs.session(row.id, current_principal(request))
    if body.disabled_tools is not None:
        await services.runs.disable_tools(row.id, body.disabled_tools)
        row = replace(row, disabled=json.dumps(body.disabled_tools))
    fields = session_fields(row, await _busy(services, row.principal))
    return ASCIIResponse(fields | (await label_fields(services, [row.id])).get(row.id, {}))


async def _set_options(services: Services, principal: Principal, row: SessionRow, body: SessionRequest) -> str:
    """Raises UnknownProfile, UnknownModel, ModeForbidden, StoreFailed."""
    given = (body.options or SessionPresets()).model_dump() if "options" in body.model_fields_set else None
    earlier = defaults_of(row.options) or SessionDefaults()
    modes = {name: getattr(earlier, name) for name in MODE_NAMES}
    if body.read_only is not None:
        modes["read_only"] = body.read_only
    kept = (earlier.model_dump(exclude={"profile"}) if given is None else given) | modes
    name = body.profile if "profile" in body.model_fields_set else earlier.profile
    if name:
        await services.factory.profiles.named(name, principal.name)
    defaults = SessionDefaults(profile=name or None, **kept)
    services.models.route(defaults.model, principal.name)
    services.factory.gate(principal, defaults.approval)
    options = await services.factory.profiles.set_session_defaults(row.id, defaults)
    if body.read_only is not None:
        await services.runs.keep_reading(row.id, body.read_only)
    return options


async def delete_session(request: Request) -> Response:
    """Delete a session with its runs.

    Stops what runs in it, background jobs included, and deletes the schedules that answer in it. Its
    [branches](#branches) stay, with what they have of its runs.
    """
    services, principal, session = services_of(request), current_principal(request), request.path_params["session"]
    await services.runs.session(session, principal)
    which = request.query_params.get("branches")
    if which not in (None, "all"):
        raise Refused(400, "invalid_query", f"branches: {which[:40]!a} is not all; leave it out to delete one branch")
    await (delete_branches if which else delete_conversation)(services, principal, session)
    await write_list(services, principal.name, [])
    return Response(status_code=204)


ROUTES = tagged(
    "Sessions",
    Route(
        "GET /sessions",
        list_sessions,
        rights="user",
        answer={"sessions": ["@FoundSession"], "pinned?": ["@Session"], "folders?": ["@Folder"]},
        query=(
            Query("before", "the last id of the page before"),
            Query("q", "words that the conversations contain"),
            Query("conversation", "the key of one conversation"),
            Query("parent", "a session whose helpers' sessions are listed"),
            Query("folder", "a folder, whose conversations are listed"),
            Query("archived", "`true` for those that are archived"),
            Query("pinned", "`true` for those that are pinned"),
        ),
    ),
    Route("GET /sessions/{session}", show_session, rights="owner", answer="@WholeSession"),
    Route(
        "PATCH /sessions/{session}",
        change_session,
        rights="owner",
        answer="@Session",
        errors=(409,),
        body=Body(SessionRequest, {"title": "Trip to Lisbon"}),
    ),
    Route(
        "DELETE /sessions/{session}",
        delete_session,
        rights="owner",
        query=(Query("branches", "`all`: with the other branches of the conversation"),),
    ),
)
