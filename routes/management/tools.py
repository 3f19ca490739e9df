"""Tools of the table of actions: each call is a request to the route's own handler, as the person whose run it is.

The handler checks the rights and the fields, as it does for a request from outside; the gate has asked before.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from app.config.settings import Settings
from app.policy.current_rights import principal_named
from app.storage.principals import Principal
from app.storage.store import Store
from parsing import Arguments
from routes.management.actions import AREAS, SCHEDULES, TEXT, Action, Area
from routes.management.reminders import ABOUT, Reminders, zone_of_machine
from routes.protocol.application import ServedRoute, StreamingApplication
from routes.protocol.refusals import FORESEEN, refuse
from tools.base.outcome import Progress, Result
from tools.base.patterns import lazy_pattern
from tools.base.rights import OutboundEffect, Risk, Role
from tools.catalogue import LARGE_WINDOW
from tools.tool import Context, Tool

ACTION = "action"
_PARAMETER = lazy_pattern(r"{(\w+)")


class OwnRoutes(Struct):
    """The routes of the server. Its tools are there before it, as the runs of an earlier server have them."""

    server: StreamingApplication | None = None

    async def of(self, action: Action) -> ServedRoute:
        assert self.server is not None
        named = f"{action.method} {action.path}"
        return next(route for route in await self.server.all_routes() if route.row.name == named)


class Handler(Struct, frozen=True):
    """An action with the routes. `needed` are the parameters of the path that a call has to give."""

    action: Action
    routes: OwnRoutes

    @property
    def needed(self) -> list[str]:
        return [name for name in _PARAMETER.findall(self.action.path) if name not in self.action.fixed]

    @property
    def fields(self) -> Mapping[str, Any]:
        """JSON Schemas of all that a call may give, by name."""
        return {**dict.fromkeys(self.needed, TEXT), **self.action.query, **self.action.body}


def management_tools(routes: OwnRoutes, settings: Settings, store: Store) -> list[Tool]:
    """The tools that are switched on: one for each area."""
    reminding = [_reminder_tool(routes, settings, store)] if settings.reminders and settings.max_schedules else []
    names = settings.label_policy.names
    areas = AREAS if settings.management_tools else ()
    return [*reminding, *(_tool(area, _handlers(area, routes), store, names) for area in areas)]


def _reminder_tool(routes: OwnRoutes, settings: Settings, store: Store) -> Tool:
    """The tool for the schedules of each person. Its calls ask by what they do, and `add` always."""
    reminders = Reminders(settings.time_zone or zone_of_machine())
    handlers = _handlers(SCHEDULES, routes)
    by_name = {handler.action.name: handler for handler in handlers}

    def leaves(arguments: Arguments, folder: Path) -> OutboundEffect | None:
        """Ask about no call that its own run refuses."""
        handler = by_name.get(str(arguments.get(ACTION)))
        return None if handler is None or _unfit(handler, arguments) else reminders.leaves(arguments, folder)

    return msgspec.structs.replace(
        _tool(SCHEDULES, handlers, store, settings.label_policy.names, reminders),
        role=Role.GUEST if settings.schedules_per_guest else Role.USER,
        approval="mode",
        untrusted=False,
        normalise=reminders.normalise,
        leaves=leaves,
        loses_nothing=reminders.loses_nothing,
        local_time=True,
    )


def _handlers(area: Area, routes: OwnRoutes) -> list[Handler]:
    return [Handler(one, routes) for one in area.actions]


def _tool(
    area: Area,
    handlers: Sequence[Handler],
    store: Store,
    labels: Sequence[str],
    reminders: Reminders | None = None,
) -> Tool:
    by_name = {handler.action.name: handler for handler in handlers}
    fields = {name: schema for handler in handlers for name, schema in handler.fields.items()}
    actions = {"type": "string", "enum": [*by_name]}
    return Tool(
        f"manage_{area.name}",
        f"{ABOUT if reminders else 'Manage this server.'} {'; '.join(map(_described, handlers))}.",
        {"type": "object", "properties": {ACTION: actions} | fields, "required": [ACTION]},
        Risk.WRITE,
        _run(by_name, store, labels, reminders, labelled=area.labelled),
        role=Role.ADMIN,
        approval="always",
        confined=True,
        untrusted=True,
        least_window=LARGE_WINDOW,
        in_turn=True,
    )


def _described(handler: Handler) -> str:
    """The action's name with its fields, those that may be left out with a question mark."""
    fields = [name if name in handler.needed else f"{name}?" for name in handler.fields]
    return f"{handler.action.name}({', '.join(fields)})"


Run = Callable[[Arguments, Context], AsyncGenerator[Progress | Result, None]]


def _run(
    handlers: Mapping[str, Handler],
    store: Store,
    names: Sequence[str],
    reminders: Reminders | None,
    *,
    labelled: bool,
) -> Run:
    async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        handler = handlers[arguments[ACTION]]  # an action of the schema, which was checked
        wrong = _unfit(handler, arguments)
        if not wrong and reminders:
            wrong = await reminders.objection(arguments, context, store)
        if wrong:
            yield Result(ok=False, text=wrong)
            return
        principal = await principal_named(store, context.principal, context.speaker)
        response = await _answer(handler, arguments, principal, context.session)
        text = bytes(response.body).decode()
        labels = shown_labels(text, names) if labelled else ()
        if handler.action.shows and _holds(text):
            labels = tuple(names)
        yield Result(ok=response.status_code < 400, text=text or "Done.", labels=labels)

    return run


def shown_labels(text: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the labels of the sessions and memories that an answer shows, as its rows name them."""
    if not names or not text:
        return ()
    found, left = set[str](), [json.loads(text)]
    while left:
        match left.pop():
            case dict() as row:
                here = row.get("labels")
                found |= {one for one in here if isinstance(one, str)} if isinstance(here, list) else set()
                left += row.values()
            case list() as rows:
                left += rows
    return tuple(sorted(found & {*names}))


def _unfit(handler: Handler, given: Arguments) -> str:
    """Return what is wrong with the fields of a call; the handler checks their values."""
    if missing := [name for name in handler.needed if not given.get(name)]:
        return f"{handler.action.name} needs {', '.join(missing)}."
    if unknown := [name for name in given if name != ACTION and name not in handler.fields]:
        return f"{handler.action.name} has no {', '.join(map(ascii, unknown[:5]))}; it is {_described(handler)}."
    return ""


def _holds(text: str) -> bool:
    """Return True if an answer has any value but empty ones, as the list of nothing has."""
    return bool(text) and any(json.loads(text).values())


async def _answer(handler: Handler, given: Arguments, principal: Principal, session: str) -> Response:
    """The answer to a request as the server's router would hand it to the handler, after authentication."""
    action, route = handler.action, await handler.routes.of(handler.action)
    convertors = route.param_convertors
    path = {name: convertors[name].convert(given[name]) for name in convertors if name in given}
    body = action.send({name: given[name] for name in action.body if name in given}, session)
    query = {name: given[name] for name in action.query if name in given}
    data = json.dumps(body).encode() if body else b""

    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    scope = {
        "type": "http",
        "method": action.method,
        "path": action.path,
        "path_params": path | dict(action.fixed),
        "query_string": urlencode(query).encode(),
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())],
        "app": handler.routes.server,
        "state": {"principal": principal},
    }
    try:
        response: Response = await route.endpoint(Request(scope, receive))
        return response
    except FORESEEN as error:
        refused = refuse(error)
        return Response(json.dumps({"code": refused.code, "message": refused.message} | refused.more), refused.status)
