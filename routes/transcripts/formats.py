"""Formats of transcripts, a row of FORMATS each: their entries become input items of Responses, one form for all.

What is in a file is untrusted and may be broken anywhere. Whether an item is one, the lane's own reader checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from io import BytesIO
from itertools import islice
from typing import Any

from msgspec import Struct, field

from app.core.attachments import SEEN
from routes.lanes.reading import plain_text
from routes.protocol.errors import Refused

Item = Mapping[str, Any]
Blocks = dict[str, Callable[[Item], list[Item]]]
MOST_BYTES = 64 << 20  # of a file
MOST_SKIPPED = 1_000  # lines
LONGEST_WORD = 256  # characters of an id, a title or the name of a model
RESULTS = ("function_call_output", "custom_tool_call_output")
KEPT = ("message", "reasoning", "function_call", "custom_tool_call", "image_generation_call", *RESULTS)
LEFT_OUT: Item = {"type": "message", "role": "system"}  # a program's own words
MISSING = "[A file that is not in the transcript: {}]"
UNREADABLE = "[Something that cannot be read: {}]"
TOO_DEEP = "It is nested too deeply."
# How messages begin that Codex writes in the person's name.
OF_CODEX = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill>")


class Record(Struct):
    """Content of a record: `timed` are items, each with its time. A sub-agent has a conversation of its own."""

    id: Any = None
    title: Any = None
    model: Any = None
    timed: Iterable[tuple[Any, Item]] = ()
    agent: str = ""
    labels: Any = None


class Entry(Struct, frozen=True, gc=False):
    """An item as JSON: as objects, those of a long file would take ten times the room, and stop all to be counted.

    `kind` is the type of the item or the role of the message, `call` the id of a call or of what its result answers.
    """

    line: int
    at: float | None
    kind: str
    call: str
    item: bytes


class Transcript(Struct):
    """One conversation. `left_out` counts items that are no words of a person or a model, no calls and no results."""

    id: str = ""
    title: str = ""
    model: str = ""
    entries: list[Entry] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    left_out: int = 0

    def add(self, line: int, record: Record) -> None:
        self.id = self.id or word_of(record.id)
        self.title, self.model = word_of(record.title) or self.title, word_of(record.model) or self.model
        self.labels += record.labels.split() if isinstance(record.labels, str) else []
        for at, item in record.timed:
            kind, role = item.get("type", "message"), item.get("role")
            if kind not in KEPT or role in ("system", "developer"):
                self.left_out += 1
                continue
            kind, call = role if kind == "message" else kind, word_of(item.get("call_id"))
            self.entries.append(Entry(line, _time_of(at), word_of(kind), call, json.dumps(item).encode()))


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
    if found := _read(kind, _records(data, skipped), skipped):
        return found
    first = list(islice(_records(data, Skipped()), MOST_SKIPPED))
    other = next((name for name in FORMATS if _read(name, first, Skipped())), None)
    advice = f"Its format seems to be {other}." if other else "docs/import.md says which files are read."
    raise Refused(422, "unknown_transcript", f"The file has no conversation in the format {kind}. {advice}")


def _records(data: bytes, skipped: Skipped) -> Iterator[tuple[int, Item]]:
    """The JSON objects of a file, each with its line: the one that it is, or those of its lines."""
    for number, line in enumerate(BytesIO(data), 1):
        record = _loaded(line)
        if number == 1 and not isinstance(record, dict):
            whole = _loaded(data) if record is None else record
            if isinstance(whole, dict | list):
                yield 1, whole if isinstance(whole, dict) else {"input": whole}
                return
        if isinstance(record, dict):
            yield number, record
        elif line.strip():
            skipped.add(number, "The line is no JSON object.")


def _loaded(text: bytes) -> Any:
    """The value of a JSON text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(kind: str, records: Iterable[tuple[int, Item]], skipped: Skipped) -> list[Transcript]:
    found = dict[str, Transcript]()
    for line, fields in records:
        try:
            record = FORMATS[kind](fields)
            found.setdefault(record.agent, Transcript()).add(line, record)
        except RecursionError:
            skipped.add(line, TOO_DEEP)
    return [one for one in found.values() if one.entries]


def read_claude(record: Item) -> Record:
    """Claude Code, ~/.claude/projects/*/*.jsonl: messages of Anthropic's API."""
    message, kind = _fields(record.get("message")), record.get("type")
    agent = (word_of(record.get("agentId")) or "agent") if record.get("isSidechain") else ""
    title = record.get("customTitle") or record.get("aiTitle") or record.get("summary")
    items = list(items_of_blocks(kind, message.get("content"))) if kind in ("user", "assistant") else []
    if record.get("isMeta") and all(item["type"] == "message" for item in items):
        items = [LEFT_OUT]
    timed = [(record.get("timestamp"), item) for item in items]
    return Record(f"{word_of(record.get('sessionId'))}/{agent}".rstrip("/"), title, message.get("model"), timed, agent)


