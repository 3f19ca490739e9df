"""Reader of requests of Anthropic's Messages: https://platform.claude.com/docs/en/api/messages.

Blocks that the API's own servers have made (searches, code, thoughts of other models) are left out: they mean nothing
to another model. Tools without a schema are the API's own, and are left out as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from app.core.attachments import File
from app.core.messages import AskedCall, Message
from app.models.wire.anthropic.reasoning import sealed
from app.runs.run_options import ClientTool
from routes.lanes.anthropic_messages.blocks import DRAGOMAN, is_our_signature
from routes.lanes.content import BETWEEN, Content, Draft, PartReader, add_part, content_of, source_part, text_part
from routes.lanes.lane import LaneRequest
from routes.lanes.reading import Node, call_arguments, check_tools, client_tool, plain_text, with_names
from tools.base.patterns import lazy_pattern

# Claude Code begins its system prompt with a line for Anthropic's accounting. It differs in each request, so no server
# could use its cache of the prompt: https://github.com/anthropics/claude-code/issues/68900
ACCOUNTING = lazy_pattern(r"\Ax-anthropic-billing-header:[^\n]*\n*")
SHOWS_OWN_TOOLS = "mcp-client-"  # how the name of a beta begins whose clients read the calls of MCP servers
# Parameters of chat completions that local servers know and clients add.
PASSED = (
    *("seed", "min_p", "typical_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
    *("reasoning_effort", "chat_template_kwargs", "parallel_tool_calls", "response_format"),
)
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
CLIENT = "client"  # the origin of the places of texts and calls, which any server with this API takes
ROLES = "user, assistant or system"


def read_request(body: Mapping[str, Any]) -> LaneRequest:
    """Raises Refused."""
    node = Node(body)
    messages, files = [*_system(node)], list[File]()
    turns = node.children("messages")
    if not turns:
        raise node.refused("messages", 'is missing or empty; send at least {"role": "user", "content": "..."}')
    for turn in turns:
        messages += _messages_of(turn, files)
    tools = read_tools(node)
    return LaneRequest(
        model=node.text("model"),
        messages=with_names(messages),
        files=files,
        tools=tools,
        parameters=_parameters(node, with_tools=bool(tools)),
        stream=node.flag("stream"),
        echo={DRAGOMAN: True} if _shows_own_tools(node) else {},
    )


def _system(node: Node) -> Iterator[Message]:
    texts = [ACCOUNTING.sub("", text) for text in content_of(node, "system", SYSTEM).texts]
    if text := BETWEEN.join(filter(None, texts)):
        yield Message("system", text)


def _messages_of(turn: Node, files: list[File]) -> Iterator[Message]:
    """The messages of a turn: one, and before it one for each result of a call."""
    role = turn.required_text("role")
    match role:
        case "user":
            yield from _of_user(turn, files)
        case "assistant":
            yield from _of_assistant(turn)
        case "system":  # Claude Code has them in the middle of a conversation
            if text := BETWEEN.join(content_of(turn, "content", SYSTEM).texts):
                yield Message("system", text)
        case _:
            raise turn.refused("role", f"is {role[:40]!a}; send {ROLES}")


def _of_user(turn: Node, files: list[File]) -> Iterator[Message]:
    """Results first: each has to follow its call. Pictures in them follow with the text, where models see them."""
    seen, results = Content(), list[Message]()
    for block in _blocks(turn):
        if block.fields.get("type") == "tool_result":
            results.append(_result(block, seen))
        elif not _is_foreign(block.fields.get("type")):
            add_part(seen, block, USER)
    files += seen.files
    yield from results
    if seen.texts or seen.files or not results:
        yield Message("user", seen.text, attachments=seen.attachments, untrusted=seen.untrusted)


def _result(block: Node, seen: Content) -> Message:
    content = content_of(block, "content", RESULT)
    seen.files += content.files
    text = content.text
    if content.files:
        shown = "The picture of this result follows." if len(content.files) == 1 else "Its pictures follow."
        text = f"{text}\n[{shown}]".lstrip()
    if block.flag("is_error") and not text.lower().startswith(("error", "<tool_use_error>")):
        text = f"Error: {text}"  # in text: most servers have no field for it
    return Message("tool", text, call=block.required_text("tool_use_id"))


def _of_assistant(turn: Node) -> Iterator[Message]:
    draft, places = Draft(), list[dict[str, Any]]()
    for block in _blocks(turn):
        match block.required_text("type"):
            case "text":
                places += [{"type": "gap", "characters": len(BETWEEN)}] if draft.texts else []
                draft.texts.append(text := block.text("text") or "")
                places.append({"type": "text", "characters": len(text)})
            case "thinking" if is_our_signature(block.text("signature") or ""):
                draft.thoughts.append(block.text("thinking") or "")
            case "tool_use":
                draft.calls.append(call := _call(block))
                places.append({"type": "tool_use", "id": call.id})
            case kind if not _is_foreign(kind):
                raise block.refused("type", f"is {kind[:40]!a}, which no assistant writes; send text or tool_use")
    if message := draft.message():
        yield replace(message, sealed=sealed(CLIENT, "", places))


def _call(block: Node) -> AskedCall:
    arguments = call_arguments(block.fields.get("input"))
    return AskedCall(block.required_text("id"), block.required_text("name"), arguments, "native")


def _blocks(turn: Node) -> list[Node]:
    content = turn.fields.get("content")
    if isinstance(content, (str, bytes)):
        return [Node({"type": "text", "text": plain_text(content)}, turn.at("content"))]
    return turn.children("content")


def _is_foreign(kind: Any) -> bool:
    """Return whether blocks of this type are made by the API's own servers, or refer to what they keep."""
    return kind in FOREIGN or (isinstance(kind, str) and kind.endswith(("_tool_use", "_tool_result")))


