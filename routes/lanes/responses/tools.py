"""The client's tools: functions, `custom` ones that take text, and namespaces of both. Other types are left out.

A model sees one flat list. A tool of a namespace has both names in one, of at most 64 characters, and comes back with
each; a custom tool is a function of one string and comes back as `custom_tool_call`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from app.runs.run_options import ClientTool
from routes.lanes.reading import Node, check_tools, client_tool
from routes.lanes.responses.input_items import items_of
from routes.lanes.responses.items import CUSTOM_INPUT, SERVER_LABEL
from tools.base.patterns import lazy_pattern

LONGEST = 64  # characters of a flat name: model servers take no longer ones
SHORT_HASH = 8
_ODD = lazy_pattern(r"[^a-zA-Z0-9_-]")
INPUT = "The input of the tool, as plain text."
CALLABLE = ("function", "custom")


def flat_name(namespace: str | None, name: str) -> str:
    """One name for both. A long one ends in a hash, so that two stay apart."""
    if not namespace:
        return name
    joint = "" if namespace.endswith("_") or name.startswith("_") else "__"
    flat = _ODD.sub("_", f"{namespace}{joint}{name}")
    if len(flat) <= LONGEST:
        return flat
    digest = hashlib.sha256(f"{namespace}\n{name}".encode()).hexdigest()[:SHORT_HASH]
    return f"{flat[: LONGEST - SHORT_HASH - 1]}_{digest}"


class DeclaredTools(Struct):
    """`asks`: the client has declared our server, and shows requests for approval."""

    tools: list[ClientTool] = field(default_factory=list)
    custom: list[str] = field(default_factory=list)
    namespaces: dict[str, tuple[str, str]] = field(default_factory=dict)
    asks: bool = False
    _places: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, body: Node) -> DeclaredTools:
        """Raises Refused."""
        declared = cls()
        for node in (one for place in (body, *items_of(body, "additional_tools")) for one in place.children("tools")):
            declared._add(node)
        check_tools(declared.tools, declared._places)
        return declared

    def names(self) -> dict[str, Any]:
        """As JSON that `items.ToolNames` is made from again."""
        return {"all": [one.name for one in self.tools], "custom": self.custom, "namespaces": self.namespaces}

    def _add(self, node: Node) -> None:
        match node.fields.get("type"):
            case "function" | None:
                self._add_tool(client_tool(node), node)
            case "custom":
                self._add_tool(custom_tool(node), node, custom=True)
            case "namespace":
                self._add_namespace(node)
            case "mcp":
                label, when = node.text("server_label"), node.fields.get("require_approval")
                self.asks = self.asks or (label == SERVER_LABEL and when != "never")

    def _add_tool(self, tool: ClientTool, node: Node, *, custom: bool = False) -> None:
        self.tools.append(tool)
        self.custom += [tool.name] if custom else []
        self._places.append(node.at("name"))

    def _add_namespace(self, node: Node) -> None:
        namespace = node.required_text("name")
        for inner in node.children("tools"):
            kind = inner.fields.get("type", "function")
            if kind not in CALLABLE:
                continue
            tool = custom_tool(inner) if kind == "custom" else client_tool(inner)
            flat = flat_name(namespace, tool.name)
            self.namespaces[flat] = (namespace, tool.name)
            self._add_tool(tool.model_copy(update={"name": flat}), inner, custom=kind == "custom")


def custom_tool(node: Node) -> ClientTool:
    """A tool that takes text, as a function of one string. Its grammar, if it has one, is part of the description."""
    form = node.child("format")
    grammar = form.text("definition") if form else None
    syntax = (form.text("syntax") if form else None) or "lark"
    described = f"{INPUT} It must match this {syntax} grammar:\n{grammar}" if grammar else INPUT
    schema = {
        "type": "object",
        "properties": {CUSTOM_INPUT: {"type": "string", "description": described}},
        "required": [CUSTOM_INPUT],
    }
    return client_tool(Node({**node.fields, "parameters": schema}, node.path))


def chosen(choice: Any) -> Any:
    """The `tool_choice` in the words of chat completions, or None if it names tools that only other servers have."""
    match choice:
        case str() | None:
            return choice
        case {"type": "function" | "custom", "name": str(name), **rest}:
            namespace = rest.get("namespace")
            flat = flat_name(namespace if isinstance(namespace, str) else None, name)
            return {"type": "function", "function": {"name": flat}}
        case {"type": "allowed_tools", "tools": list(tools), **rest}:
            allowed = [one for one in map(chosen, tools) if isinstance(one, Mapping)]
            mode = "required" if rest.get("mode") == "required" else "auto"
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}} if allowed else mode
    return None
