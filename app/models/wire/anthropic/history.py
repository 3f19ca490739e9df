"""The history as `system` and `messages` of a request to the Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.core.clock import Clock
from app.core.messages import AskedCall, Message
from app.models.wire.anthropic.blocks import Block, file_blocks, plain_id, text_blocks, tool_result, tool_use
from app.models.wire.anthropic.reasoning import Digest, replayed
from app.models.wire.attachment_parts import Encoded
from app.models.wire.openai.history import ENOUGH, INTERRUPTED, as_text, ends_text_results, native_calls, result

NOTHING_SAID = "(an empty message)"
EARLIER = "(The conversation began earlier.)"
GO_ON = "Go on."  # newer models refuse to be the last who spoke


@dataclass(slots=True)
class Written:
    """Roles alternate, a person begins and ends, and nothing is empty. `before` is the digest of all of it.

    `thoughtful` says that thoughts of earlier replies are in it.
    """

    tools: Sequence[Block] = ()
    system: list[Block] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    thoughtful: bool = False
    digest: Digest = field(default_factory=Digest)

    @property
    def before(self) -> str:
        return self.digest.told()

    @property
    def goes_on(self) -> bool:
        """Whether there is more to come, as far as can be seen."""
        return bool(self.tools) or len(self.messages) > 1

    def instruct(self, blocks: Sequence[Block]) -> None:
        self.digest.add("system", blocks)
        self.system += blocks

    def say(self, role: str, blocks: Sequence[Block], known_as: Sequence[Block] | None = None) -> None:
        """`known_as` is what stands for the blocks in the digest, where they differ from request to request."""
        if not blocks:
            return
        if not self.messages and role == "assistant":
            self.say("user", text_blocks(EARLIER))
        self.digest.add(role, blocks if known_as is None else known_as)
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": list(blocks)})


@dataclass(frozen=True, slots=True)
class Wire:
    """How one request's history is written.

    Calls that were native stay native as long as `native` holds: each is followed at once by exactly one result, all
    results before anything else. All other calls are text, and their results are the user's words. With a `clock`, the
    user's messages end with the time they were sent. `origin` is whose thoughts go back; empty for none.
    """

    native: bool
    tools: Sequence[Block] = ()
    origin: str = ""
    clock: Clock | None = None
    files: Encoded = field(default_factory=dict)

    def write(self, history: Sequence[Message]) -> Written:
        written = Written(self.tools)
        written.digest.add("tools", self.tools)
        results: dict[str | None, Message] = {one.call: one for one in history if one.role == "tool" and one.call}
        in_pairs = {call.id for message in history if self.native for call in native_calls(message)}
        for position, message in enumerate(history):
            self._add(written, message, results, in_pairs)
            if ends_text_results(history[position : position + 2], in_pairs):
                written.say("user", text_blocks(ENOUGH))
        if not written.messages or written.messages[-1]["role"] == "assistant":
            written.say("user", text_blocks(GO_ON))
        return written

    def _add(
        self, written: Written, message: Message, results: Mapping[str | None, Message], in_pairs: set[str]
    ) -> None:
        match message.role:
            case "system" if not written.messages:
                written.instruct(text_blocks(message.text))
            case "tool" if message.call in in_pairs:
                return
            case "tool":
                written.say("user", text_blocks(result(message)))
            case "assistant":
                self._reply(written, message, results)
            case _:
                hashes = {sha256: sha256 for sha256 in self.files}
                written.say("user", self._words(message, self.files), self._words(message, hashes))

    def _words(self, message: Message, files: Encoded) -> list[Block]:
        """A person's, behind what they show."""
        text = self.clock.stamped(message.text, message.at) if self.clock else message.text
        blocks = [*file_blocks(message.attachments, files), *text_blocks(text)]
        return blocks or text_blocks(NOTHING_SAID)

    def _reply(self, written: Written, message: Message, results: Mapping[str | None, Message]) -> None:
        calls = native_calls(message)
        if calls and not self.native:
            written.say("assistant", text_blocks(as_text(message.text, calls)["content"]))
            return
        thought = replayed(message, calls, self.origin, written.before) if self.origin else None
        blocks = thought or [*text_blocks(message.text), *(tool_use(call, plain_id(call.id)) for call in calls)]
        written.thoughtful |= thought is not None
        written.say("assistant", blocks)
        ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        written.say("user", [answered(id, call, results) for id, call in zip(ids, calls, strict=True)])


def answered(id: str, call: AskedCall, results: Mapping[str | None, Message]) -> Block:
    return tool_result(id, result(results[call.id]) if call.id in results else INTERRUPTED)
