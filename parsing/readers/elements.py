"""Values written as elements: <key>text</key>, nested for an object, repeated for a list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from parsing.arguments import (
    Schema,
    allowed_types,
    coerce,
    item_schemas,
    kind_of,
    parts_of,
    properties_of,
    property_schemas,
    types_in,
)
from parsing.events import Arguments
from parsing.readers.markup import Framing, unframed
from parsing.shapes import Misfit

Node = str | list[tuple[str, "Node"]]  # text, or children by their keys
ITEM = "item"  # the key of a list's elements
TAGS = re.compile(r"<(?P<close>/?)(?P<key>[^\W\d][\w.-]*)\s*>")
_MAX_NODES = 20_000
_MAX_DEPTH = 64


def tree(text: str, tags: re.Pattern[str]) -> Node:
    """The elements that `text` is made of, or the text itself when it has none. Raises Misfit."""
    path: list[tuple[str, list[tuple[str, Node]], int]] = [("", [], 0)]
    pos = 0
    for count, match in enumerate(tags.finditer(text)):
        if count > _MAX_NODES or len(path) > _MAX_DEPTH:
            raise Misfit("Too many nested values. Send a smaller call.")
        key, children, start = path[-1]
        if (children or not match["close"]) and (stray := text[pos : match.start()].strip()):
            raise Misfit(f"{stray[:40]!r} stands between the values. Send the call again.")
        pos = match.end()
        if not match["close"]:
            path.append((match["key"], [], pos))
            continue
        if len(path) < 2 or key != match["key"]:
            raise Misfit(f"The tag </{match['key']}> closes nothing. Send the call again.")
        path.pop()
        path[-1][1].append((key, children or text[start : match.start()]))
    if len(path) > 1:
        raise Misfit(f"The tag <{path[-1][0]}> is not closed. Send the call again.")
    [(_, children, _)] = path
    if children and (stray := text[pos:].strip()):
        raise Misfit(f"{stray[:40]!r} stands behind the values. Send the call again.")
    return children or text


def nested_value(text: str, schema: Schema, key: str) -> Any:
    """The value of parameter `key` when `text` is made of elements and the schema wants an array or object there."""
    declared = properties_of(schema).get(key)
    if not isinstance(declared, Mapping):
        return text
    kinds, _ = allowed_types(declared, schema)
    if "string" in kinds or not kinds & {"array", "object"}:
        return text
    try:
        found = tree(text, TAGS)
    except Misfit:
        return text
    value = text if isinstance(found, str) else typed(found, [declared], schema)
    return value if kind_of(value) in kinds else text


def repeated_value(texts: Sequence[str], last: Any, schema: Schema, key: str) -> Any:
    """The value of a parameter that is written several times: a list where the schema wants one, else the last."""
    declared = properties_of(schema).get(key)
    if not isinstance(declared, Mapping):
        return last
    parts = parts_of(declared, schema)
    kinds, _ = types_in(parts)
    if "string" in kinds or "array" not in kinds:
        return last
    return [typed(text, item_schemas(parts), schema) for text in texts]


def typed_children(children: list[tuple[str, Node]], declared: list[Schema], root: Schema) -> Arguments:
    """The object that these children make: of one key's, several are a list where the schema allows one."""
    parts = [part for each in declared for part in parts_of(each, root)]
    by_key: dict[str, list[Node]] = {}
    for key, node in children:
        by_key.setdefault(key, []).append(node)
    return {key: _typed_nodes(nodes, property_schemas(key, parts), root) for key, nodes in by_key.items()}


def _typed_nodes(nodes: list[Node], declared: list[Schema], root: Schema) -> Any:
    parts = [part for each in declared for part in parts_of(each, root)]
    kinds, _ = types_in(parts)
    if len(nodes) > 1 and (not kinds or "array" in kinds):
        return [typed(node, item_schemas(parts), root) for node in nodes]
    return typed(nodes[-1], declared, root)


def typed(node: Node, declared: list[Schema], root: Schema) -> Any:
    """The value of an element, as the schemas that describe it want it."""
    parts = [part for each in declared for part in parts_of(each, root)]
    kinds, choices = types_in(parts)
    if isinstance(node, str):
        return coerce(unframed(node, Framing.PAIR), kinds, choices)
    keys = {key for key, _ in node}
    if len(keys) == 1 and ("array" in kinds or (not kinds and keys == {ITEM})):
        return [typed(each, item_schemas(parts), root) for _, each in node]
    return typed_children(node, declared, root)
