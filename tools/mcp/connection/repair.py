"""Repair of server responses, so that one invalid part does not cost the rest: the SDK accepts all or nothing."""

from __future__ import annotations

import json
from typing import Any

from tools.mcp.connection.extensions import TASKS

_BLOCKS: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri",),
    "resource": (),
}
_ROLES = ("user", "assistant")
_SHOWN = 1_000


def repaired(method: str, result: dict[str, Any]) -> list[str]:
    """Repair the result of a request in place; return notes on what was changed."""
    is_modern = "resultType" in result
    result.setdefault("resultType", "complete")  # the protocol's default; without it the SDK refuses the result
    if method.endswith("/list") and not isinstance(result.get("nextCursor"), str | None):
        del result["nextCursor"]
    match method:
        case "tools/list":
            return _tools(result)
        case "tools/call" if result["resultType"] == "task" or ("task" in result and "content" not in result):
            return _handle(result)
        case "tools/call" | "tasks/result":
            return _content(result, is_modern=is_modern)
        case "tasks/get" if isinstance(given := result.get("result"), dict):
            return _content(given, is_modern=is_modern)
        case "resources/list" | "resources/templates/list" | "prompts/list":
            return _offers(result, *_LISTS[method])
        case "resources/read":
            return _contents(result)
        case "prompts/get":
            return _prompt(result)
    return []


def _tools(result: dict[str, Any]) -> list[str]:
    given = result.get("tools")
    if not isinstance(given, list):
        result["tools"] = []
        return ["The list of tools was no list."]
    notes: list[str] = []
    result["tools"] = [tool for tool in given if _mend_tool(tool, notes)]
    return notes


def _mend_tool(tool: Any, notes: list[str]) -> bool:
    """Repair a tool in place; return whether it can be used."""
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        notes.append("A tool without a name was left out.")
        return False
    name = tool["name"][:80]
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        if schema is not None:
            notes.append(f"{name}: its schema was no object, and is taken as one without parameters.")
        schema = tool["inputSchema"] = {}
    if schema.get("type") != "object":
        if "type" in schema:
            notes.append(f"{name} was left out: its parameters are no object.")
            return False
        schema["type"] = "object"
    properties = schema.get("properties")
    if properties is not None and not isinstance(properties, dict):
        notes.append(f"{name} was left out: its parameters are not named.")
        return False
    for key, kind in _KINDS.items():
        if key in tool and not isinstance(tool[key], kind):
            if tool[key] is not None:
                notes.append(f"{name}: its {key} could not be read and was left out.")
            del tool[key]
    _mend_annotations(tool)
    output = tool.get("outputSchema")
    if output is not None and output.get("type") != "object":
        del tool["outputSchema"]
    return True


_KINDS: dict[str, type] = {
    "description": str,
    "title": str,
    "outputSchema": dict,
    "annotations": dict,
    "execution": dict,
    "icons": list,
    "_meta": dict,
}


# The list and the field that names an entry.
_LISTS = {
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "prompts/list": ("prompts", "name"),
}
_OFFER_FIELDS: dict[str, type] = {"title": str, "description": str, "mimeType": str, "size": int, "arguments": list}


def _offers(result: dict[str, Any], field: str, key: str) -> list[str]:
    given = result.get(field)
    found = given if isinstance(given, list) else []
    usable = [one for one in found if isinstance(one, dict) and isinstance(one.get(key), str)]
    result[field] = [_plain_offer(one, key) for one in usable]
    whole_list = isinstance(given, list) and len(usable) == len(found)
    return [] if whole_list else [f"Entries of {field} could not be read and were left out."]


def _plain_offer(one: dict[str, Any], key: str) -> dict[str, Any]:
    fields = {name: one[name] for name, kind in _OFFER_FIELDS.items() if isinstance(one.get(name), kind)}
    if "arguments" in fields:
        named = (
            given for given in fields["arguments"] if isinstance(given, dict) and isinstance(given.get("name"), str)
        )
        fields["arguments"] = list(map(_argument, named))
    name = one.get("name")
    return {**fields, "name": name if isinstance(name, str) else one[key], key: one[key]}


