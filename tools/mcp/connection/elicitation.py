"""Questions that a server asks a person in the middle of a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from tools.base.escape_invisible import visible
from tools.mcp.call_context import Moment, this_moment
from tools.mcp.model import Answer, Elicit, Question, ServerConfig
from tools.mcp.secret_fields import asks_for_secret

_MESSAGE = 2_000
MOST_WAITING, MOST_ASKED = 4, 20  # questions of one call: at a time, and in all


class Asking:
    """The SDK's callback. The call's clock stands still while somebody is asked."""

    def __init__(self, config: ServerConfig, elicit: Elicit, calls: Collection[Moment]) -> None:
        self._config = config
        self._elicit = elicit
        self._calls = calls

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        # Over pipes a request does not say which call it belongs to; with one under way there is no doubt.
        moment = this_moment.get() or (next(iter(self._calls)) if len(self._calls) == 1 else None)
        question = self._question(params, moment)
        if question is None or moment is None or moment.asking >= MOST_WAITING or moment.questions >= MOST_ASKED:
            return ElicitResult(action="decline")
        moment.questions += 1
        began = time.monotonic()
        moment.asking += 1
        asking = asyncio.ensure_future(self._elicit(question))
        try:
            while not asking.done() and moment in self._calls:
                await asyncio.wait({asking}, timeout=1.0)
        finally:
            moment.asking -= 1
            moment.asked_s += time.monotonic() - began
            moment.stir()
            asking.cancel()
        return _result(asking.result() if asking.done() and not asking.cancelled() else Answer("cancel"), params)

    def _question(self, params: ElicitRequestParams, moment: Moment | None) -> Question | None:
        """None for what nobody should be asked."""
        message = visible(params.message)[:_MESSAGE]
        tool, context = (moment.tool, moment.context) if moment else (None, None)
        if isinstance(params, ElicitRequestURLParams):
            if urlsplit(params.url).scheme != "https":
                return None
            return Question(self._config.name, message, url=visible(params.url), tool=tool, context=context)
        schema = params.requested_schema
        if asks_for_secret(message, schema):
            return None
        return Question(self._config.name, message, schema=schema, tool=tool, context=context)


def _fields(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    properties = schema.get("properties")
    return list(properties.items()) if isinstance(properties, dict) else []


def _result(answer: Answer, params: ElicitRequestParams) -> ElicitResult:
    """What a person left out is what the form has there."""
    content = None
    if answer.action == "accept":
        content = dict(answer.content or {})
        if not isinstance(params, ElicitRequestURLParams):
            for name, field in _fields(params.requested_schema):
                if isinstance(field, dict) and "default" in field:
                    content.setdefault(name, field["default"])
    return ElicitResult(action=answer.action, content=content)
