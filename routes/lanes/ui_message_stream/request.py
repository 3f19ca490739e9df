"""Reader of the body that the AI SDK's `useChat` sends: its UI messages, and what the page adds.

An answer may hold several rounds, parted by `step-start`; each becomes an answer with its calls, and their results.
Calls without a result are left out, as no server takes them. Data, sources and files of answers are the page's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import field

from app.core.attachments import File
from app.core.messages import AskedCall, Message
from app.runs.run_options import ClientTool
from routes.lanes.content import Content, Draft, text_or_file
from routes.lanes.lane import LaneRequest, Verdict
from routes.lanes.reading import (
    Node,
    call_arguments,
    check_tools,
    client_tool,
    model_parameters,
    plain_text,
    with_names,
)

TOOL, DYNAMIC = "tool-", "dynamic-tool"
TEXTS = ("text", "reasoning")
SCHEMAS = ("inputSchema", "input_schema", "parameters")
# Call settings of the SDK under other names than in chat completions.
SETTINGS = {
    "maxOutputTokens": "max_tokens",
    "maxTokens": "max_tokens",
    "topP": "top_p",
    "topK": "top_k",
    "stopSequences": "stop",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
DENIED = "The user denied this call."


def read_request(body: Mapping[str, Any]) -> LaneRequest:
    """Raises Refused."""
    node = Node(body)
    sent = node.children("messages")
    if not sent:
        example = '{"id": "1", "role": "user", "parts": [{"type": "text", "text": "..."}]}'
        raise node.refused("messages", f"is missing or empty; send at least {example}")
    messages, files = list[Message](), list[File]()
    if system := node.text("system"):
        messages.append(Message("system", system))
    for message in sent:
        messages += _messages_of(message, files)
    answer = _continued(node, sent)
    return LaneRequest(
        model=node.text("model"),
        messages=with_names(messages),
        files=files,
        tools=_tools(node),
        parameters=_parameters(node),
        stream=True,
        thread=node.text("id"),
        branches=_branches(node, sent),
        verdicts=list(_verdicts(answer)) if answer else [],
        asks=True,
        echo={"message": known} if answer and (known := answer.text("id")) else {},
    )


def _continued(node: Node, sent: Sequence[Node]) -> Node | None:
    """The answer that goes on in this one, and keeps its id: that with decisions or results that are new."""
    named = next((message for message in sent if message.fields.get("id") == node.fields.get("messageId")), None)
    for message in (named, sent[-1]):
        if message and message.fields["role"] == "assistant":
            return message
    return None


def _branches(node: Node, sent: Sequence[Node]) -> bool:
    """True if the last answer is wanted again, or a message was changed, which is named then."""
    named = node.fields.get("messageId")
    changed = any(message.fields["role"] == "user" and message.fields.get("id") == named for message in sent if named)
    return changed or node.fields.get("trigger") == "regenerate-message"


def _messages_of(message: Node, files: list[File]) -> Iterator[Message]:
    match message.required_text("role"):
        case "assistant":
            yield from _of_assistant(message, files)
        case "user":
            yield _of_person("user", message, files)
        case "system":
            yield _of_person("system", message, files)
        case role:
            raise message.refused("role", f"is {role[:40]!a}; send user, assistant or system")


def _of_person(role: Any, message: Node, files: list[File]) -> Message:
    content = Content()
    for part in message.children("parts"):
        match part.required_text("type"):
            case "text":
                content.texts.append(part.text("text") or "")
            case "file":
                _add_file(content, part)
    if not content.texts and not content.files and (text := message.text("content")):
        content.texts.append(text)  # messages of version 4
    files += content.files
    return Message(role, content.text, attachments=content.attachments, untrusted=content.untrusted)


def _add_file(content: Content, part: Node) -> None:
    found = text_or_file(part, "url", part.text("filename") or "", part.text("mediaType") or "")
    if isinstance(found, str):
        content.texts.append(found)
        content.untrusted = True
    else:
        content.files.append(found)


class Round(Draft):
    """One answer of the model, with the results of its calls."""

    results: list[Message] = field(default_factory=list)

    def messages(self) -> Iterator[Message]:
        if message := self.message():
            yield message
        yield from self.results


def _of_assistant(message: Node, files: list[File]) -> Iterator[Message]:
    current = Round()
    for part in message.children("parts"):
        kind = part.required_text("type")
        if kind in ("step-start", "steering-message") or (kind in TEXTS and current.calls):
            yield from current.messages()
            current = Round()
        if kind == "steering-message":
            yield _of_person("user", part, files)
        elif kind in TEXTS:
            if text := part.text("text"):
                (current.texts if kind == "text" else current.thoughts).append(text)
        elif kind == DYNAMIC or kind.startswith(TOOL):
            _add_call(current, part, kind)
    yield from current.messages()


def _add_call(current: Round, part: Node, kind: str) -> None:
    name = part.required_text("toolName") if kind == DYNAMIC else kind.removeprefix(TOOL)
    call = part.required_text("toolCallId")
    state = part.required_text("state")
    if state in RESULTS and not part.flag("preliminary"):
        current.calls.append(AskedCall(call, name, call_arguments(part.fields.get("input")), "native"))
        current.results.append(Message("tool", RESULTS[state](part), call=call))


def _output(part: Node) -> str:
    output = part.fields.get("output")
    return plain_text(output) if isinstance(output, (str, bytes)) else plain_text(json.dumps(output, default=repr))


def _error(part: Node) -> str:
    return part.text("errorText") or "The call failed."


def _denial(part: Node) -> str:
    approval = part.child("approval")
    reason = approval.text("reason") if approval else None
    return f"{DENIED} {reason}" if reason else DENIED


RESULTS: Mapping[str, Callable[[Node], str]] = {
    "output-available": _output,
    "output-error": _error,
    "output-denied": _denial,
}


def _verdicts(message: Node) -> Iterator[Verdict]:
    """Decisions that have no effect yet: a call that has one is in another state."""
    for part in message.children("parts"):
        if part.fields.get("state") == "approval-responded":
            approval = part.required_child("approval")
            reason = approval.text("reason")
            arguments = _arguments_in(reason or "")
            note = None if arguments is not None else reason
            yield Verdict(approval.required_text("id"), approval.flag("approved"), arguments, note)


def _arguments_in(reason: str) -> dict[str, Any] | None:
    """The SDK has no field for changed arguments and answers of forms: a page sends them as JSON in `reason`."""
    if not reason.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(reason)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _tools(node: Node) -> list[ClientTool]:
    """Tools as a list, or as an object by their names."""
    sent = node.fields.get("tools")
    if isinstance(sent, dict):
        by_name = Node(sent, "tools")
        tools = [(name, tool) for name in sent if (tool := by_name.child(name))]
        nodes = [Node({"name": name} | dict(tool.fields), tool.path) for name, tool in tools]
    else:
        nodes = [tool.child("function") or tool for tool in node.children("tools")]
    schemas = [next((name for name in SCHEMAS if tool.fields.get(name) is not None), SCHEMAS[0]) for tool in nodes]
    found = [client_tool(tool, schema) for tool, schema in zip(nodes, schemas, strict=True)]
    return check_tools(found, [tool.path for tool in nodes])


def _parameters(node: Node) -> dict[str, Any]:
    settings = node.child("callSettings")
    fields = dict(node.fields) | dict(settings.fields if settings else {})
    return model_parameters({SETTINGS.get(name, name): value for name, value in fields.items()})
