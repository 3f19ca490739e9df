"""Reader of AG-UI's RunAgentInput: https://docs.ag-ui.com/spec/1.0.

`state` is not read: nothing here changes it. Activities are what the client shows, and not sent to a model. Whatever
`forwardedProps` holds is the client's own, but for `model` and parameters of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from app.core.attachments import File, described
from app.core.messages import AskedCall, Message
from app.storage.files.kinds import file_of
from app.workspace.received import received_file
from routes.lanes.ag_ui.stream import FORM
from routes.lanes.content import BETWEEN, PartReader, content_of, text_or_file, text_part
from routes.lanes.lane import LaneRequest, Verdict
from routes.lanes.reading import (
    Node,
    asked_call,
    check_tools,
    client_tool,
    model_parameters,
    with_names,
)

DECISION = 'send {"approved": true} or {"approved": false}'


def read_request(body: Mapping[str, Any]) -> LaneRequest:
    """Raises Refused."""
    node = Node(body)
    history, sent = History(), node.children("messages")
    for message in sent:
        history.add(message)
    asked = next((at for at in range(len(sent), 0, -1) if _is_asked(sent[at - 1])), 0)
    run, last = node.text("runId"), sent[asked - 1].text("id") if asked else ""
    verdicts = [verdict_of(entry) for entry in node.children("resume")]
    if not history.messages and not verdicts:
        raise node.refused("messages", 'is empty; send at least {"id": "1", "role": "user", "content": "..."}')
    tools = node.children("tools")
    props = node.fields.get("forwardedProps")
    forwarded = Node(props if isinstance(props, dict) else {}, "forwardedProps")
    return LaneRequest(
        model=forwarded.text("model"),
        messages=with_names(_with_context(history.messages, node)),
        files=history.files,
        tools=check_tools([client_tool(tool) for tool in tools], [tool.path for tool in tools]),
        parameters=model_parameters(forwarded.fields),
        stream=True,
        thread=node.text("threadId"),
        run=f"{run}\n{last}" if run and last is not None else "",
        received=_received(sent[asked:]),
        verdicts=verdicts,
        asks=True,
        untrusted=any(entry.text("value") for entry in node.children("context")),
        echo={name: text for name in ("threadId", "runId") if (text := node.text(name))},
    )


def _is_asked(message: Node) -> bool:
    """Return True for a message, or a result of a call, that a run has not sent."""
    role, name = message.text("role"), message.text("id") or ""
    of_run = name.startswith("run_") if role == "user" else name == f"{message.text('toolCallId')}-result"
    return role in ("user", "tool") and not of_run


def _received(sent: Sequence[Node]) -> dict[str, str]:
    """The texts of messages and results, and the arguments of calls, that a client has of the answer under way."""
    found = {message.text("id") or "": message.fields.get("content") for message in sent}
    calls = [call for message in sent for call in message.children("toolCalls")]
    found |= {call.required_text("id"): call.required_child("function").text("arguments") for call in calls}
    return {name: text for name, text in found.items() if text and isinstance(text, str)}


def _with_context(messages: Sequence[Message], node: Node) -> list[Message]:
    """The messages, with what the client says of its surroundings behind its own instructions."""
    entries = [(entry.text("description") or "", entry.text("value") or "") for entry in node.children("context")]
    text = "\n".join(f"{description}: {value}" if description else value for description, value in entries)
    at = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    return [*messages[:at], *([Message("system", text)] if text else ()), *messages[at:]]


def verdict_of(entry: Node) -> Verdict:
    """The decision of an entry of `resume`. The answer of a form is its fields, whatever they are called."""
    interrupt = entry.required_text("interruptId")
    is_form, call = interrupt.startswith(FORM), interrupt.removeprefix(FORM)
    match entry.required_text("status"):
        case "cancelled":
            return Verdict(call, approved=False)
        case "resolved":
            pass
        case status:
            raise entry.refused("status", f"is {status[:40]!a}; send resolved or cancelled")
    payload = entry.fields.get("payload")
    if is_form:
        return Verdict(call, approved=True, arguments=dict(entry.required_child("payload").fields))
    if isinstance(payload, bool):
        return Verdict(call, approved=payload)
    if payload is None:
        raise entry.refused("payload", f"is missing; {DECISION}")
    given = entry.required_child("payload")
    if given.fields.get("approved") is None:
        raise given.refused("approved", f"is missing; {DECISION}")
    edited = given.child("editedArgs") or given.child("arguments")
    arguments = dict(edited.fields) if edited else None
    return Verdict(call, approved=given.flag("approved"), arguments=arguments, note=given.text("reason"))


class History(Struct):
    """The messages so far. A thought belongs to the answer that follows it."""

    messages: list[Message] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)

    def add(self, message: Node) -> None:
        role = message.required_text("role")
        if role not in READERS:
            raise message.refused("role", f"is {role[:40]!a}; send {', '.join(READERS)}")
        for read in READERS[role](self, message):
            self._append(read)

    def user(self, message: Node) -> Iterator[Message]:
        content = content_of(message, "content", PARTS)
        self.files += content.files
        yield Message("user", content.text, attachments=content.attachments, untrusted=content.untrusted)

    def system(self, message: Node) -> Iterator[Message]:
        yield Message("system", content_of(message, "content", PARTS).text)

    def assistant(self, message: Node) -> Iterator[Message]:
        calls = tuple(_call(call) for call in message.children("toolCalls"))
        thoughts, self.thoughts = BETWEEN.join(self.thoughts), []
        yield Message("assistant", content_of(message, "content", PARTS).text, calls, reasoning=thoughts)

    def tool(self, message: Node) -> Iterator[Message]:
        content = content_of(message, "content", PARTS)
        texts = [*content.texts, *map(described, content.attachments)]  # results are texts to most models
        yield Message("tool", "\n".join(texts) or message.text("error") or "", call=message.required_text("toolCallId"))

    def reasoning(self, message: Node) -> Iterator[Message]:
        self.thoughts.append(message.text("content") or "")
        yield from ()

    def activity(self, _: Node) -> Iterator[Message]:
        yield from ()

    def _append(self, message: Message) -> None:
        """An answer that a thought has parted in two is one again: some models' servers take no two in a row."""
        last = self.messages[-1] if self.messages else None
        if last and last.role == message.role == "assistant" and not last.calls:
            self.messages[-1] = replace(
                message,
                text=_joined(last.text, message.text),
                reasoning=_joined(last.reasoning, message.reasoning),
            )
        else:
            self.messages.append(message)


