"""Provider for servers with OpenAI's chat completions."""

from __future__ import annotations

from typing import Any

import httpx2

from app.core.clock import Clock
from app.core.messages import Message
from app.core.provider import ModelRequest
from app.models.capabilities.abilities import AbilityCache, AbilityOverrides
from app.models.http.client import ModelClient
from app.models.http.exchange import CompletionRequest, Reader, RequestRefused, post
from app.models.http.json_body import encode
from app.models.wire.attachment_parts import Encoded, encoded_files
from app.models.wire.hosted_provider import ANY_MODEL, SERVER_LOST, HostedProvider, RequestDefaults
from app.models.wire.opaque_metadata import origin_of
from app.models.wire.openai.answer import ChatAnswer
from app.models.wire.openai.history import BRIDGED, encoded_tools, wire_messages
from app.models.wire.openai.openings import OpeningCache
from app.models.wire.openai.reasoning_replay import ReplayPolicy, replay_rule
from app.models.wire.request_extras import added

__all__ = ["ANY_MODEL", "SERVER_LOST", "OpenAIChat", "RequestDefaults"]


class OpenAIChat(HostedProvider):
    """A Provider. `base_url` ends before `/chat/completions`; `close` closes the client.

    With `bare_results`, for small models, only untrusted text results get delimiters.
    """

    def __init__(
        self,
        client: ModelClient,
        base_url: str,
        model: str = ANY_MODEL,
        key: str | None = None,
        *,
        overrides: AbilityOverrides | None = None,
        defaults: RequestDefaults | None = None,
        bare_results: bool = False,
        clock: Clock | None = None,
        abilities: AbilityCache | None = None,
    ) -> None:
        super().__init__(
            client, base_url, model, key, overrides=overrides, defaults=defaults, clock=clock, abilities=abilities
        )
        self._bare = bare_results
        self._openings = OpeningCache(bare=bare_results)

    @property
    def url(self) -> str:
        return f"{self.base_url}/chat/completions"

    @property
    def _replay(self) -> ReplayPolicy:
        return ReplayPolicy(origin_of(self.model, self.base_url), replay_rule(self.model))

    def added(self, message: Message) -> str:
        replayed = self._replay.replayed_reasoning(message) if message.reasoning else ""
        native = message.role == "tool" and self.native_tools  # not needed for other roles
        return added(message, native=native, bare=self._bare, clock=self._clock) + replayed

    async def _send(self, request: ModelRequest, *, native: bool) -> tuple[httpx2.Response, Reader]:
        files, key = await encoded_files(request), request.key or self.key
        while True:  # terminates: each round drops one more parameter
            body = self._body(request, files.marks, native=native)
            content = files.put_into(encode(body))
            completion = CompletionRequest(self.url, content, self.headers(key), key, request.inactivity_s)
            try:
                return await post(self._client, completion), ChatAnswer(self.url, self._replay.origin)
            except RequestRefused as refusal:
                if not self._parameters.learn(refusal.status, refusal.text, body):
                    raise self._refusal(refusal, native=native) from refusal

    def _body(self, request: ModelRequest, files: Encoded, *, native: bool) -> dict[str, Any]:
        limits = [limit for limit in (request.max_tokens, self._defaults.max_tokens) if limit is not None]
        temperature = request.temperature if request.temperature is not None else self._defaults.temperature
        opening = self._openings.wired(request.opening())
        messages = wire_messages(
            request.messages,
            native=native,
            bare=self._bare,
            clock=self._clock,
            replay=self._replay,
            bridged=bool(BRIDGED.search(self.model)),
            files=files,
            before=opening.wired,
        )
        body = {"model": self.model, "messages": opening.with_rest(messages), "stream": True}
        tools = {"tools": encoded_tools(request.tools)} if native else {}
        return body | tools | self._parameters.fields(self.model, min(limits, default=None), temperature)
