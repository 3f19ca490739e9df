"""`/changes` and `/undo`: the last turn of the conversation that has changed files, shown, and undone."""

from __future__ import annotations

from collections.abc import Sequence

from routes.terminal.answers import Interrupted, Over
from routes.terminal.api import Json
from routes.terminal.commands.conversation import Conversation
from routes.terminal.event_client import step
from routes.terminal.view import printable
from routes.texts import text
from routes.texts.exact import one_line

MOST_TURNS = 16  # that are looked at, from the last one on
MOST_NAMED = 8  # paths, where there is none of that name
MOST_LINES = 200  # of diffs that are shown
UNDOABLE = frozenset({"kept", "undoing"})
STYLES = {"+": "green", "-": "red"}


async def undo_last(talk: Conversation, _argument: str) -> None:
    """Undo the last turn that has changed files, if the person confirms that. Raises ChatFailed."""
    changes = await _changes(talk, undoable=True)
    if changes is None:
        talk.say(text("terminal.undo.nothing"))
        return
    _show(talk, changes)
    question = text("terminal.undo.question", count=len(changes["files"]) + changes["more_files"])
    try:
        answer = await talk.terminal.read(f"{question} ")
    except (Interrupted, Over):
        return
    if answer.strip().lower() in ("y", "yes", "j", "ja"):
        await talk.api.post(f"/runs/{changes['run']}/undo")
        talk.say(text("terminal.undo.done"))


async def show_changes(talk: Conversation, argument: str) -> None:
    """Show what that turn has changed, or only the file of that path or name. Raises ChatFailed."""
    changes = await _changes(talk, undoable=False)
    if changes is None:
        talk.say(text("terminal.changes.nothing"))
        return
    if argument:
        named = {
            key: [one for one in changes[key] if _is_named(one["path"], argument)] for key in ("files", "left_out")
        }
        if not any(named.values()):
            paths = [one["path"] for key in named for one in changes[key]][:MOST_NAMED]
            talk.problem(text("terminal.changes.unknown", path=one_line(argument), near=one_line(", ".join(paths))))
            return
        changes |= named
    _show(talk, changes)


def _is_named(path: str, argument: str) -> bool:
    return path == argument or path.rpartition("/")[2] == argument


def _show(talk: Conversation, changes: Json) -> None:
    for line in lines_of(changes):
        talk.say(line, STYLES.get(line[:1], ""))


async def _changes(talk: Conversation, *, undoable: bool) -> Json | None:
    """Return the changes of the last turn that has changed files, or that can be undone."""
    session = talk.choices.session
    runs = (await talk.api.get(f"/sessions/{step(session)}"))["runs"] if session else []
    for run in reversed(runs[-MOST_TURNS:]):
        changes = await talk.api.get(f"/runs/{run['id']}/changes")
        if changes["files"] and (changes["state"] in UNDOABLE or not undoable):
            return changes
        if changes["left_out"] and not undoable:
            return changes
    return None


def lines_of(changes: Json) -> Sequence[str]:
    """Return the changes as lines: the files, with their diffs as long as these are short."""
    lines = list[str]()
    for one in changes["files"]:
        kind = "" if one["kind"] == "file" else f" {one['kind']}"
        lines += [f"{one['change']}{kind}: {one_line(one['path'])}", *one["diff"].splitlines()]
    lines += [text("terminal.undo.left_out", path=one_line(one["path"])) for one in changes["left_out"]]
    hidden = [text("terminal.left_out", count=len(lines) - MOST_LINES)] if len(lines) > MOST_LINES else []
    return [*map(printable, lines[:MOST_LINES]), *hidden]
