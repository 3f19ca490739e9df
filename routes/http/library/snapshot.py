"""The content of a shared link: what a conversation has shown up to now, in as little as a reader needs.

Every field is taken from a list, so that a new event or field is shared only once it is listed here. Reasoning,
approvals, notices, helpers, usage and documents are never shared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from app.core.data_delimiters import data_in, without_data
from app.core.events import TextReclassified
from app.core.messages import shown
from app.log.log_compaction import joined_rows
from app.redaction.redactor import Redactor
from app.storage.runs import EventRow, RunRow
from app.storage.store import Store
from app.transcript.run_request import is_of_app

MOST = 4_000_000  # characters of a link's content: of a longer conversation the last turns
PAGE = 500  # runs read at a time
EVENTS_PAGE = 2_048
Row = dict[str, Any]

TEXT: Mapping[str, Sequence[str]] = {
    "round.started": ("round",),
    "text.delta": ("text", "call"),
    "plan": ("steps",),
    "run.finished": ("reason", "rounds", "calls"),
    "run.failed": ("code", "message", "retryable"),
}
CALLS: Mapping[str, Sequence[str]] = {
    "tool.started": ("call", "name", "arguments", "dialect"),
    "tool.finished": ("call", "name", "ok", "text", "duration_s", "exit_code", "advice"),
    "tool.handed": ("call", "name", "arguments", "dialect"),
    "tool.app": ("call", "name", "server"),
}
FILES: Mapping[str, Sequence[str]] = {"image": ("sha256", "media_type", "size", "call", "width", "height")}
LEFT_OUT = "(not shared)"
DELTA, ADDED = "text.delta", "message.added"


class ShareOptions(Struct, frozen=True):
    """The parts that a link shows beside the text: calls with their results, and files of messages and results."""

    tool_results: bool = True
    attachments: bool = False


class Snapshot(Struct, frozen=True):
    """`runs` is JSON, oldest first; `files` are the hashes of files that it shows."""

    runs: list[Row]
    earlier: bool
    files: list[str]


async def snapshot(store: Store, redactor: Redactor, session: str, options: ShareOptions) -> Snapshot:
    """Return what the ended runs of a session have shown, without secrets. Raises StoreFailed."""
    runs, size, before, files = list[Row](), 0, None, set[str]()
    while rows := await store.last_runs(session, before, PAGE, apps=False):
        for row in rows:
            if row.ended is None or is_of_app(row):
                continue
            run = redactor.redact_value(await _run(store, session, row, options))
            size += len(json.dumps(run))
            if size > MOST:
                return Snapshot(runs[::-1], earlier=True, files=sorted(files))
            runs.append(run)
            files |= set(_files(run))
        before = rows[-1].id
    return Snapshot(runs[::-1], earlier=False, files=sorted(files))


async def _run(store: Store, session: str, row: RunRow, options: ShareOptions) -> Row:
    """The messages of a branch are its own: the session that its first runs are of may be deleted."""
    request = await store.request_of(session, row.id)
    message = _message(shown(request), options) if request else None
    times = {"created": row.created, "ended": row.ended, "state": row.state}
    return {"run": row.id, **times, "message": message, "events": await _events(store, row.id, options)}


def _message(message: Mapping[str, Any], options: ShareOptions) -> Row:
    files = [_attachment(one, options) for one in message.get("attachments") or ()]
    text = _words(message.get("text", ""), options)
    row = {"role": "user", "text": text, "at": message.get("at"), "attachments": files}
    return row | {"app": message["app"], "shown": data_in(text)} if message.get("app") else row


def _words(text: str, options: ShareOptions) -> str:
    """A message that a job's end or a trigger has sent holds an output, which is a result, too."""
    return text if options.tool_results else without_data(text, LEFT_OUT)


def _attachment(one: Mapping[str, Any], options: ShareOptions) -> Row:
    """Its name and kind; its bytes are found by their hash."""
    named = ("name", "media_type", "size", "sha256") if options.attachments else ("name", "media_type", "size")
    return {name: one[name] for name in named if one.get(name) is not None}


async def _events(store: Store, run: str, options: ShareOptions) -> list[Row]:
    kinds = {**TEXT, **(CALLS if options.tool_results else {}), **(FILES if options.attachments else {})}
    events, last, size = list[Row](), 0, 0
    while (rows := await store.events(run, last, EVENTS_PAGE)) and size <= MOST:
        for row in joined_rows(rows):
            size += len(row.data)
            _add(events, row, kinds, options)
        last = rows[-1].seq
    calls = {event["call"] for event in events if event["type"] in CALLS}
    for event in events:
        if event["type"] == DELTA and event.get("call") not in calls:
            event.pop("call", None)  # of a call that is not shared: its block is shown as text
    return events


def _add(events: list[Row], row: EventRow, kinds: Mapping[str, Sequence[str]], options: ShareOptions) -> None:
    if row.type not in kinds and row.type not in (ADDED, TextReclassified.type):
        return
    data, event = json.loads(row.data), {"seq": row.seq, "type": row.type}
    if row.type == TextReclassified.type:
        _take_back(events, data["characters"])
    elif row.type == ADDED:
        files = [_attachment(one, options) for one in data.get("attachments") or ()]
        events.append(event | {"text": _words(data["text"], options), "attachments": files})
    elif row.type != "image" or options.tool_results or "call" not in data:
        events.append(event | {name: data[name] for name in kinds[row.type] if name in data})


def _take_back(events: list[Row], characters: int) -> None:
    """Cut text that turned out to be reasoning."""
    for event in reversed(events):
        if event["type"] == DELTA and characters > 0:
            left = max(0, len(event["text"]) - characters)
            characters -= len(event["text"]) - left
            event["text"] = event["text"][:left]


def _files(run: Row) -> Iterator[str]:
    asked = [run["message"] or {}, *run["events"]]
    for one in asked:
        found = [one, *(one.get("attachments") or ())]
        yield from (file["sha256"] for file in found if "sha256" in file)
