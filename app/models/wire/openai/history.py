"""Encode the history for chat completions, in a form that strict chat templates accept."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from app.core.clock import Clock
from app.core.data_delimiters import framed
from app.core.messages import AskedCall, Message
from app.models.http.json_body import EncodedJSON, encodable, encodable_fields, encodable_value, encoded
from app.models.wire.attachment_parts import Encoded, joined, with_files
from app.models.wire.call_ids import TakesId, call_ids, takes_short_ids
from app.models.wire.native_calls import NATIVE, is_json_of
from app.models.wire.openai.reasoning_replay import ReplayPolicy
from tools.base.patterns import lazy_pattern
from tools.tool import Tool, ToolList

# After a text result: without it a small model repeats the call; larger ones are not affected.
ENOUGH = "If that is enough, answer in plain text."
INTERRUPTED = "No result: the call was interrupted."
CODE = "qzvkwxjp"  # placeholder of a result code: rare letters, which take as many tokens as any code
# Mistral's models, whose server and templates refuse a user message directly after a result.
BRIDGED = lazy_pattern("[sx]tral", re.IGNORECASE)
ODD = lazy_pattern(r"[^a-zA-Z0-9_-]")
BRIDGE = "I have read the results."
SHARED = 16  # openings that are kept, the newest
WireMessage = dict[str, Any]


def wire_messages(
    history: Sequence[Message],
    *,
    native: bool,
    bare: bool = False,
    clock: Clock | None = None,
    replay: ReplayPolicy | None = None,
    bridged: bool = False,
    files: Encoded | None = None,
    before: Sequence[WireMessage] = (),
    takes_id: TakesId = takes_short_ids,
) -> list[WireMessage]:
    """Encode the history, with or without native tools.

    With `native`, native calls stay native: each is followed directly by exactly one result. All other calls are text,
    with results in user messages, for templates without other roles. One system message comes first, roles alternate,
    and nothing is empty.

    Results are delimited; `bare` omits the delimiters of trusted text results. With a `clock`, user messages end with
    the time they were sent. `replay` adds reasoning and metadata. With `bridged`, an assistant message separates a
    result from the next user message. `files` has the data of attachments. The messages are added to those `before`.
    `takes_id` says which ids of other servers' calls this one takes.
    """
    replay = replay if replay and native else ReplayPolicy()
    extras = replay.fields_for(history) if native else [{}] * len(history)
    results = {message.call: message for message in history if message.role == "tool" and message.call}
    ids = call_ids(history, takes_id, replay.origin) if native else {}
    sent: list[WireMessage] = [*before]
    for position, message in enumerate(history):
        for wired in wire(message, results, ids, bare=bare, clock=clock, replay=replay, files=files or {}):
            whole = wired | encodable_fields(extras[position]) if wired["role"] == "assistant" else wired
            add(sent, whole, bridged=bridged)
        if ends_text_results(history[position : position + 2], ids):
            add(sent, {"role": "user", "content": ENOUGH})
    return sent


def ends_text_results(here: Sequence[Message], in_pairs: Container[str | None]) -> bool:
    """Return whether the first of `here` is a text result that no other result follows."""
    return here[0].role == "tool" and here[0].call not in in_pairs and all(later.role != "tool" for later in here[1:])


def wire(
    message: Message,
    results: Mapping[str, Message],
    ids: Mapping[str, str],
    *,
    bare: bool,
    clock: Clock | None,
    replay: ReplayPolicy,
    files: Encoded,
) -> Iterator[WireMessage]:
    text = encodable(message.text)
    match message.role:
        case "tool" if message.call in ids:
            return
        case "tool":
            yield {"role": "user", "content": result(message, bare=bare and not message.untrusted)}
        case "assistant" if calls := native_calls(message):
            if not ids:
                yield as_text(text, calls)
                return
            asked = [wired_call(call, ids[call.id], replay) for call in calls]
            yield {"role": "assistant", "content": text, "tool_calls": asked}
            for call in calls:  # each has a result, in order
                answer = result(results[call.id]) if call.id in results else INTERRUPTED
                yield {"role": "tool", "tool_call_id": ids[call.id], "content": answer}
        case "user":
            stamped = clock.stamped(text, message.at) if clock else text
            yield {"role": "user", "content": with_files(stamped, message.attachments, files)}
        case role:
            yield {"role": role, "content": text}


def result(message: Message, *, bare: bool = False) -> str:
    """Return the result of a tool in delimiters, or `bare`."""
    return encodable(delimited(message, message.text, call=message.call or "", code=message.code, bare=bare))


def delimited(message: Message, text: str, *, call: str, code: str, bare: bool) -> str:
    name = message.name or "the call"
    if bare:
        return f"Result of {name}:\n{text}"
    return framed(text, call=call, name=name, untrusted=message.untrusted, code=code)


def added(message: Message, *, native: bool = False, bare: bool = False, clock: Clock | None = None) -> str:
    """Return the text that is added to a message (delimiters, time, reminder), for token counting.

    It is identical for all messages of a kind, so that it is counted once. A text result is counted as the last of its
    round, with a reminder, which overestimates the others. With native tools, results are counted as native.
    """
    match message.role:
        case "tool":
            text = delimited(message, "", call="", code=CODE, bare=bare and not message.untrusted)
            return text if native else f"{text}\n\n{ENOUGH}"
        case "user" if clock and message.at is not None:
            return clock.stamped("", message.at)
    return ""


def wired_call(call: AskedCall, id: str, replay: ReplayPolicy) -> dict[str, Any]:
    function = {"name": plain_name(call.name), "arguments": arguments_text(call)}
    return {"id": id, "type": "function", "function": function} | replay.call_fields(call)


def arguments_text(call: AskedCall) -> str:
    """Return the arguments as the model wrote them, as long as they are these, else as JSON.

    It has no escaped lone surrogates, which servers refuse.
    """
    if call.written and is_json_of(call.written, call.arguments):
        return call.written
    text = json.dumps(call.arguments)
    return json.dumps(encodable_value(call.arguments)) if "\\ud" in text else text


def plain_name(name: str) -> str:
    """Return a name that strict servers accept, whatever the model has called."""
    return ODD.sub("_", name)[:64] or "unknown"


def as_text(text: str, calls: Sequence[AskedCall]) -> WireMessage:
    """Return native calls as text, for a server that rejects tools."""
    written = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in calls]
    blocks = [f"<tool_call>\n{call}\n</tool_call>" for call in written]
    return {"role": "assistant", "content": "\n".join([text, *blocks] if text else blocks)}


def add(sent: list[WireMessage], message: WireMessage, *, bridged: bool = False) -> None:
    """Append a message as strict templates require: one system message, none empty, alternating roles."""
    if message["role"] == "system" and any(earlier["role"] != "system" for earlier in sent):
        message = message | {"role": "user"}
    if not message["content"] and message["role"] in ("assistant", "system") and "tool_calls" not in message:
        return
    if bridged and message["role"] == "user" and sent and sent[-1]["role"] == "tool":
        sent.append({"role": "assistant", "content": BRIDGE})
    last = sent[-1] if sent else None
    if last is None or last["role"] != message["role"] or message["role"] == "tool" or "tool_calls" in last:
        sent.append(message)
        return
    whole = joined(last["content"], message["content"])
    sent[-1] = last | (message if "tool_calls" in message else {}) | {"content": whole}


def native_calls(message: Message) -> list[AskedCall]:
    return [call for call in message.calls if call.dialect == NATIVE]


def wire_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return the tools in the format of chat completions."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def encoded_tools(tools: Sequence[Tool]) -> EncodedJSON:
    """Return the same as JSON; the tools of a ToolList are encoded once."""
    if not isinstance(tools, ToolList):
        return encoded(wire_tools(tools))
    known = _ENCODED.get(tools)
    if known is None:
        known = _ENCODED[tools] = encoded(wire_tools(tools))
    return known


_ENCODED: WeakKeyDictionary[ToolList, EncodedJSON] = WeakKeyDictionary()


class WiredOpening(Struct, frozen=True):
    """The messages of an opening in the wire format, and their JSON."""

    messages: Sequence[Message]  # a reference to them keeps their id unique
    wired: Sequence[WireMessage]
    json: EncodedJSON

    def with_rest(self, sent: Sequence[WireMessage]) -> EncodedJSON:
        """Return the JSON of `sent`, which begins with this opening; its last message may have been joined to."""
        begins = len(self.wired)
        if not begins or len(sent) == begins or sent[begins - 1] is not self.wired[-1]:
            return encoded(sent)
        whole = EncodedJSON(f"{self.json[:-1]},{encoded(sent[begins:])[1:]}")
        whole.opening = self.json
        return whole


class OpeningCache:
    """The openings of one model, encoded once: many requests share them, and they are most of a short one.

    Only tuples are kept, which cannot change; a new one is another opening.
    """

    def __init__(self, *, bare: bool) -> None:
        self._bare = bare
        self._known: dict[int, WiredOpening] = {}

    def wired(self, messages: Sequence[Message]) -> WiredOpening:
        """Return the opening. It has no native calls, attachments or times, so it is the same for all requests."""
        known = self._known.get(id(messages))
        if known is None:
            wired = wire_messages(messages, native=False, bare=self._bare)
            known = WiredOpening(messages, wired, encoded(wired))
            if isinstance(messages, tuple):
                self._known[id(messages)] = known
                if len(self._known) > SHARED:
                    del self._known[next(iter(self._known))]
        return known
