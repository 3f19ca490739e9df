"""The ASGI application: its routes, one answer for each error, and streams that no layer holds.

Starlette routes and answers. Of its layers for errors the outermost is kept, for what is unforeseen; for what is
foreseen it would wrap every request four times.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct
from starlette import routing
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.core.log_context import enter_request
from app.storage.principals import Principal
from routes.protocol.errors import SAFE_HEADERS, AnswerError, Refused, native_error
from routes.protocol.refusals import FORESEEN, refuse
from routes.protocol.requests import admins_only
from routes.protocol.route import Endpoint, Route
from routes.protocol.sse import CLIENT, STREAM
from tools.base.patterns import lazy_pattern
from tools.base.tasks import alone, import_in_thread

ROUTE = "route"  # where `scope["state"]` has the template of the path that was asked for
CLOSED_TO_MEMBERS = ("/sign-ins", "/member-codes", "/tokens", "/people")
OPEN_TO_LINKED = ("/chat", "/runs/")
SHOWN_TO_LINKED = "/schedules"  # those that it has set
PATH = ":path}"  # Starlette's, in which a dot stands for any character but a line feed


class ServedRoute(routing.Route):
    """A row as the router tries it, whose errors are AnswerMiddleware's. Routes for admins are closed to others here.

    A `path` in its path may have line feeds, as names of files may.
    """

    def __init__(self, row: Route) -> None:
        endpoint = row.handler if row.rights != "admin" or row.checks_itself else for_admins(row.handler)
        super().__init__(row.path, endpoint, methods=[row.method])
        self.row = row
        if PATH in row.path:
            self.path_regex = lazy_pattern(self.path_regex.pattern, re.DOTALL)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"][ROUTE] = row.path
            if (principal := scope["state"].get("principal")) and principal.member:
                await check_member(row, principal, Request(scope, receive))
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = answer


async def check_member(row: Route, principal: Principal, request: Request) -> None:
    """Refuse what a member of a bot's chats, or a bot for an account, may not ask for. Raises Refused, NotFound."""
    if row.path.startswith(CLOSED_TO_MEMBERS):
        raise Refused(403, "forbidden", "This is not for members of a bot. Send it without X-Dragoman-Member.")
    if not principal.is_linked:
        return
    shows_own = row.method == "GET" and row.path.startswith(SHOWN_TO_LINKED)
    if not row.path.startswith(OPEN_TO_LINKED) and row.stream != "lane" and not shows_own:
        message = (
            f"{principal.member} is linked to {principal.name}: its bot may send messages and decide on the calls of "
        )
        raise Refused(403, "forbidden", f"{message}the runs that these begin, and nothing else.")
    if run := request.path_params.get("run"):
        await request.app.state.services.runs.run(run, principal)


def for_admins(handler: Endpoint) -> Endpoint:
    """Return a handler that raises Refused for other principals."""

    async def checked(request: Request) -> Response:
        admins_only(request.state.principal)
        return await handler(request)

    return checked


class _LateRoutes(routing.BaseRoute):
    """Stands for the late routes of an application, until a request is for none of the others."""

    def matches(self, scope: Scope) -> tuple[routing.Match, Scope]:
        return routing.Match.FULL, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["app"].all_routes()
        await scope["app"].router(scope, receive, send)


class StreamingApplication(Starlette):
    """Sends a stream itself, when all layers have returned: no event passes them, and their memory is free again.

    The connection of a request for which `breaks_off` is true gets no answer.
    """

    breaks_off: Callable[[Scope], bool] | None = None

    def __init__(
        self,
        *,
        routes: Sequence[Route],
        late: Callable[[StreamingApplication], Sequence[Route]] | None = None,  # imports further routes when needed
        middleware: Sequence[Middleware] = (),
        answer: AnswerError = native_error,
    ) -> None:
        served = [*map(ServedRoute, routes), *([_LateRoutes()] if late else [])]
        super().__init__(routes=served, middleware=middleware)
        self._late = late
        self._answer = answer

    async def all_routes(self) -> Sequence[ServedRoute]:
        """Return all routes, which are served from now on."""
        if self._late:
            await asyncio.to_thread(alone, self._import_late)
        return [route for route in self.routes if isinstance(route, ServedRoute)]

    def _import_late(self) -> None:
        if self._late:  # another thread may have done it
            self.router.routes[-1:] = map(ServedRoute, self._late(self))
            self._late = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        enter_request(Headers(scope=scope).get("x-request-id"))
        client = state.pop(CLIENT, None)  # refers to what refers to this scope
        if client and self.breaks_off and self.breaks_off(scope):
            client.break_off()
            return
        await super().__call__(scope, receive, send)
        if stream := state.pop(STREAM, None):
            await stream.send_events(send, client)

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = self.router
        for layer, positional, named in reversed(self.user_middleware):
            app = layer(app, *positional, **named)

        async def answer_unforeseen(request: Request, error: Exception) -> Response:
            return self._answer(refuse(error), request.scope)

        return ServerErrorMiddleware(app, handler=answer_unforeseen)


class Answered(Struct, frozen=True):
    """A request whose answer has begun. `route` is the template of its path, `code` that of an error."""

    method: str
    route: str
    status: int
    seconds: float
    code: str = ""


class AnswerMiddleware(Struct, frozen=True):
    """ASGI middleware: a foreseen error becomes an answer, and every answer has SAFE_HEADERS or what it brings."""

    app: ASGIApp
    answer: AnswerError
    observe: Callable[[Answered], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        status, code = 500, "internal"  # of an error that is not foreseen
        try:
            status, code = await self._answered(scope, receive, send)
        except asyncio.CancelledError:
            status, code = 499, "cancelled"  # as nginx counts a client that has left
            raise
        finally:
            route = scope.get("state", {}).get(ROUTE, "")
            self.observe(Answered(scope["method"], route, status, time.monotonic() - began, code))

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, str]:
        """Answer; return the status, and the code of an error."""
        status = 0

        def send_safely(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            return send(message)

        try:
            await self.app(scope, receive, send_safely)
        except FORESEEN as error:
            if status:
                raise
            refused = refuse(error)
            await self.answer(refused, scope)(scope, receive, send_safely)
            return status, refused.code
        return status or 200, ""  # a stream begins when all layers have returned


class LazyApplication:
    """An application that is imported and opened with its first request: until then it costs nothing.

    `module` has an async context manager `opened`, which takes what `get` is given and yields the application.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[ASGIApp] | None = None
        self._over = asyncio.Event()

    async def get(self, services: Any) -> ASGIApp:
        """Raises what opening it raised; the next request tries again."""
        if self._opened is None or self._task is None or self._task.done():
            self._opened = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(services, self._opened), name=self._module)
        task, opened = self._task, self._opened
        await asyncio.wait(set[asyncio.Future[Any]]({task, opened}), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            task.result()
        return await opened

    async def _run(self, services: Any, opened: asyncio.Future[ASGIApp]) -> None:
        """Open and close it in one task, as its cancel scopes require."""
        async with (await import_in_thread(self._module)).opened(services) as application:
            opened.set_result(application)
            await self._over.wait()

    async def aclose(self) -> None:
        self._over.set()
        if self._task:
            await asyncio.wait([self._task])
