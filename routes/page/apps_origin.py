"""The origin of apps (`apps_origin`): this server, under a host of its own, where it has a frame for apps and no more.

In a frame of that origin an app has storage, which it shares with other apps, and nothing of the page: neither its
cookies, which belong to another host, nor its token, which no request to this host carries.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routes.page import FRAME, PLACE, VERSION, asset
from routes.protocol.errors import Refused, native_error

POLICY = "Content-Security-Policy"
OPAQUE, WITH_ORIGIN = "sandbox allow-scripts", "sandbox allow-scripts allow-same-origin"
ANCESTORS, FRAMES = "frame-ancestors 'self'", "frame-src 'self'"


class AppsOrigin:
    """ASGI middleware in front of all others. `pages` are the origins that the page can be opened at."""

    def __init__(self, app: ASGIApp, origin: str, pages: tuple[str, ...]) -> None:
        self._app = app
        self._origin = origin
        self._host = urlsplit(origin).netloc
        self._ancestors = f"frame-ancestors {' '.join(pages)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif Headers(scope=scope).get("host", "").lower() != self._host:
            await self._app(scope, receive, self._framing(send))
        else:
            await self._serve_frame(scope, receive, send)

    async def _serve_frame(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = PLACE.decode()[1:]
        name = scope["path"].removeprefix(place)
        version = VERSION.match(name)
        if not scope["path"].startswith(place) or name[version.end() if version else 0 :] != FRAME:
            refused = Refused(404, "not_found", "There is nothing here but a frame for apps.")
            await native_error(refused, scope)(scope, receive, send)
            return
        answer = await asset(Request({**scope, "path_params": {"path": name}}))
        policy = answer.headers[POLICY].replace(OPAQUE, WITH_ORIGIN).replace(ANCESTORS, self._ancestors)
        answer.headers[POLICY] = policy
        await answer(scope, receive, send)

    def _framing(self, send: Send) -> Send:
        """Let the page have frames of the origin."""

        async def send_with_frames(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                if FRAMES in (policy := headers.get(POLICY, "")):
                    headers[POLICY] = policy.replace(FRAMES, f"{FRAMES} {self._origin}")
            await send(message)

        return send_with_frames
