"""Formats of transcripts, a row of FORMATS each: their entries become input items of Responses, one form for all.

What is in a file is untrusted and may be broken anywhere. Whether an item is one, the lane's own reader checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from app.core.attachments import SEEN
from routes.protocol.errors import Refused

Item = Mapping[str, Any]
Blocks = Mapping[str, Callable[[Item], list[Item]]]
Record = tuple[int, Item]  # an object of a file, behind the number of its line
MOST_BYTES = 64 << 20  # of a file
MOST_SKIPPED = 1_000  # lines
RESULTS = ("function_call_output", "custom_tool_call_output")
KEPT = ("message", "reasoning", "function_call", "custom_tool_call", "image_generation_call", *RESULTS)
LEFT_OUT: Item = {"type": "message", "role": "system"}  # a program's own words
TITLES = ("summary", "aiTitle", "customTitle")
# How messages begin that Codex writes in the person's name.
OF_CODEX = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill>")


class Entry(Struct, frozen=True):
    line: int
    at: float | None
    item: Item


class Transcript(Struct):
    """One conversation. `left_out` counts items that are no words of a person or a model, no calls and no results."""

    id: str = ""
    title: str = ""
    model: str = ""
    entries: list[Entry] = field(default_factory=list)
    left_out: int = 0

    def add(self, line: int, at: float | None, items: Iterable[Item]) -> None:
        for item in items:
            is_kept = item.get("type", "message") in KEPT and item.get("role") not in ("system", "developer")
            self.entries += [Entry(line, at, item)] if is_kept else []
            self.left_out += not is_kept


class Skipped(list[dict[str, Any]]):
    """Lines that could not be read, and why."""

    def add(self, line: int, reason: str) -> None:
        """Raises Refused when they are too many."""
        self.append({"line": line, "reason": reason[:300]})
        if len(self) > MOST_SKIPPED:
            message = f"More than {MOST_SKIPPED:,} lines cannot be read. Line {line}: {reason[:300]}"
            raise Refused(422, "unknown_transcript", message)


def transcripts_of(kind: str, data: bytes, skipped: Skipped) -> list[Transcript]:
    """The conversations of a file. Raises Refused if there is none of this format."""
    records = list(_records(data, skipped))
    found = [one for one in FORMATS[kind](records) if one.entries]
    if not found:
        others = [name for name, read in FORMATS.items() if any(one.entries for one in read(records))]
        advice = f"Its format seems to be {others[0]}." if others else "docs/import.md says which files are read."
        raise Refused(422, "unknown_transcript", f"The file has no conversation in the format {kind}. {advice}")
    return found


def _records(data: bytes, skipped: Skipped) -> Iterator[Record]:
    """The JSON objects of a file: the one that it is, or those of its lines."""
    try:
        whole = json.loads(data)
        yield 1, whole if isinstance(whole, dict) else {"input": whole}
        return
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line or b"{}")
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield number, record
        else:
            skipped.add(number, "The line is no JSON object.")


def read_claude(records: Iterable[Record]) -> list[Transcript]:
    """Claude Code, ~/.claude/projects/*/*.jsonl: messages of Anthropic's API; a conversation for each sub-agent."""
    found, titles = dict[str, Transcript](), dict[str, str]()
    for line, record in records:
        titles |= {name: record[name] for name in TITLES if _word(record.get(name))}
        message = _fields(record.get("message"))
        if record.get("type") in ("user", "assistant"):
            agent = (_word(record.get("agentId")) or "agent") if record.get("isSidechain") else ""
            one = found.setdefault(agent, Transcript())
            one.id = f"{_word(record.get('sessionId'))}/{agent}".rstrip("/")
            one.model = _word(message.get("model")) or one.model
            items = list(items_of_blocks(record["type"], message.get("content")))
            is_own = record.get("isMeta") and all(item["type"] == "message" for item in items)
            one.add(line, time_of(record.get("timestamp")), [LEFT_OUT] if is_own else items)
    for one in (found[agent] for agent in found if not agent):
        one.title = next((titles[name] for name in reversed(TITLES) if name in titles), "")
    return list(found.values())


def read_codex(records: Iterable[Record]) -> list[Transcript]:
    """Codex, ~/.codex/sessions/**/rollout-*.jsonl: items of Responses in records; in files of early 2025 alone."""
    one = Transcript()
    for line, record in records:
        kind, item = record.get("type"), _fields(record.get("payload", record))
        words = [_word(part.get("text")) for part in _objects(item.get("content"))]
        if kind in ("session_meta", "turn_context", "event_msg", None):
            one.id = one.id or (_word(item.get("id")) if kind != "event_msg" else "")
            one.model = _word(item.get("model")) or one.model
            continue
        if kind == "compacted":
            item = {"role": "user", "content": item.get("message") or None}
        elif item.get("type") == "local_shell_call":
            item = _call(item.get("call_id"), "local_shell", item.get("action"))
        elif item.get("role") == "user" and any(word.startswith(OF_CODEX) for word in words):
            item = LEFT_OUT
        one.add(line, time_of(record.get("timestamp")), [item])
    return [one]


def read_opencode(records: Iterable[Record]) -> list[Transcript]:
    """The output of `opencode export`: a session, and its messages with their parts."""
    found = list[Transcript]()
    for line, record in records:
        info = _fields(record.get("info"))
        found.append(one := Transcript(_word(info.get("id")), _word(info.get("title"))))
        for message in _objects(record.get("messages")):
            about = _fields(message.get("info"))
            one.model = _word(about.get("modelID")) or one.model
            at = time_of(_fields(about.get("time")).get("created"))
            one.add(line, at, items_of_blocks(about.get("role"), message.get("parts")))
    return found


def read_responses(records: Iterable[Record]) -> list[Transcript]:
    """Requests or responses of Responses, or items alone."""
    one = Transcript()
    for line, record in records:
        about = _fields(record.get("metadata"))
        one.id, one.title = one.id or _word(about.get("session")), one.title or _word(about.get("title"))
        items = next((record[name] for name in ("input", "output") if name in record), [record])
        one.add(line, None, _objects(items if isinstance(items, list) else [{"role": "user", "content": items}]))
    return [one]


def read_dragoman(records: Iterable[Record]) -> list[Transcript]:
    """What is exported here as JSON."""
    found = list[Transcript]()
    for line, record in records:
        found.append(one := Transcript(_word(record.get("id")), _word(record.get("title"))))
        for message in _objects(record.get("messages")):
            at = message.get("at")
            items = items_of(message, _fields(record.get("files"))) if "role" in message else ()
            one.add(line, time_of(at * 1000 if isinstance(at, float) else None), items)
    return found


FORMATS: Mapping[str, Callable[[Iterable[Record]], list[Transcript]]] = {
    "claude": read_claude,
    "codex": read_codex,
    "opencode": read_opencode,
    "dragoman": read_dragoman,
    "responses": read_responses,
}


def items_of(message: Item, files: Item) -> Iterator[Item]:
    """The items of a message of ours as JSON; `files` has base64 by SHA-256."""
    role, text = message.get("role"), message.get("shown") or message.get("text")
    parts = [*([_text(text)] if text else []), *(_stored(one, files) for one in _objects(message.get("attachments")))]
    pictures = [part for part in parts if role == "assistant" and part["type"] != "input_text"]
    parts = [part for part in parts if part not in pictures]
    yield from [_reasoning(message["reasoning"])] if message.get("reasoning") else []
    yield from [_result(message.get("call") or "none", parts)] if role == "tool" else _message(role, parts)
    yield from [_call(one.get("id"), one.get("name"), one.get("arguments")) for one in _objects(message.get("calls"))]
    for part in pictures:
        yield {"type": "image_generation_call", "status": "completed", "result": part.get("image_url")}


def _stored(one: Item, files: Item) -> Item:
    data, name, kind = files.get(_word(one.get("sha256"))), one.get("name") or "file", _word(one.get("media_type"))
    if not data:
        return _text(f"[The file {name} is not in the transcript.]")
    if kind in SEEN:
        return {"type": "input_image", "image_url": f"data:{kind};base64,{data}"}
    return {"type": "input_file", "filename": name, "file_data": f"data:application/octet-stream;base64,{data}"}


def items_of_blocks(role: Any, content: Any) -> Iterator[Item]:
    """The items of blocks (Claude Code) or parts (opencode): texts and files in a row are one message."""
    parts = list[Item]()
    for made in _made([{"type": "text", "text": content}] if isinstance(content, str) else content, BLOCKS):
        if made["type"] not in KEPT:
            parts.append(made)
            continue
        yield from _message(role, parts)
        parts = []
        yield made
    yield from _message(role, parts)


def _made(blocks: Any, table: Blocks) -> list[Item]:
    found = [(table.get(_word(block.get("type"))), block) for block in _objects(blocks)]
    return [item for make, block in found if make for item in make(block)]


def _message(role: Any, parts: list[Item]) -> list[Item]:
    if role == "assistant":
        parts = [part | {"type": "output_text"} if part["type"] == "input_text" else part for part in map(dict, parts)]
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _text(text: Any) -> Item:
    return {"type": "input_text", "text": text}


def _reasoning(text: Any) -> Item:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def _call(call: Any, name: Any, arguments: Any) -> Item:
    written = json.dumps(arguments) if isinstance(arguments, dict) else arguments
    return {"type": "function_call", "call_id": call, "name": name, "arguments": written}


def _result(call: Any, output: Any, *, failed: Any = False) -> Item:
    return {"type": RESULTS[0], "call_id": call, "output": output, "status": "incomplete" if failed else "completed"}


def _source(block: Item) -> list[Item]:
    source = _fields(block.get("source"))
    if source.get("type") != "base64":
        return [_text(source.get("data") or "[A file that is not in the transcript.]")]
    return _file(
        {"url": f"data:{source.get('media_type')};base64,{source.get('data')}", "filename": block.get("title")}
    )


def _file(part: Item) -> list[Item]:
    url, name = _word(part.get("url")), part.get("filename") or "file"
    if url.startswith("data:image/"):
        return [{"type": "input_image", "image_url": url}]
    if url.startswith("data:"):
        return [{"type": "input_file", "filename": name, "file_data": url}]
    return [_text(f"[The file {name} is not in the transcript.]")]


def _tool_result(block: Item) -> list[Item]:
    content = block.get("content")
    output = _made(content, PARTS) if isinstance(content, list) else content
    return [_result(block.get("tool_use_id"), output, failed=block.get("is_error"))]


def _tool(part: Item) -> list[Item]:
    """A call of opencode, with its result if it has ended."""
    state, call = _fields(part.get("state")), part.get("callID")
    output = [_text(state.get("output") or state.get("error")), *_made(state.get("attachments"), PARTS)]
    ended = [_result(call, output, failed="error" in state)] if {"output", "error"} & state.keys() else []
    return [_call(call, part.get("tool"), state.get("input")), *ended]


PARTS: Blocks = {
    "text": lambda block: [] if block.get("ignored") else [_text(block.get("text"))],
    "image": _source,
    "document": _source,
    "file": _file,
}
BLOCKS: Blocks = PARTS | {
    "thinking": lambda block: [_reasoning(block.get("thinking"))],
    "reasoning": lambda block: [_reasoning(block.get("text"))],
    "tool_use": lambda block: [_call(block.get("id"), block.get("name"), block.get("input"))],
    "tool_result": _tool_result,
    "tool": _tool,
}


def time_of(given: Any) -> float | None:
    """The Unix time of an ISO 8601 text, or of milliseconds."""
    try:
        at = datetime.fromisoformat(given).timestamp() if isinstance(given, str) else float(given) / 1000
    except (ValueError, TypeError, OverflowError):
        return None
    return at if 0 < at < 1e11 else None


def _fields(given: Any) -> Item:
    return given if isinstance(given, dict) else {}


def _objects(given: Any) -> list[Item]:
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list | tuple) else []


def _word(given: Any) -> str:
    return given if isinstance(given, str) else ""