def _argument(given: dict[str, Any]) -> dict[str, Any]:
    about = given.get("description")
    described = {"description": about} if isinstance(about, str) else {}
    return {"name": given["name"], "required": given.get("required") is True, **described}


def _contents(result: dict[str, Any]) -> list[str]:
    if result["resultType"] != "complete":
        return []
    given = result.get("contents")
    found = given if isinstance(given, list) else [given]
    result["contents"] = [one for one in found if _is_whole({"resource": one}, "resource")]
    lost = len(found) - len(result["contents"])
    return [f"{lost} contents of a resource could not be read."] if lost else []


def _prompt(result: dict[str, Any]) -> list[str]:
    if result["resultType"] != "complete":
        return []
    notes: list[str] = []
    given = result.get("messages")
    messages = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    result["messages"] = [
        {
            "role": one["role"] if one.get("role") in _ROLES else "user",
            "content": _block(one.get("content"), notes),
        }
        for one in messages
    ]
    if not isinstance(result.get("description"), str | None):
        del result["description"]
    return notes


def _mend_annotations(tool: dict[str, Any]) -> None:
    if "annotations" in tool:
        tool["annotations"] = {
            key: value
            for key, value in tool["annotations"].items()
            if isinstance(value, bool if key.endswith("Hint") else str)
        }
    if "icons" in tool:
        tool["icons"] = [one for one in tool["icons"] if isinstance(one, dict) and isinstance(one.get("src"), str)]
    if tool.get("execution", {}).get("taskSupport") not in (None, "forbidden", "optional", "required"):
        del tool["execution"]


def _handle(result: dict[str, Any]) -> list[str]:
    """Put the task that a call was answered with, in either era, into the metadata of a result: the SDK knows none."""
    task = dict(result) if result["resultType"] == "task" else result["task"]
    result.clear()
    result.update(resultType="complete", content=[], _meta={TASKS: task if isinstance(task, dict) else {}})
    return []


def _content(result: dict[str, Any], *, is_modern: bool) -> list[str]:
    if result.get("resultType", "complete") != "complete":
        return []
    notes: list[str] = []
    given = result.get("content")
    if not isinstance(given, list):
        given = [] if given is None else [given]
    result["content"] = [_block(block, notes) for block in given]
    structured = result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict) and not is_modern:
        result["structuredContent"] = {"result": structured}
    if not isinstance(result.get("isError", False), bool):
        result["isError"] = bool(result["isError"])
    if not isinstance(result.get("_meta", {}), dict):
        del result["_meta"]
    return notes


def _block(block: Any, notes: list[str]) -> dict[str, Any]:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str) or not _is_whole(block, kind):
        notes.append(f"A piece of the result, of the type {str(kind)[:80]!r}, could not be read.")
        return {"type": "text", "text": f"[unreadable {str(kind)[:80]!r}: {json.dumps(block)[:_SHOWN]}]"}
    annotations = block.get("annotations")
    if annotations is not None:
        block["annotations"] = _mend_audience(annotations)
    if not isinstance(block.get("_meta", {}), dict):
        del block["_meta"]
    if kind == "resource_link":
        block["name"] = str(block.get("name") or block["uri"])
        for key in [key for key in ("title", "description", "mimeType") if not isinstance(block.get(key), str | None)]:
            del block[key]
        for key in ("size", "icons"):
            block.pop(key, None)
    return block


def _is_whole(block: dict[str, Any], kind: str) -> bool:
    if kind not in _BLOCKS:
        return False
    if kind == "resource":
        resource = block.get("resource")
        return (
            isinstance(resource, dict)
            and isinstance(resource.get("uri"), str)
            and any(isinstance(resource.get(key), str) for key in ("text", "blob"))
            and isinstance(resource.get("mimeType"), str | None)
            and isinstance(resource.get("_meta"), dict | None)
        )
    return all(isinstance(block.get(key), str) for key in _BLOCKS[kind])


def _mend_audience(annotations: Any) -> dict[str, Any]:
    audience = annotations.get("audience") if isinstance(annotations, dict) else None
    return {"audience": [role for role in audience if role in _ROLES]} if isinstance(audience, list) else {}
