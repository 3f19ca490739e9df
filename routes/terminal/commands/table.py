"""The commands of `dragoman chat`, a row each. What they are for stands in the texts, as `terminal.command.NAME`."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable

from msgspec import Struct
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.core.rules import ApprovalMode
from routes.terminal.attachments import paths_for
from routes.terminal.commands.conversation import Conversation
from routes.terminal.commands.prompts import use_prompt
from routes.terminal.commands.sessions import list_sessions, print_document, resume, rewind, start_new, start_temporary
from routes.terminal.commands.undo import show_changes, undo_last
from routes.terminal.event_client import step
from routes.terminal.rendering.figures import cost
from routes.terminal.view import printable
from routes.texts import text

Run = Callable[[Conversation, str], Awaitable[None]]
DEFAULT = "default"
MODES = (DEFAULT, *(mode.value for mode in ApprovalMode))


class Command(Struct, frozen=True):
    """`run` takes what is typed behind the name; None for a command that only a run has. `in_run`: during one, too."""

    name: str
    run: Run | None
    argument: str = ""
    in_run: bool = False


async def choose_model(talk: Conversation, argument: str) -> None:
    rows = (await talk.api.get("/v1/models"))["data"]
    names = talk.names["model"] = [str(row["id"]) for row in rows]
    if not argument:
        for number, name in enumerate(names, start=1):
            mark = "▸" if name == talk.choices.model else " "
            talk.say(f"{mark}{number:3}  {printable(name)}")
    elif argument == DEFAULT:
        talk.choices.model = None
    elif (chosen := _picked(argument, names)) is None:
        close = ", ".join(difflib.get_close_matches(argument, names, 3, 0.4)) or ", ".join(names[:3])
        talk.problem(text("terminal.model.unknown", name=argument, near=printable(close)))
        return
    else:
        talk.choices.model = chosen
    talk.say(text("terminal.model.now", name=talk.choices.model or text("terminal.default")), "dim")


def _picked(argument: str, names: list[str]) -> str | None:
    """The name of that number, the name itself, or the only one that holds it."""
    if argument.isdecimal():
        return names[int(argument) - 1] if 1 <= int(argument) <= len(names) else None
    if argument in names:
        return argument
    holding = [name for name in names if argument.casefold() in name.casefold()]
    return holding[0] if len(holding) == 1 else None


async def choose_approval(talk: Conversation, argument: str) -> None:
    if argument in MODES:
        talk.choices.approval = None if argument == DEFAULT else argument
    elif argument:
        talk.problem(text("terminal.approve.unknown", name=argument, modes=", ".join(MODES)))
        return
    table = Table.grid(padding=(0, 1))
    for mode in MODES:
        mark = "▸" if mode == (talk.choices.approval or DEFAULT) else " "
        table.add_row(mark, mode, text(f"terminal.approve.{mode}"))
    talk.terminal.print(table)


async def switch_plan(talk: Conversation, argument: str) -> None:
    talk.choices.mode = None if talk.choices.mode == "plan" else "plan"
    on = talk.choices.mode == "plan"
    talk.say(text("terminal.plan.on") if on else text("terminal.plan.off"), "dim")
    if on and argument:
        await talk.send(argument)


async def compact(talk: Conversation, _argument: str) -> None:
    if talk.choices.session is None:
        talk.problem(text("terminal.compact.nothing"))
        return
    model = {"model": talk.choices.model} if talk.choices.model else {}
    answer = await talk.api.post(f"/sessions/{step(talk.choices.session)}/compact", model)
    if summary := answer.get("summary"):
        count, before, after = summary["messages"], summary["before"], summary["after"]
        talk.say(text("terminal.compact.done", count=count, before=f"{before:,}", after=f"{after:,}"), "dim")
    else:
        talk.say(text("terminal.compact.waits"), "dim")


async def show_usage(talk: Conversation, _argument: str) -> None:
    usage = await talk.api.get("/usage")
    if talk.choices.session:
        spent = (await talk.api.get(f"/sessions/{talk.choices.session}"))["usage"]
        talk.say(text("terminal.usage.session", **_sums(spent)) + cost(spent | {"measured": True}))
    for row in usage.get("months", [])[:1]:
        talk.say(
            text("terminal.usage.month", month=row.get("month", ""), **_sums(row)) + cost(row | {"measured": True})
        )


def _sums(spent: dict[str, object]) -> dict[str, str]:
    def number(name: str) -> str:
        value = spent.get(name)
        return f"{value:,}" if isinstance(value, int | float) else "0"

    return {"read": number("prompt_tokens"), "written": number("completion_tokens")}


async def retry(talk: Conversation, _argument: str) -> None:
    if talk.last_message is None:
        talk.problem(text("terminal.retry.nothing"))
    else:
        await talk.send(talk.last_message)


async def show_help(talk: Conversation, _argument: str) -> None:
    table = Table.grid(padding=(0, 2))
    for row in ROWS:
        table.add_row(f"/{row.name} {row.argument}".rstrip(), text(f"terminal.command.{row.name}"))
    keys = Text(text("terminal.help.keys"), "dim")
    talk.terminal.print(Padding(Group(table, "", keys), (0, 0, 0, 2), expand=False))


async def leave(talk: Conversation, _argument: str) -> None:
    talk.left = True


ROWS = (
    Command("model", choose_model, "[NAME]", in_run=True),
    Command("approve", choose_approval, "[MODE]", in_run=True),
    Command("plan", switch_plan, "[MESSAGE]"),
    Command("sessions", list_sessions, "[WORDS]", in_run=True),
    Command("resume", resume, "[N]"),
    Command("new", start_new),
    Command("temporary", start_temporary, "[MESSAGE]"),
    Command("retry", retry),
    Command("rewind", rewind),
    Command("compact", compact),
    Command("changes", show_changes, "[FILE]"),
    Command("undo", undo_last),
    Command("document", print_document, "[TITLE]", in_run=True),
    Command("prompt", use_prompt, "[NAME]"),
    Command("usage", show_usage, in_run=True),
    Command("input", None, "[WORDS]", in_run=True),
    Command("stop", None, in_run=True),
    Command("help", show_help, in_run=True),
    Command("quit", leave),
)
OTHER_NAMES = {"cost": "usage", "exit": "quit", "clear": "new", "models": "model", "prompts": "prompt"}
COMMANDS = {row.name: row for row in ROWS}


def found(word: str) -> Command | None:
    return COMMANDS.get(OTHER_NAMES.get(word, word))


def near(word: str) -> str:
    """An error for a command that there is not, with those that were perhaps meant."""
    close = difflib.get_close_matches(word, COMMANDS, 3, 0.5) or ["help"]
    return text("terminal.command.unknown", name=f"/{word}", near=", ".join(f"/{name}" for name in close))


def completions(typed: str, names: dict[str, list[str]]) -> list[tuple[str, str]]:
    """The words that may end what is typed, and what they are for: commands, their arguments, paths of files."""
    word, space, argument = typed.partition(" ")
    if typed.startswith("/") and not space:
        return [(f"/{name}", text(f"terminal.command.{name}")) for name in COMMANDS if f"/{name}".startswith(word)]
    if typed.startswith("/") and "\n" not in typed:
        if word == "/approve":
            return [(mode, text(f"terminal.approve.{mode}")) for mode in MODES if mode.startswith(argument)]
        return [(one, "") for one in names.get(word.removeprefix("/"), []) if one.startswith(argument)]
    last = typed[max(typed.rfind(" "), typed.rfind("\n")) + 1 :]
    return [(path, "") for path in paths_for(last)] if last.startswith("@") else []