def _joined(*texts: str) -> str:
    return BETWEEN.join(filter(None, texts))


def _call(call: Node) -> AskedCall:
    function = call.required_child("function")
    return asked_call(call.required_text("id"), function.required_text("name"), function.fields.get("arguments"))


def _media_part(part: Node) -> str | File:
    """`image`, `document`, `audio` or `video`, whose bytes are in `source`."""
    source = part.required_child("source")
    if source.fields.get("type") == "file":
        raise source.refused("type", "is file, and this server keeps no files; send data, with base64 as value")
    read = received_file if part.fields.get("type") == "document" else file_of
    return text_or_file(source, "value", media_type=source.text("mimeType") or "", read=read)


def _binary_part(part: Node) -> str | File:
    """The form of clients before 1.0: `data` is base64, `url` may be a data URL."""
    name = "data" if part.fields.get("data") is not None else "url"
    return text_or_file(part, name, part.text("filename") or "", part.text("mimeType") or "")


PARTS: Mapping[str, PartReader] = {
    "text": text_part,
    "image": _media_part,
    "document": _media_part,
    "audio": _media_part,
    "video": _media_part,
    "binary": _binary_part,
}
READERS: Mapping[str, Callable[[History, Node], Iterator[Message]]] = {
    "user": History.user,
    "assistant": History.assistant,
    "tool": History.tool,
    "system": History.system,
    "developer": History.system,
    "reasoning": History.reasoning,
    "activity": History.activity,
}
