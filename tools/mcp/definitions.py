"""Tool definitions of a server: hashed as received, then stripped of invisible characters and limited in size."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tools.base.escape_invisible import visible
from tools.base.patterns import lazy_pattern
from tools.base.permit import canonical
from tools.base.rights import Hints
from tools.base.schemas import schema_error
from tools.base.texts import shortened
from tools.tool import BOTH

MAX_TOOLS = 500
MAX_TEXT = 4_000  # characters of a description
MAX_SCHEMA = 40_000  # characters of a schema, as JSON
MAX_TOOL_NAME = 1_000
MAX_INSTRUCTIONS = 2_048
_MAX_DEPTH = 60
_MAX_DIFF = 20_000

_PINNED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_HINTS = ("readOnlyHint", "destructiveHint", "openWorldHint")  # as the fields of Hints
# Exactly what may stand in a content policy: a text that holds more could end a directive and begin another.
ORIGIN = lazy_pattern(r"(?:https|wss)://(?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*(?::[0-9]{1,5})?")
PAGES, PAGE_TYPE = "ui://", "text/html;profile=mcp-app"  # of pages that show results, see `tools.mcp.apps`


class UnusableDefinition(Exception):
    """A definition that cannot be used. The message has the reason."""


class Definition(Struct, frozen=True):
    """One tool: its name at the server, the pinned fields, their hash, and the description for the model."""

    name: str
    pinned: Mapping[str, Any]
    digest: str
    description: str
    parameters: dict[str, Any]

    @property
    def hints(self) -> Hints:
        """The hints that count for a trusted server; a value that is no boolean states nothing."""
        given = self.pinned.get("annotations")
        stated = given if isinstance(given, dict) else {}
        return Hints(*(one if isinstance(one := stated.get(name), bool) else None for name in _HINTS))

    @property
    def ui(self) -> Mapping[str, Any]:
        """The page of results (`resourceUri`) and the callers of the tool (`visibility`), where they are given."""
        ui: Mapping[str, Any] = self.pinned.get("_meta", {}).get("ui", {})
        return ui


def definition(raw: Mapping[str, Any], *, trusted: bool = False) -> Definition:
    """Build a definition from the server's data, or from a pin (`trusted`). Raises UnusableDefinition."""
    name = raw["name"]
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TOOL_NAME:
        raise UnusableDefinition(f"its name has more than {MAX_TOOL_NAME} characters, or none")
    pinned = {key: raw[key] for key in _PINNED if raw.get(key) is not None}
    if ui := _ui_of(raw.get("_meta")):
        pinned["_meta"] = {"ui": ui}
    try:
        written = canonical(pinned)
        parameters = _parameters(raw.get("inputSchema"))
    except RecursionError as error:
        raise UnusableDefinition("its schema is nested too deeply") from error
    if not trusted and (fault := schema_error(parameters)) is not None:
        raise UnusableDefinition(f"its schema is wrong: {fault}")
    return Definition(name, pinned, sha256(written), _description(raw), parameters)


def _ui_of(meta: object) -> dict[str, Any]:
    given = meta if isinstance(meta, dict) else {}
    ui = ui if isinstance(ui := given.get("ui"), dict) else {}
    uri, seen_by = ui.get("resourceUri", given.get("ui/resourceUri")), ui.get("visibility")
    found: dict[str, Any] = {}
    if isinstance(uri, str) and uri.startswith(PAGES) and len(uri) <= MAX_TOOL_NAME and uri.isprintable():
        found["resourceUri"] = uri
    if isinstance(seen_by, list):
        found["visibility"] = [one for one in BOTH if one in seen_by]
    return found


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _description(raw: Mapping[str, Any]) -> str:
    annotations = raw.get("annotations") or {}
    text = raw.get("description") or raw.get("title") or annotations.get("title") or raw["name"]
    return shortened(visible(str(text)[: 2 * MAX_TEXT]).strip(), MAX_TEXT)


def _parameters(schema: object) -> dict[str, Any]:
    given = schema if isinstance(schema, dict) else {}
    cleaned = _visible(given, _MAX_DEPTH)
    if isinstance(given.get("$schema"), str):
        cleaned["$schema"] = given["$schema"]
    if len(json.dumps(cleaned)) > MAX_SCHEMA:
        raise UnusableDefinition(f"its schema has more than {MAX_SCHEMA:,} characters")
    # Some model APIs refuse all tools when one of them has no `properties`.
    return {"properties": {}, **cleaned, "type": "object"}


def _visible(value: Any, depth: int) -> Any:
    if depth == 0:
        raise UnusableDefinition("its schema is nested too deeply")
    match value:
        case str():
            return shortened(visible(value), MAX_TEXT)
        case dict():
            # A `$schema` further down would switch to checks that are not bounded.
            kept = ((key, one) for key, one in value.items() if key != "$schema" or isinstance(one, dict))
            return {visible(str(key)): _visible(one, depth - 1) for key, one in kept}
        case list():
            return [_visible(one, depth - 1) for one in value]
    return value


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the diff that a person reads before approving, with invisible characters escaped."""
    before, after = (json.dumps(one, indent=1, sort_keys=True).splitlines() for one in (old, new))
    lines = difflib.unified_diff(before, after, "trusted", "offered now", lineterm="", n=1)
    text = "\n".join(lines)
    more = len(text) - _MAX_DIFF
    return f"{text[:_MAX_DIFF]}…\n[{more:,} more characters are not shown]" if more > 0 else text
