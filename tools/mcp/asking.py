"""Questions that a server asks a person in the middle of a call."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from tools.mcp.model import Answer, Elicit, Question, ServerConfig
from tools.mcp.moment import Moment, this_moment
from tools.visible import visible

_MESSAGE = 2_000
# A form goes through the server's hands and the log: what belongs to a person alone is not asked for in one.
_SECRET = re.compile(r"passw|secret|(api|access|private|card).?(key|number)|token|credential", re.IGNORECASE)
_SECRET_FIELD = re.compile(rf"{_SECRET.pattern}|(\b|_)(pin|cvv|cvc|otp)(\b|_)", re.IGNORECASE)


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
        if question is None or moment is None:
            return ElicitResult(action="decline")
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
        if any(_is_secret(name, field) for name, field in _fields(schema)):
            return None
        return Question(self._config.name, message, schema=schema, tool=tool, context=context)


def _fields(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    properties = schema.get("properties")
    return list(properties.items()) if isinstance(properties, dict) else []


def _is_secret(name: str, field: Any) -> bool:
    """By what the field is called; its description may well say "no PIN, please"."""
    title = field.get("title") if isinstance(field, dict) else ""
    return bool(_SECRET_FIELD.search(f"{name} {title}") or _SECRET.search(str(field)))


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
