"""The origin of apps (`apps_origin`): this server, under a host of its own, where it has a frame for apps and no more.

There an app has storage, which it shares with other apps, and nothing of the page: its cookies belong to another host.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routes.page import FRAME, VERSION, asset
from routes.protocol.errors import Refused, native_error

PAGE, POLICY = "/page/", "Content-Security-Policy"


class AppsOrigin:
    """ASGI middleware in front of all others. `page` is the address of the page, which has the frames."""

    def __init__(self, app: ASGIApp, origin: str, page: str) -> None:
        self._app, self._host = app, urlsplit(origin).netloc.lower()
        self._frames = "frame-src 'self'", f"frame-src 'self' {origin}"
        self._ancestors = "frame-ancestors 'self'", "frame-ancestors {0.scheme}://{0.netloc}".format(urlsplit(page))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_frames(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                headers[POLICY] = headers.get(POLICY, "").replace(*self._frames)
            await send(message)

        if scope["type"] != "http" or Headers(scope=scope).get("host", "").lower() != self._host:
            await self._app(scope, receive, send_with_frames)
            return
        name = scope["path"].removeprefix(PAGE)
        answer = native_error(Refused(404, "not_found", "There is nothing here but a frame for apps."), scope)
        if f"{PAGE}{name}" == scope["path"] and VERSION.sub("", name, count=1) == FRAME:
            answer = await asset(Request({**scope, "path_params": {"path": name}}))
            policy = answer.headers[POLICY].replace(*self._ancestors)
            answer.headers[POLICY] = policy.replace("sandbox allow-scripts", "sandbox allow-scripts allow-same-origin")
        await answer(scope, receive, send)
