"""`/rewind`, also Esc Esc: go back to an earlier message, from which a branch of the conversation begins."""

from __future__ import annotations

from routes.terminal.commands.conversation import Conversation, Rewound
from routes.terminal.event_client import step
from routes.terminal.own_shell import without_ran
from routes.terminal.view import printable
from routes.texts import text

MOST = 500  # messages that are listed
ROW = 200  # characters of each


async def rewind(talk: Conversation, _argument: str) -> None:
    """Choose a message to stand at the prompt; what is sent next begins a branch before it. Raises ChatFailed."""
    session = talk.choices.session
    runs = []
    if session and not talk.choices.temporary:
        runs = (await talk.api.get(f"/sessions/{step(session)}/log?runs={MOST}&events=false"))["runs"][::-1]
    said = [(run["run"], without_ran(str(run["message"].get("text", "")))) for run in runs if run.get("message")]
    if session is None or not said:
        talk.problem(text("terminal.rewind.nothing"))
        return
    rows = [" ".join(printable(words)[:ROW].split()) or "-" for _, words in said]
    place = await talk.pick(text("terminal.rewind.prompt"), [text("terminal.rewind.now"), *rows])
    if place is None:
        return
    if place == 0:
        talk.rewound = None
        return
    run, words = said[place - 1]
    talk.rewound, talk.draft = Rewound(session, run), words
    talk.say(text("terminal.rewind.done", message=rows[place - 1]), "dim")