def read_codex(record: Item) -> Record:
    """Codex, ~/.codex/sessions/**/rollout-*.jsonl: items of Responses in records; in files of early 2025 alone."""
    kind, item = record.get("type"), _fields(record.get("payload", record))
    if kind is None or ("payload" in record and kind not in ("response_item", "compacted")):
        return Record(item.get("id") if kind in ("session_meta", None) else None, model=item.get("model"))
    words = [word_of(part.get("text")) for part in _objects(item.get("content"))]
    if kind == "compacted":
        item = {"role": "user", "content": item.get("message")}
    elif item.get("type") == "local_shell_call":
        item = _call(item.get("call_id"), "local_shell", item.get("action"))
    elif item.get("role") == "user" and any(word.startswith(OF_CODEX) for word in words):
        item = LEFT_OUT
    return Record(timed=[(record.get("timestamp"), item)])


def read_opencode(record: Item) -> Record:
    """The output of `opencode export`: a session, and its messages with their parts."""
    info, timed, model = _fields(record.get("info")), list[tuple[Any, Item]](), None
    for message in _objects(record.get("messages")):
        about = _fields(message.get("info"))
        model, at = about.get("modelID") or model, _fields(about.get("time")).get("created")
        timed += [(at, item) for item in items_of_blocks(about.get("role"), message.get("parts"))]
    return Record(info.get("id"), info.get("title"), model, timed)


def read_responses(record: Item) -> Record:
    """A request or a response of Responses, or an item alone."""
    about, items = _fields(record.get("metadata")), record.get("input", record.get("output", [record]))
    items = items if isinstance(items, list) else [{"role": "user", "content": items}]
    return Record(
        about.get("session"),
        about.get("title"),
        timed=[(None, one) for one in _objects(items)],
        labels=about.get("labels"),
    )


def read_dragoman(record: Item) -> Record:
    """The exports of this server as JSON."""
    timed, files = list[tuple[Any, Item]](), _fields(record.get("files"))
    for message in _objects(record.get("messages")):
        at = message["at"] * 1000 if isinstance(message.get("at"), float) else None
        timed += [(at, item) for item in items_of(message, files)] if "role" in message else []
    return Record(record.get("id"), record.get("title"), timed=timed, labels=record.get("labels"))


FORMATS: Mapping[str, Callable[[Item], Record]] = {
    "claude": read_claude,
    "codex": read_codex,
    "opencode": read_opencode,
    "dragoman": read_dragoman,
    "responses": read_responses,
}


def items_of(message: Item, files: Item) -> Iterator[Item]:
    """The items of a message of ours as JSON; `files` has base64 by SHA-256."""
    role, of_app = message.get("role"), message.get("app")  # a model reads its words as data
    text = (not of_app and message.get("shown")) or message.get("text")
    parts = [*([_text(text)] if text else []), *(_stored(one, files) for one in _objects(message.get("attachments")))]
    pictures = [part for part in parts if role == "assistant" and part["type"] != "input_text"]
    parts = [part for part in parts if part not in pictures]
    yield from [_reasoning(message["reasoning"])] if message.get("reasoning") else []
    yield from [_result(message.get("call") or "none", parts)] if role == "tool" else _message(role, parts)
    yield from [_call(one.get("id"), one.get("name"), one.get("arguments")) for one in _objects(message.get("calls"))]
    for part in pictures:
        yield {"type": "image_generation_call", "status": "completed", "result": part.get("image_url")}


def _stored(one: Item, files: Item) -> Item:
    data, name, kind = files.get(word_of(one.get("sha256"))), one.get("name"), word_of(one.get("media_type"))
    url = f"data:{kind if kind in SEEN else 'application/octet-stream'};base64,{data}" if data else ""
    return _file({"url": url, "filename": name})[0]


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
    found = [(table.get(word_of(block.get("type"))), block) for block in _objects(blocks)]
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


def _result(call: Any, output: Any, failed: Any = False) -> Item:
    return {"type": RESULTS[0], "call_id": call, "output": output, "status": "incomplete" if failed else "completed"}


def _source(block: Item) -> list[Item]:
    source = _fields(block.get("source"))
    if source.get("type") == "text":
        return [_text(source.get("data"))]
    is_here = source.get("type") == "base64"
    url = f"data:{source.get('media_type')};base64,{source.get('data')}" if is_here else source.get("url")
    return _file({"url": url, "filename": block.get("title")})


def _file(part: Item) -> list[Item]:
    url, name = str(part.get("url")), part.get("filename") or "file"
    if url.removeprefix("data:").partition(";")[0] in SEEN:
        return [{"type": "input_image", "image_url": url}]
    is_here = url.startswith("data:")
    return [{"type": "input_file", "filename": name, "file_data": url} if is_here else _text(MISSING.format(name))]


def _tool_result(block: Item) -> list[Item]:
    content = block.get("content")
    output = _made(content, PARTS) if isinstance(content, list) else content
    return [_result(block.get("tool_use_id"), output, block.get("is_error"))]


def _tool(part: Item) -> list[Item]:
    """A call of opencode, with its result if it has ended."""
    state, call = _fields(part.get("state")), part.get("callID")
    output = [_text(state.get("output") or state.get("error")), *_made(state.get("attachments"), PARTS)]
    ended = [_result(call, output, "error" in state)] if {"output", "error"} & state.keys() else []
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


def _time_of(given: Any) -> float | None:
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


def word_of(given: Any) -> str:
    return plain_text(given)[:LONGEST_WORD] if isinstance(given, str) else ""