FOREIGN = ("thinking", "redacted_thinking", "container_upload", "compaction")


def _tool_reference(block: Node) -> str:
    """A tool that a search of the client has found; all of its tools are offered anyway."""
    return f"The tool {block.text('tool_name') or ''} is available."


def _search_result(block: Node) -> Content:
    heading = " ".join(filter(None, (block.text("title"), block.text("source"))))
    return Content([heading, *content_of(block, "content", SYSTEM).texts])


SYSTEM: Mapping[str, PartReader] = {"text": text_part}
USER: Mapping[str, PartReader] = {
    "text": text_part,
    "image": source_part,
    "document": source_part,
    "search_result": _search_result,
}
RESULT: Mapping[str, PartReader] = {**USER, "tool_reference": _tool_reference}


def read_tools(node: Node) -> list[ClientTool]:
    """The client's own tools. Those of the API are known by a type, and have no schema."""
    own = [tool for tool in node.children("tools") if tool.fields.get("type") in (None, "custom")]
    for tool in own:
        tool.required_child("input_schema")
    return check_tools([client_tool(tool, "input_schema") for tool in own], [tool.path for tool in own])


def _parameters(node: Node, *, with_tools: bool) -> dict[str, Any]:
    found = {name: value for name, value in node.fields.items() if name in PASSED}
    found["max_tokens"] = node.integer("max_tokens")
    if found["max_tokens"] is not None and found["max_tokens"] < 1:
        raise node.refused("max_tokens", "is less than 1; send the most tokens that the answer may have")
    found |= {name: _number(node, name) for name in ("temperature", "top_p")}
    found["top_k"] = node.integer("top_k")
    found["stop"] = _texts(node, "stop_sequences") or None
    if thinking := node.child("thinking"):
        found["thinking"] = dict(thinking.fields)
    config = node.child("output_config") or Node({})
    if effort := config.text("effort"):
        found["reasoning_effort"] = effort
    if schema := _answer_schema(config.child("format") or node.child("output_format")):
        found["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    if with_tools and (choice := node.child("tool_choice")):
        found["tool_choice"] = _choice(choice)
        if choice.flag("disable_parallel_tool_use"):
            found["parallel_tool_calls"] = False
    return {name: value for name, value in found.items() if value is not None}


def _number(node: Node, name: str) -> float | None:
    value = node.fields.get(name)
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise node.refused(name, "is no number; send one")


def _choice(choice: Node) -> str | dict[str, Any]:
    kind = choice.required_text("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.required_text("name")}}
    if kind not in CHOICES:
        raise choice.refused("type", f"is {kind[:40]!a}; send {', '.join(CHOICES)} or tool")
    return CHOICES[kind]


def _texts(node: Node, name: str) -> list[str]:
    items = node.fields.get(name) or []
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise node.refused(name, "is no list of strings; send one")
    return [plain_text(item) for item in items]


def _answer_schema(wanted: Node | None) -> Mapping[str, Any] | None:
    """The JSON Schema of the answer: `output_config.format`, or `output_format` of older clients."""
    if wanted is None or wanted.text("type") != "json_schema":
        return None
    return wanted.required_child("schema").fields


def _shows_own_tools(node: Node) -> bool:
    """Return whether the client reads the calls of servers' tools: then it sees those that dragoman runs itself."""
    betas = node.fields.get("betas")
    named = any(server.text("name") == DRAGOMAN for server in node.children("mcp_servers"))
    return named or any(str(beta).startswith(SHOWS_OWN_TOOLS) for beta in (betas if isinstance(betas, list) else ()))
