"""Requests of the terminal client beside its runs: lists, and what its commands change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
from msgspec import Struct

from routes.access.token_auth import NotProven
from routes.terminal.event_client import ChatFailed, no_answer, refusal
from routes.terminal.view import printable

Json = dict[str, Any]


class Api(Struct, frozen=True):
    """One server. Every method raises ChatFailed."""

    client: httpx2.AsyncClient

    async def get(self, path: str) -> Json:
        return await self._send("GET", path)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        return await self._send("POST", path, body)

    async def delete(self, path: str) -> Json:
        return await self._send("DELETE", path)

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        try:
            response = await self.client.request(method, path, json=body)
        except NotProven as error:
            raise ChatFailed(str(error)) from error
        except httpx2.TransportError as error:
            raise no_answer(self.client, error) from error
        if not response.is_success:
            raise ChatFailed(refusal(response.status_code, response.content) + _files_of(response))
        answer: Json = response.json() if response.content else {}
        return answer


def _files_of(response: httpx2.Response) -> str:
    """The files that an undo was refused for, a line each."""
    try:
        files = response.json()["error"].get("files", ())
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return "".join(f"\n  {printable(one['path'])}: {printable(one['reason'])}" for one in files)
