"""Elicitation: questions of a server to a person during a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from tools.base.escape_invisible import visible
from tools.mcp.call_context import CallContext, current_call
from tools.mcp.model import Elicit, ElicitationAnswer, ElicitationQuestion, ServerConfig
from tools.mcp.secret_fields import requests_secret

_MESSAGE = 2_000
MOST_WAITING, MOST_ASKED = 4, 20  # questions of one call: at a time, and in all


class ElicitationHandler:
    """The SDK's callback. The call's timeout is suspended while a question is open."""

    def __init__(self, config: ServerConfig, elicit: Elicit, calls: Collection[CallContext]) -> None:
        self._config = config
        self._elicit = elicit
        self._calls = calls

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        # Over stdio a request does not name its call; it is clear only when there is one.
        call = current_call.get() or (next(iter(self._calls)) if len(self._calls) == 1 else None)
        match context.meta:
            case {"io.modelcontextprotocol/related-task": {"taskId": str(task)}}:  # of 2025-11-25
                call = next((one for one in self._calls if one.task == task), call)
        question = self._question(params, call)
        if question is None or call is None or call.open_questions >= MOST_WAITING or call.question_count >= MOST_ASKED:
            return ElicitResult(action="decline")
        call.question_count += 1
        began = time.monotonic()
        call.open_questions += 1
        asking = asyncio.ensure_future(self._elicit(question))
        try:
            while not asking.done() and call in self._calls:
                await asyncio.wait({asking}, timeout=1.0)
        finally:
            call.open_questions -= 1
            call.question_s += time.monotonic() - began
            call.touch()
            asking.cancel()
        answer = asking.result() if asking.done() and not asking.cancelled() else ElicitationAnswer("cancel")
        content = question.with_defaults(dict(answer.content or {})) if answer.action == "accept" else None
        return ElicitResult(action=answer.action, content=content)

    def _question(self, params: ElicitRequestParams, call: CallContext | None) -> ElicitationQuestion | None:
        """Build the question; None for one that must not be asked, such as for a secret."""
        message = visible(params.message)[:_MESSAGE]
        tool, context = (call.tool, call.context) if call else (None, None)
        if isinstance(params, ElicitRequestURLParams):
            if urlsplit(params.url).scheme != "https":
                return None
            return ElicitationQuestion(self._config.name, message, url=visible(params.url), tool=tool, context=context)
        schema = params.requested_schema
        if requests_secret(message, schema):
            return None
        return ElicitationQuestion(self._config.name, message, schema=schema, tool=tool, context=context)
