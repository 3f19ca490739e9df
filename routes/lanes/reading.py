"""Readers of requests, as all lanes share them: typed fields with errors that name them, client tools, calls.

Clients send null for what they leave out, so null counts as missing. Texts are never refused for their characters: a
history has terminal output in it, and a conversation that was refused once could not go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from app.core.messages import AskedCall, Message
from app.models.wire.native_calls import NATIVE, as_written
from app.runs.run_options import LONGEST_NAME, MOST_CLIENT_TOOLS, ClientTool
from routes.protocol.errors import Refused

REPLACED = "\N{REPLACEMENT CHARACTER}"  # for halves of a character, and for NUL, which no database takes
# Parameters of chat completions that clients of other formats send under the same names.
MODEL_PARAMETERS = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "stop", "seed"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "response_format", "tool_choice"),
        *("parallel_tool_calls", "reasoning_effort", "chat_template_kwargs", "logit_bias"),
    }
)
JSON_KINDS = {
    str: "a string", bool: "true or false", int: "an integer", float: "a number", dict: "an object", list: "a list",
}  # fmt: skip


class Node(Struct, frozen=True):
    """A JSON object of a request, and the path to it: `messages.3`. Its methods raise Refused with `param`."""

    fields: Mapping[str, Any]
    path: str = ""

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def refused(self, name: str, problem: str) -> Refused:
        """The error that says of a field what is wrong, and what to send: `is missing; send ...`."""
        at = self.at(name)
        return Refused(400, "invalid_request", f"{at} {problem}.", param=at)

    def text(self, name: str) -> str | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, (str, bytes)):
            raise self._wrong(name, str)
        return plain_text(value)

    def required_text(self, name: str) -> str:
        if text := self.text(name):
            return text
        raise self.refused(name, "is missing; send a string")

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._typed(name, bool)
        return default if value is None else bool(value)

    def integer(self, name: str) -> int | None:
        value = self.fields.get(name)
        if isinstance(value, float) and value.is_integer():
            return int(value)  # JavaScript has one kind of number
        if isinstance(value, bool):
            raise self._wrong(name, int)
        integer: int | None = self._typed(name, int)
        return integer

    def child(self, name: str) -> Node | None:
        """The object of that name."""
        fields = self._typed(name, dict)
        return None if fields is None else Node(fields, self.at(name))

    def required_child(self, name: str) -> Node:
        if child := self.child(name):
            return child
        raise self.refused(name, "is missing; send an object")

    def children(self, name: str) -> list[Node]:
        """The objects of a list; empty if there is none."""
        items = self._typed(name, list)
        nodes = [Node(item, self.at(f"{name}.{at}")) for at, item in enumerate(items or ()) if isinstance(item, dict)]
        if len(nodes) < len(items or ()):
            at = next(at for at, item in enumerate(items) if not isinstance(item, dict))
            raise self.refused(f"{name}.{at}", "is no object; send one")
        return nodes

    def values(self, name: str) -> list[Any]:
        """The list of that name; empty if there is none."""
        return self._typed(name, list) or []

    def _typed(self, name: str, kind: type) -> Any:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, kind):
            raise self._wrong(name, kind)
        return value

    def _wrong(self, name: str, kind: type) -> Refused:
        found = next((words for one, words in JSON_KINDS.items() if isinstance(self.fields[name], one)), "a string")
        return self.refused(name, f"is {found}; send {JSON_KINDS[kind]}")


def plain_text(value: str | bytes) -> str:
    """Text that every model and store takes. Bytes are a long text that begins like a data URL."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACED) if "\0" in text else text


def client_tool(node: Node, schema: str = "parameters") -> ClientTool:
    """A client's tool from its name, description and schema, which stands in the field `schema`."""
    name = node.required_text("name")
    if len(name) > LONGEST_NAME:
        raise node.refused("name", f"has {len(name):,} characters; send at most {LONGEST_NAME}")
    parameters = node.child(schema)
    fields = {"type": "object", "properties": {}} | dict(parameters.fields if parameters else {})
    if fields["type"] not in ("object", None, ["object"], ["object", "null"]):
        raise node.refused(f"{schema}.type", "is not object; send a JSON Schema of an object")
    return ClientTool(name=name, description=node.text("description") or "", parameters=fields | {"type": "object"})


def check_tools(tools: Sequence[ClientTool], paths: Sequence[str]) -> list[ClientTool]:
    """The tools; the path of the same number is where each stands. Raises Refused for too many, or two of a name."""
    if len(tools) > MOST_CLIENT_TOOLS:
        raise Refused(
            400, "invalid_request", f"There are {len(tools):,} tools; send at most {MOST_CLIENT_TOOLS}.", param="tools"
        )
    first: dict[str, str] = {}
    for tool, path in zip(tools, paths, strict=True):
        if tool.name in first:
            message = f"{path} has the name of {first[tool.name]}, {tool.name!a}; give each tool a name of its own."
            raise Refused(400, "invalid_request", message, param=path)
        first[tool.name] = path
    return list(tools)


def model_parameters(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the fields that are parameters of chat completions."""
    return {name: value for name, value in fields.items() if name in MODEL_PARAMETERS and value is not None}


def call_arguments(written: Any) -> dict[str, Any]:
    """The arguments of an earlier call, as JSON text or as an object.

    Text that is no JSON object becomes `{"input": ...}`: servers read the arguments of each call in the history, and
    many fail at any that are not an object, while the model must still see what it wrote.
    """
    if isinstance(written, (str, bytes)):
        text = plain_text(written)
        try:
            written = json.loads(text) if text.strip() else {}
        except (ValueError, RecursionError):
            written = text
    if written is None:
        return {}
    return written if isinstance(written, dict) else {"input": written}


def asked_call(id: str, name: str, written: Any) -> AskedCall:
    """A call as the client sends it back, with its arguments as the model wrote them if that is their text."""
    arguments = call_arguments(written)
    text = as_written(plain_text(written), arguments) if isinstance(written, (str, bytes)) else None
    return AskedCall(id, name, arguments, NATIVE, written=text or "")


def with_names(messages: Iterable[Message]) -> list[Message]:
    """The messages, those of tools with the name of the tool whose call they answer, if the history has that."""
    names: dict[str, str] = {}
    found = []
    for message in messages:
        names |= {call.id: call.name for call in message.calls}
        known = message.role == "tool" and message.name is None and message.call in names
        found.append(replace(message, name=names[message.call or ""]) if known else message)
    return found
