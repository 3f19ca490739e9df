"""A run's events as updates of an editor's session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from app.core import events
from routes.terminal.view import for_people, printable
from routes.texts import text
from routes.texts.exact import fenced, one_line

Json = dict[str, Any]
LONGEST_TITLE = 200
STATES = {"active": "in_progress", "done": "completed"}
# Other reasons of `run.finished` end a turn as an answer does. None is a refusal: editors would forget such a turn.
STOP_REASONS = {
    "cancelled": "cancelled",
    **dict.fromkeys(("round_limit", "call_limit", "deadline"), "max_turn_requests"),
    **dict.fromkeys(("token_limit", "budget"), "max_tokens"),
}
SAYS_ITSELF = frozenset({"answered", "client_tools", "cancelled"})
# The tools of each kind, with the argument that the title of a call shows.
KINDS: Mapping[str, Mapping[str, str]] = {
    "execute": {"bash": "command", "python": "code", "editor_terminal": "command"},
    "read": {"read_file": "path", "editor_read_file": "path", "read_result": "call", "read_skill": "name"},
    "edit": {"write_file": "path", "edit_file": "path", "editor_write_file": "path", "create_document": "title"},
    "search": {"list_files": "path", "search_files": "query", "recall_history": "query", "recall_memory": "query"},
    "fetch": {"web_fetch": "url", "web_search": "query"},
    "think": {"update_plan": "", "delegate": "task", "ask_model": "question"},
    "switch_mode": {"submit_plan": ""},
}
LOOKS = {name: (kind, shows) for kind, tools in KINDS.items() for name, shows in tools.items()}


def chunk(speaker: str, content: str | Json) -> Json:
    return {"sessionUpdate": f"{speaker}_chunk", "content": block(content) if isinstance(content, str) else content}


def block(words: str) -> Json:
    return {"type": "text", "text": words}


def shown_text(written: str, before: str = "") -> Json:
    """A text of a tool as content of its call."""
    return {"type": "content", "content": block(f"{before}{fenced(written)}")}


class Updates:
    """The updates of one run. `base` is the folder of its tools, `windows` has the models' context windows.

    `pictures` are the bytes of pictures by their hashes, as base64.
    """

    def __init__(self, base: Path, windows: Mapping[str, int | None]) -> None:
        self.pictures: MutableMapping[str, str] = {}
        self._base = base
        self._windows = windows
        self._run = self._model = ""
        self._calls: dict[str, Json] = {}  # as the editor knows them

    def of(self, event: events.AgentEvent) -> Iterator[Json]:
        match event:
            case events.RunStarted(run, _, model):
                self._run, self._model = run, model.rpartition("/")[2]
            case events.TextDelta(words, None):  # one with a call is a block of code that is shown as that call
                yield chunk("agent_message", words)
            case events.ReasoningDelta(words):
                yield chunk("agent_thought", words)
            case events.MessageAdded(words):
                yield chunk("user_message", words)
            case events.Notice(_, words) | events.ToolRejected(words, None):
                yield chunk("agent_thought", f"\n{printable(words)}\n")
            case events.PlanUpdated(steps):
                rows = [(step["step"], STATES.get(step["state"], "pending")) for step in steps]
                entries = [{"content": words, "status": state, "priority": "medium"} for words, state in rows]
                yield {"sessionUpdate": "plan", "entries": entries}
            case events.Usage(read, written) if window := self._windows.get(self._model):
                yield {"sessionUpdate": "usage_update", "used": read + written, "size": window}
            case events.ToolDelta(call, _, name) if call not in self._calls:
                yield self._call(call, "pending", name)
            case events.ApprovalRequired(call, name, arguments):
                yield self._call(call, "pending", name, arguments)
            case events.ApprovalResolved(call, decision):
                yield self._call(call, "in_progress" if decision == "approved" else "failed")
            case events.ToolStarted(call, name, arguments) | events.ToolHanded(call, name, arguments):
                yield self._call(call, "in_progress", name, arguments)
            case events.ToolProgress(call, _, tail):
                yield self._call(call, "in_progress", content=[shown_text("\n".join(map(printable, tail)))])
            case events.ToolTask(call, _, _, "working" | "input_required" as state, message=words):
                yield self._call(call, "in_progress", content=[shown_text(printable(words or state))])
            case events.ToolFinished(call, name, ok, words):
                content = self._calls.get(call, {}).get("content", [])
                if not (ok and content and content[0]["type"] == "diff"):  # which says all of a change that was made
                    content = [*filter(_stays, content), shown_text(printable(for_people(words, event.advice)))]
                yield self._call(call, "completed" if ok else "failed", name, content=content)
            case events.ToolRejected(words, str(call), name):
                yield self._call(call, "failed", name, content=[shown_text(printable(for_people(words, event.advice)))])
            case events.FileChanged(call, path, change) if call in self._calls and change != "deleted":
                yield self._call(call, locations=self._located(call, path))
            case events.ImageReturned(sha256, kind, call=call) if data := self.pictures.pop(sha256, None):
                picture = {"type": "image", "mimeType": kind, "data": data}
                before = self._calls.get(call or "", {}).get("content", [])
                content = [*before, {"type": "content", "content": picture}]
                yield self._call(call, content=content) if call else chunk("agent_message", picture)
            case events.RunFinished(reason):
                yield from self._end()
                if reason not in SAYS_ITSELF:
                    yield chunk("agent_message", f"\n\n{text(f'run.ended.{reason}')}")
            case events.RunFailed(_, words):
                yield from self._end()
                yield chunk("agent_message", f"\n\n{printable(words)}")

    def terminal(self, call: str, terminal: str) -> Json:
        """The call with a terminal of the editor's in it."""
        return self._call(call, content=[{"type": "terminal", "terminalId": terminal}])

    def described(self, call: str, name: str, arguments: Mapping[str, Any]) -> Json:
        """The fields of a call whose arguments are known: title, kind, place, and the diff that it would make."""
        kind, shows = LOOKS.get(name, ("other", ""))
        shown = str(arguments.get(shows) or "").strip().partition("\n")[0]
        fields: Json = {
            "toolCallId": f"{self._run}:{call}",
            "title": one_line(f"{name} {shown}".strip()[:LONGEST_TITLE]),
        }
        fields |= {"kind": kind, "rawInput": dict(arguments)}
        if isinstance(path := arguments.get("path"), str):
            fields["locations"] = self._located(call, path)
            names = ("old", "new") if name == "edit_file" else ("", "content")
            old, new = (one if isinstance(one := arguments.get(key), str) else None for key in names)
            if kind == "edit" and new is not None:
                fields["content"] = [{"type": "diff", "path": str(self._base / path), "newText": new, "oldText": old}]
        return fields

    def _call(
        self,
        call: str,
        status: str | None = None,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> Json:
        """The call begun, or what is new of it. Ids are unique within a run, those that an editor sees in a session."""
        known = self._calls.get(call)
        fields: Json = {"toolCallId": f"{self._run}:{call}"} | ({"status": status} if status else {}) | changes
        if arguments is not None:
            fields |= self.described(call, name or "", arguments)
        elif known is None:
            fields["title"] = one_line(name or text("terminal.call.unnamed"))
        self._calls[call] = (known or {}) | fields
        return {"sessionUpdate": "tool_call" if known is None else "tool_call_update"} | fields

    def _end(self) -> Iterator[Json]:
        """End the calls whose end was not sent, such as those of a run that was stopped."""
        for call, known in [*self._calls.items()]:
            if known.get("status") in ("pending", "in_progress"):
                yield self._call(call, "failed" if known["status"] == "pending" else "completed")

    def _located(self, call: str, path: str) -> list[Json]:
        places = self._calls.get(call, {}).get("locations", [])
        place = {"path": str(self._base / path)}
        return places if place in places else [*places, place]


def _stays(content: Json) -> bool:
    """Return whether it is more than the tail of a running command."""
    return bool(content["type"] != "content" or content["content"]["type"] == "image")
