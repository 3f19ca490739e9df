"""Requests of Chat Completions, its older form with `functions` included.

Ignored: `store` and `metadata` (nothing is kept under these), and types of tools that only OpenAI's servers have.
Refused, because the answer would not be what was asked for: `n` above 1, `logprobs`, and answers in sound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from app.core.attachments import File
from app.core.messages import AskedCall, Message
from app.runs.run_options import ClientTool
from routes.lanes.content import content_of
from routes.lanes.lane import LaneRequest
from routes.lanes.reading import Node, asked_call, check_tools, client_tool, plain_text, with_names

# Fields that are read here, or that concern nothing but the client's account.
READ = frozenset({
    "model", "messages", "tools", "functions", "function_call", "stream", "stream_options", "n", "logprobs",
    "top_logprobs", "modalities", "audio", "store", "metadata", "dragoman", "max_tokens", "max_completion_tokens",
})  # fmt: skip
NO_CALL = "answers a call, and the message does not say which; send the id of the call"

ReadMessage = Callable[[Node, int], tuple[Message, list[File]]]


def read_chat(body: Mapping[str, Any]) -> LaneRequest:
    """Raises Refused."""
    node = Node(body)
    _check_answer_form(node)
    messages, files = _messages(node)
    tools, legacy = _tools(node)
    options, ours = node.child("stream_options"), node.child("dragoman")
    return LaneRequest(
        model=node.text("model"),
        messages=messages,
        files=files,
        tools=tools,
        parameters=_parameters(node),
        stream=node.flag("stream"),
        echo={
            "usage": bool(options and options.flag("include_usage")),
            "events": bool(ours and ours.flag("events")),
            "legacy": legacy,
        },
    )


def _check_answer_form(node: Node) -> None:
    if node.integer("n") not in (None, 1):
        raise node.refused("n", "is not 1; this server gives one answer, send several requests for several")
    if node.flag("logprobs") or node.integer("top_logprobs"):
        name = "logprobs" if node.flag("logprobs") else "top_logprobs"
        raise node.refused(name, "is not supported: probabilities of tokens are not passed on; leave it out")
    if node.child("audio") or "audio" in node.values("modalities"):
        name = "audio" if node.child("audio") else "modalities"
        raise node.refused(name, "is not supported: this server answers in text; leave it out")


def _parameters(node: Node) -> dict[str, Any]:
    """The parameters of the model, known or not; null counts as left out."""
    parameters = {name: value for name, value in node.fields.items() if name not in READ and value is not None}
    limits = [limit for name in ("max_completion_tokens", "max_tokens") if (limit := node.integer(name)) is not None]
    if limits:
        parameters["max_tokens"] = limits[0]
    node.child("response_format")  # refused unless it is an object
    match node.fields.get("function_call"):
        case "auto" | "none" as choice:
            parameters["tool_choice"] = choice
        case {"name": str(name)}:
            parameters["tool_choice"] = {"type": "function", "function": {"name": name}}
        case None:
            pass
        case _:
            raise node.refused("function_call", 'is not known; send "auto", "none" or {"name": ...}')
    return parameters


def _tools(node: Node) -> tuple[list[ClientTool], bool]:
    """The client's tools; True if they came in the older form. Types of tools that only a server has are left out."""
    functions = [
        tool.required_child("function")
        for tool in node.children("tools")
        if tool.fields.get("type") in (None, "function")
    ]
    older = node.children("functions")
    nodes = [*functions, *older]
    return check_tools([client_tool(one) for one in nodes], [one.at("name") for one in nodes]), bool(older)


def _messages(node: Node) -> tuple[list[Message], list[File]]:
    messages, files = list[Message](), list[File]()
    for position, one in enumerate(node.children("messages")):
        role = one.required_text("role")
        if role not in READERS:
            raise one.refused("role", f"is {role[:40]!a}; send one of {', '.join(READERS)}")
        message, sent = READERS[role](one, position)
        messages.append(message)
        files += sent
    if not messages:
        raise node.refused("messages", "is empty; send at least one message")
    return with_names(messages), files


def _system(node: Node, _: int) -> tuple[Message, list[File]]:
    return Message("system", content_of(node, "content").text), []


def _user(node: Node, _: int) -> tuple[Message, list[File]]:
    content = content_of(node, "content")
    message = Message("user", content.text, attachments=content.attachments, untrusted=content.untrusted)
    return message, content.files


def _assistant(node: Node, position: int) -> tuple[Message, list[File]]:
    content = content_of(node, "content")
    calls = [_call(one, f"call_{position}_{at}") for at, one in enumerate(node.children("tool_calls"))]
    if older := node.child("function_call"):
        calls.append(_asked(older, _legacy_id(position)))
    texts = content.texts or [node.text("refusal") or ""]
    return Message("assistant", "\n".join(texts), calls=tuple(calls), reasoning=_reasoning(node)), []


def _reasoning(node: Node) -> str:
    """The thoughts, as servers and clients name them; forms that are no text are left out."""
    named = (node.fields.get(name) for name in ("reasoning_content", "reasoning"))
    return next((plain_text(text) for text in named if text and isinstance(text, str)), "")


def _call(node: Node, default_id: str) -> AskedCall:
    """A call of a function, or (`custom`) of a tool that takes text."""
    call_id = node.text("id") or default_id
    if custom := node.child("custom"):
        return AskedCall(call_id, custom.required_text("name"), {"input": custom.text("input") or ""}, "native")
    return _asked(node.required_child("function"), call_id)


def _asked(function: Node, call_id: str) -> AskedCall:
    return asked_call(call_id, function.required_text("name"), function.fields.get("arguments"))


def _legacy_id(position: int) -> str:
    return f"call_{position}_0"


def _result(node: Node, _: int) -> tuple[Message, list[File]]:
    content = content_of(node, "content")
    call = node.text("tool_call_id")
    if not call:
        raise node.refused("tool_call_id", NO_CALL)
    message = Message("tool", content.text, call=call, name=node.text("name"), attachments=content.attachments)
    return message, content.files


def _legacy_result(node: Node, position: int) -> tuple[Message, list[File]]:
    """The result of a function: in the older form the message before made its only call."""
    text = content_of(node, "content").text
    return Message("tool", text, call=_legacy_id(position - 1), name=node.required_text("name")), []


READERS: Mapping[str, ReadMessage] = {
    "system": _system,
    "developer": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _result,
    "function": _legacy_result,
}
