"""Reference to one model of one server, for requests about the model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import httpx2
from msgspec import Struct

from app.models.http.client import NoAnswer, is_local, json_answer, retried
from app.models.http.json_body import encode
from tools.base.hidden_fields import repr_without

MAX_LIST_BYTES = 4 * 1024 * 1024  # some gateways list hundreds of models with long descriptions


class ServedModel(Struct, frozen=True):
    """One model of one server. Requests are authorised by `key` or by `headers`."""

    client: httpx2.AsyncClient
    base_url: str
    model: str
    key: str | None = None
    headers: Mapping[str, str] | None = None
    list_query: str = ""

    __repr__ = repr_without("key", "headers")

    @property
    def root(self) -> str:
        return self.base_url.removesuffix("/v1")

    @property
    def local(self) -> bool:
        return is_local(self.base_url)

    async def ask(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """Request JSON, and retry once on a closed connection. Raises NoAnswer, httpx2.HTTPError."""
        content = None if body is None else encode(body)
        send = partial(
            json_answer, self.client, method, url, self.key, content=content, most=MAX_LIST_BYTES, headers=self.headers
        )
        return await retried(send)

    async def ask_if_supported(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> Any:
        """As `ask`; None if the server has no such URL. Raises NoAnswer only if a retry may help."""
        try:
            return await self.ask(method, url, body)
        except NoAnswer as refusal:
            if not refusal.lasting:
                raise
            return None
