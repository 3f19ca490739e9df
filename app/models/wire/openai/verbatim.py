"""Encode a client's history for chat completions as the client sent it, as far as its server takes that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.core.messages import AskedCall, Message
from app.models.http.json_body import encodable, encodable_fields
from app.models.wire.attachment_parts import Encoded, with_files
from app.models.wire.call_ids import takes_for
from app.models.wire.client_history import settled, with_opening
from app.models.wire.openai.history import WireMessage, add, as_text, native_calls, result, wired_call
from app.models.wire.openai.reasoning_replay import ReplayPolicy
from parsing.arguments import Schema
from parsing.fences import fenced_call


def verbatim_messages(
    opening: Sequence[Message],
    history: Sequence[Message],
    *,
    native: bool,
    as_sent: bool = False,
    mistral: bool = False,
    replay: ReplayPolicy | None = None,
    files: Encoded | None = None,
    fenced: Mapping[str, Schema] | None = None,
) -> list[WireMessage]:
    """Encode the opening and the history without delimiters, times and reminders.

    `native` keeps native calls and their results as such, else they are text. With `as_sent` the messages stay separate
    and system messages where they are, as OpenAI takes them. Other servers get what the strictest template takes: one
    system message, later ones as the user's, and alternating roles; `mistral` is for models that refuse a user message
    directly behind a result, and ids of other lengths than theirs. Calls that become text are blocks of code if the
    model is taught these: `fenced` has the schemas of its tools.
    """
    replay = replay if replay and native else ReplayPolicy()
    messages = settled(with_opening(opening, history), takes_for(mistral=mistral, openai=as_sent), replay.origin)
    extras = replay.fields_for(messages)
    in_pairs = {call.id for message in messages if native for call in native_calls(message)}
    sent: list[WireMessage] = []
    for message, extra in zip(messages, extras, strict=True):
        wired = _wired(message, in_pairs, replay=replay, files=files or {}, fenced=fenced)
        if message.role == "assistant":
            wired |= encodable_fields(extra)
        if not as_sent:
            add(sent, wired, bridged=mistral)
        elif wired["content"] or message.role != "assistant" or "tool_calls" in wired:
            sent.append(wired)
    return sent


def _wired(
    message: Message,
    in_pairs: set[str],
    *,
    replay: ReplayPolicy,
    files: Encoded,
    fenced: Mapping[str, Schema] | None,
) -> WireMessage:
    text = encodable(message.text)
    match message.role:
        case "tool" if message.call in in_pairs:
            return {"role": "tool", "tool_call_id": message.call, "content": text}
        case "tool":
            return {"role": "user", "content": result(message, bare=True)}
        case "assistant" if calls := native_calls(message):
            if calls[0].id not in in_pairs:
                return as_text(text, calls) if fenced is None else in_fences(text, calls, fenced)
            wired = [wired_call(call, call.id, replay) for call in calls]
            wired[0] |= replay.signature(calls)
            return {"role": "assistant", "content": text, "tool_calls": wired}
        case "user":
            return {"role": "user", "content": with_files(text, message.attachments, files)}
        case role:
            return {"role": role, "content": text}


def in_fences(text: str, calls: Sequence[AskedCall], schemas: Mapping[str, Schema]) -> WireMessage:
    blocks = [encodable(fenced_call(call.name, call.arguments, schemas.get(call.name, {}))) for call in calls]
    return {"role": "assistant", "content": "\n".join(filter(None, [text, *blocks]))}
