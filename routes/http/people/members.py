"""/member-links, /member-codes: accounts that speak through a bot; /tokens/{name}/members: for whom a bot speaks."""

from __future__ import annotations

import time
from contextlib import suppress
from math import inf
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from app.storage.audit import AuditRow
from app.storage.people.members import MemberRemoved, MemberRow, bot_of
from app.storage.principals import Principal, in_use
from app.storage.sessions import SessionRow
from app.transcript.run_request import NotFound, names_behind
from routes.deletion import delete_conversation
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.redaction_middleware import SHOWN_ONCE
from routes.protocol.requests import OutsideName, read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.rights import Role

PAGE = 200  # sessions


class MemberCodeRequest(StrictModel):
    """The body of POST /member-codes: the name of the bot's token."""

    bot: str = Field(max_length=64)


class MemberLinkRequest(StrictModel):
    """The body of POST /member-links: the code that the member has given to the bot."""

    code: str = Field(max_length=40)
    member: OutsideName | None = None


def member_fields(row: MemberRow) -> dict[str, Any]:
    named = {"member": row.member, "principal": row.principal, "bot": row.token}
    return named | {"account": row.account or None, "created": row.created}


async def list_members(request: Request) -> Response:
    """The members of a bot's chats.

    Oldest first: its own name (`member`), the one in audit and usage (`principal`), and the linked `account`.
    """
    rows = await services_of(request).store.members(request.path_params["name"])
    return ASCIIResponse({"members": [member_fields(row) for row in rows]})


async def delete_member(request: Request) -> Response:
    """Delete a member with its conversations, memories and reminders.

    `member` is what follows the `/` in its `principal`. What runs for it ends first. Once it writes again, it begins
    anew.
    """
    services, by = services_of(request), current_principal(request).name
    row = await services.store.member(f"{request.path_params['name']}/{request.path_params['member']}")
    if row is None:
        raise NotFound("There is no such member. GET /tokens/{name}/members lists those that there are.")
    await end_link(services, row, by)
    member = Principal(row.principal, Role.GUEST)
    audit = AuditRow(time.time(), row.principal, "member", "deleted", why="", by=by)
    await services.store.write([MemberRemoved(row.principal), audit])
    while sessions := await _sessions(services, row.principal):
        for session in sessions:
            with suppress(NotFound):  # a temporary one that was over
                await delete_conversation(services, member, session.id)
    await services.factory.memories.delete_many(row.principal, None)
    scheduler = services.automation.scheduler
    async with scheduler.changing:
        for schedule in scheduler.of(row.principal):
            await scheduler.remove(schedule, by)
    return Response(status_code=204)


async def _sessions(services: Services, principal: str) -> list[SessionRow]:
    """A page of the sessions of a principal, and all temporary ones. Raises StoreFailed."""
    temporary = await services.store.temporary_sessions(inf)
    return [*await services.store.sessions(principal, PAGE), *(row for row in temporary if row.principal == principal)]


async def list_links(request: Request) -> Response:
    """The members of bots that you have linked to your account, and the `bots` that there are."""
    services = services_of(request)
    rows = await services.store.linked_members(current_principal(request).name)
    return ASCIIResponse({"links": [member_fields(row) for row in rows], "bots": await _bots(services)})


async def create_code(request: Request) -> Response:
    """Make a code that links you to a member of a bot.

    Give it to the bot within 10 minutes. It is valid once, for that bot alone, and replaces an earlier one. See
    [linking an account](bots.md#linking-an-account).
    """
    services = services_of(request)
    body = await read_fields(request, MemberCodeRequest)
    if body.bot not in await _bots(services):
        raise NotFound(f"{body.bot[:64]!a} is no bot. GET /member-links lists those that there are.")
    code, expires = await services.speakers.code(current_principal(request), body.bot)
    setattr(request.state, SHOWN_ONCE, True)
    return ASCIIResponse({"code": code, "bot": body.bot, "expires": expires}, 201)


async def create_link(request: Request) -> Response:
    """Link a member to the account whose code it has.

    For bots. Its later messages run as the account, with no more rights than the bot and the account both have.
    """
    services, principal = services_of(request), current_principal(request)
    body = await read_fields(request, MemberLinkRequest)
    if not principal.member:
        if body.member is None:
            raise Refused(422, "invalid_request", "member is missing; say who has given the code")
        principal = await services.speakers.speaking(principal, body.member)
    if not principal.is_linked:  # what an earlier link has left stays ended
        await services.automation.scheduler.end_of(principal.member)
    return ASCIIResponse(member_fields(await services.speakers.link(principal, bot_of(principal.member), body.code)))


async def delete_link(request: Request) -> Response:
    """Unlink a member. What the bot has begun for you ends. The member is a guest again."""
    services, principal = services_of(request), current_principal(request)
    row = await services.store.member(f"{request.path_params['bot']}/{request.path_params['member']}")
    if not row or not row.account or (row.account != principal.name and principal.role is not Role.ADMIN):
        raise NotFound("There is no such link. GET /member-links lists yours.")
    await end_link(services, row, principal.name)
    return Response(status_code=204)


async def end_link(services: Services, row: MemberRow, by: str) -> None:
    """End the link of a member, if it has one, and what runs for it. Raises StoreFailed."""
    if row.account:
        await services.speakers.unlink(row, by)
        await services.automation.scheduler.end_of(row.principal)
    for run in await services.runs.of(row.account or row.principal):
        if row.principal in names_behind(run):
            await services.runs.cancel(run.id)


async def _bots(services: Services) -> list[str]:
    """The names of tokens that may say which member speaks. Raises StoreFailed."""
    now = time.time()
    return sorted({row.name for row in await services.store.tokens() if row.members and in_use(row, now)})


ROUTES = tagged(
    "Server",
    Route("GET /tokens/{name}/members", list_members, rights="admin", answer={"members": ["@Member"]}),
    Route("DELETE /tokens/{name}/members/{member}", delete_member, rights="admin"),
    Route("GET /member-links", list_links, rights="user", answer={"links": ["@Member"], "bots": ["text"]}),
    Route(
        "POST /member-codes",
        create_code,
        rights="user",
        answer={"code": "text", "bot": "text", "expires": "number"},
        statuses=(201,),
        errors=(404,),
        body=Body(MemberCodeRequest, {"bot": "telegram"}),
    ),
    Route(
        "POST /member-links",
        create_link,
        rights="user",
        answer="@Member",
        errors=(404, 409),
        body=Body(MemberLinkRequest, {"code": "K7QF-2M9X", "member": "42"}),
    ),
    Route("DELETE /member-links/{bot}/{member}", delete_link, rights="owner"),
)
