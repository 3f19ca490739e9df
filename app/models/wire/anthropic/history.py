"""Encode the history as `system` and `messages` of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from app.core.clock import Clock
from app.core.messages import AskedCall, Message
from app.models.http.json_body import encodable
from app.models.wire.anthropic.blocks import Block, file_blocks, text_blocks, tool_result, tool_use
from app.models.wire.anthropic.reasoning import THINKING, Digest, replayed
from app.models.wire.attachment_parts import Encoded
from app.models.wire.call_ids import TakesId, call_ids, takes_plain
from app.models.wire.client_history import EARLIER
from app.models.wire.openai.history import ENOUGH, INTERRUPTED, as_text, ends_text_results, native_calls, result

EMPTY_MESSAGE = "(an empty message)"
GO_ON = "Go on."  # newer models refuse a history that ends with an assistant message


class EncodedHistory(Struct):
    """An encoded history: roles alternate, the user is first and last, and nothing is empty.

    `before` is the digest of all of it. `with_reasoning` is true if it contains reasoning of earlier replies.
    """

    tools: Sequence[Block] = ()
    system: list[Block] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    with_reasoning: bool = False
    digest: Digest = field(default_factory=Digest)

    @property
    def before(self) -> str:
        return self.digest.value()

    def append(self, role: str, blocks: Sequence[Block], known_as: Sequence[Block] | None = None) -> None:
        """Append blocks; `known_as` replaces them in the digest where they differ between requests."""
        if not blocks:
            return
        if not self.messages and role == "assistant":
            self.append("user", text_blocks(EARLIER))
        self.digest.add(role, blocks if known_as is None else known_as)
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": list(blocks)})


class Wire(Struct, frozen=True):
    """Encoder of one request's history.

    With `native`, native calls stay native: each is followed directly by exactly one result, before anything else. All
    other calls are text, with results in user messages. With a `clock`, user messages end with the time they were
    sent. The server `origin` gets its own ids back, and its reasoning if `replays`. With `verbatim`, results have no
    delimiters and no reminder, and ids are ready. With `goes_on`, the last message is the model's.
    """

    native: bool
    tools: Sequence[Block] = ()
    origin: str = ""
    clock: Clock | None = None
    files: Encoded = field(default_factory=dict)
    verbatim: bool = False
    replays: bool = True
    takes_id: TakesId = takes_plain
    goes_on: bool = False

    def write(self, history: Sequence[Message]) -> EncodedHistory:
        written = EncodedHistory(self.tools)
        written.digest.add("tools", self.tools)
        results: dict[str | None, Message] = {one.call: one for one in history if one.role == "tool" and one.call}
        ids = self._ids(history)
        for position, message in enumerate(history):
            match message.role:
                case "system" if not written.messages:
                    blocks = text_blocks(message.text)
                    written.digest.add("system", blocks)
                    written.system += blocks
                case "tool":
                    if message.call not in ids:
                        written.append("user", text_blocks(result(message, bare=self.verbatim)))
                case "assistant":
                    self._reply(written, message, results, ids)
                case _:
                    hashes = {sha256: sha256 for sha256 in self.files}
                    written.append("user", self._user_blocks(message, self.files), self._user_blocks(message, hashes))
            if not self.verbatim and ends_text_results(history[position : position + 2], ids):
                written.append("user", text_blocks(ENOUGH))
        if not written.messages or (written.messages[-1]["role"] == "assistant" and not self.goes_on):
            written.append("user", text_blocks(GO_ON))
        return written

    def _ids(self, history: Sequence[Message]) -> Mapping[str | None, str]:
        """Return the ids that are sent, by those of the native calls."""
        if not self.native:
            return {}
        if self.verbatim:
            return {call.id: call.id for message in history for call in native_calls(message)}
        return dict(call_ids(history, self.takes_id, self.origin).items())

    def _user_blocks(self, message: Message, files: Encoded) -> list[Block]:
        """Return the blocks of a user message, files first."""
        text = self.clock.stamped(message.text, message.at) if self.clock else message.text
        blocks = [*file_blocks(message.attachments, files), *text_blocks(text)]
        return blocks or text_blocks(EMPTY_MESSAGE)

    def _reply(
        self,
        written: EncodedHistory,
        message: Message,
        results: Mapping[str | None, Message],
        ids: Mapping[str | None, str],
    ) -> None:
        calls = native_calls(message)
        if calls and not self.native:
            written.append("assistant", text_blocks(as_text(message.text, calls)["content"]))
            return
        origin = self.origin if self.replays else ""
        blocks = replayed(message, calls, ids, origin, written.before) or [
            *text_blocks(message.text),
            *(tool_use(call, ids[call.id]) for call in calls),
        ]
        written.with_reasoning |= any(block["type"] in THINKING for block in blocks)
        written.append("assistant", blocks)
        sent = [block["id"] for block in blocks if block["type"] == "tool_use"]
        answers = [self._answer_to(call, results) for call in calls]
        written.append("user", [tool_result(id, answer) for id, answer in zip(sent, answers, strict=True)])

    def _answer_to(self, call: AskedCall, results: Mapping[str | None, Message]) -> str:
        if call.id not in results:
            return INTERRUPTED
        return encodable(results[call.id].text) if self.verbatim else result(results[call.id])
