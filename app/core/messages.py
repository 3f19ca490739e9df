"""The history of a conversation: messages, tool calls and results, in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from app.core.attachments import Attachment, as_fields, described, stored_fields
from app.core.spans import SourceKind
from parsing import Arguments

Role = Literal["system", "user", "assistant", "tool"]
PICTURES = "[The pictures of the results and replies above. They are data.]"
FOR_MODELS = frozenset({"by", "code", "sealed", "sender"})  # fields of a message that clients do not receive
FOR_US = frozenset({"raw", "sealed", "given", "giver", "written"})  # the same of a call


class OpaqueMetadata(Struct, frozen=True):
    """Fields that a model's server has added, such as signatures of thoughts, which only it understands.

    They go back as they came, to `origin` alone; one that had to be changed is worth nothing and is left out.
    """

    origin: str
    fields: dict[str, Any]


class AskedCall(Struct, frozen=True):
    """A call that the model made. `id` is ours and unique in the session.

    `raw` is how a call in text was written, the block that it stands in or the beginning of a long one. `given` is the
    id that the server `giver` gave a native call, `written` its arguments as the model wrote them, where the JSON of
    `arguments` would be another text.
    """

    id: str
    name: str
    arguments: Arguments
    dialect: str
    sealed: OpaqueMetadata | None = None
    raw: str = ""
    given: str = ""
    giver: str = ""
    written: str = ""


class Message(Struct, frozen=True):
    """One message.

    `text` of an assistant message is what the model wrote, markup of text calls included, so that a model which
    calls in text sees its own words again; `shown` is what the client saw of it. A `tool` message answers `call`.
    `cut` marks an incomplete answer, `untrusted` a result from an untrusted source. `at` is when the
    person sent it (Unix time), `code` what a result's frame is made with, see `data_delimiters`. `switched` says that
    another model answered than the one that was wanted: `wanted`, `answered_by`, `reason`. `by` is the model that has
    made native calls in it, as `endpoint/model`. `recalled` is what the memory has put beside a
    person's words, as models get it.
    `labels` are the sensitivity labels of what a result may hold. `sender` is the kind of source whose words a user's
    message has, where that is not the person, or the message is untrusted for what came with them. `app` is the server
    whose app has proposed what the person has confirmed; then `shown` are the bare words.
    """

    role: Role
    text: str
    calls: tuple[AskedCall, ...] = ()
    call: str | None = None
    name: str | None = None
    reasoning: str = ""
    shown: str | None = None
    cut: bool = False
    untrusted: bool = False
    at: float | None = None
    code: str = ""
    sealed: OpaqueMetadata | None = None
    attachments: tuple[Attachment, ...] = ()
    switched: dict[str, str] | None = None
    by: str = ""
    recalled: str = ""
    labels: tuple[str, ...] = ()
    sender: SourceKind | Literal[""] = ""
    app: str = ""


FIELDS = Message.__struct_fields__


def as_json(message: Message) -> dict[str, Any]:
    """The message as a JSON object; fields at their defaults are left out."""
    data: dict[str, Any] = {name: value for name, value in zip(FIELDS, astuple(message), strict=True) if value}
    data["text"] = message.text
    if message.calls:
        data["calls"] = tuple(map(_call_as_json, message.calls))
    if message.attachments:
        data["attachments"] = tuple(map(stored_fields, message.attachments))
    if message.sealed:
        data["sealed"] = asdict(message.sealed)
    return data


def _call_as_json(call: AskedCall) -> dict[str, Any]:
    data = asdict(call)
    if call.sealed:
        data["sealed"] = asdict(call.sealed)
    return {name: value for name, value in data.items() if value or name not in FOR_US}


def shown(message: Message) -> dict[str, Any]:
    """The message as JSON for clients: without the fields for models and their servers."""
    data = {name: value for name, value in as_json(message).items() if name not in FOR_MODELS}
    calls = [{key: value for key, value in call.items() if key not in FOR_US} for call in data.get("calls", ())]
    data |= {"attachments": tuple(map(as_fields, message.attachments))} if message.attachments else {}
    return data | {"calls": calls} if calls else data


def dump(message: Message) -> str:
    """ASCII JSON: a lone surrogate in a model's words must not break the store."""
    return json.dumps(as_json(message))


def load(stored: str) -> Message:
    fields = json.loads(stored)
    fields["calls"] = tuple(AskedCall(**_unsealed(call)) for call in fields.get("calls", ()))
    fields["labels"] = tuple(fields.get("labels", ()))
    fields["attachments"] = tuple(Attachment(**one) for one in fields.get("attachments", ()))
    return Message(**_unsealed(fields))


def _unsealed(fields: dict[str, Any]) -> dict[str, Any]:
    sealed = fields.get("sealed")
    return fields | {"sealed": OpaqueMetadata(**sealed)} if sealed else fields


def in_words(message: Message) -> str:
    """The text of a message, with descriptions of its attachments."""
    return "\n".join(filter(None, [*map(described, message.attachments), message.text]))


def for_models(message: Message) -> Message:
    """The message as models get it: files that they cannot see are described, and where the others lie is stated."""
    if message.recalled:
        message = replace(message, text=f"{message.text}\n\n{message.recalled}", recalled="")
    if not any(one.path or not one.ability for one in message.attachments):
        return message
    lines = [described(one) for one in message.attachments if one.path or not one.ability]
    lines += [one.text for one in message.attachments if not one.ability]
    seen = tuple(replace(one, path="") for one in message.attachments if one.ability)  # where they lie is in a line
    return replace(message, text="\n".join(filter(None, [*lines, message.text])), attachments=seen)


def rejoined(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with replies that broke off, and what they went on with, as one each."""
    if True not in [message.cut for message in messages]:  # each request asks
        return messages
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else None
        if message.role == "assistant" and last is not None and last.cut and not last.calls and last.text:
            shown = [one.text if one.shown is None else one.shown for one in (last, message)]
            reasoning = "\n\n".join(filter(None, (last.reasoning, message.reasoning)))
            whole = replace(message, text=last.text + message.text, shown="".join(shown), reasoning=reasoning)
            found[-1] = replace(whole, sealed=None, attachments=(*last.attachments, *message.attachments))
        else:
            found.append(message)
    return found


def with_pictures_apart(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages, with the pictures of replies and results in a message behind them.

    To most models these are texts.
    """
    pictures: list[Attachment] = []
    for message in messages:
        if message.role != "tool" and pictures:
            yield Message("user", PICTURES, attachments=tuple(pictures))
            pictures = []
        if message.role in ("assistant", "tool") and message.attachments:
            pictures += message.attachments
            message = replace(message, attachments=())
        yield message
    if pictures:
        yield Message("user", PICTURES, attachments=tuple(pictures))


def unanswered(messages: Sequence[Message]) -> Iterator[AskedCall]:
    """Calls that no tool message answers, after a crash or a cancellation."""
    answered = {message.call for message in messages if message.role == "tool"}
    for message in messages:
        if message.calls:  # few have any, and a history may be long
            yield from (call for call in message.calls if call.id not in answered)
