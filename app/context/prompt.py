"""The system prompt: named pieces, each with its budget, joined in one place.

The text is the same in every round of a day, so that it stays in the prefix cache of the model's server: it contains
no time, and the date comes last. (Each message ends with the time, see `app.core.clock`.)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.config.secret_spec import COMMAND_TOOLS
from app.context.persona import MOST, Persona
from app.context.project_files import MOST as MOST_PROJECT
from app.context.run_rules import MOST as MOST_RULES
from app.context.server_notes import MOST as MOST_NOTES
from app.core import data_delimiters
from app.core.clock import Clock
from app.core.messages import AskedCall, Message
from app.core.profile_spec import MOST_PROMPT
from app.core.provider import CallForm
from parsing import Arguments
from parsing.dialects import FENCED
from parsing.fences import RULE
from tools.tool import READ_SKILL, Tool, ToolList

IDENTITY = "You are dragoman, an assistant with tools."
PLAIN_IDENTITY = "You are dragoman, a helpful assistant."
ABOUT = "About the person you talk to:\n"
PLAN_FIRST = (
    "Plan first: until the person has accepted your plan, only reading tools can be used. Find out what you need to "
    "know, then call submit_plan with the steps. Without that tool, answer with the plan."
)
READ_ONLY = "This conversation is read-only: you can look at things, but change nothing."
PROJECT = "The person has accepted these instructions of the project (AGENTS.md):\n"
MOST_OVERRIDE = 400_000  # programs send long instructions
SHARED = 64  # openings that are kept, the last used
# piece -> its maximum length in characters, in the order of the prompt
BUDGETS = {
    "override": MOST_OVERRIDE,
    "identity": MOST,
    "user": len(ABOUT) + MOST,
    "profile": 2 * MOST_PROMPT + 2,  # that of a token, and one that is chosen
    "project": len(PROJECT) + MOST_PROJECT,
    "skills": 16_000 + MOST_NOTES,
    "tools": 100_000,
    "teaching": 1_000,
    "notes": MOST_NOTES,
    "secrets": 8_000,
    "workspace": 5_000,  # PATH_MAX of Linux and the sentence around it
    "rules": MOST_RULES,
    "guards": 1_000,
    "date": 100,
}

NO_PERSONA = Persona()


class Override(Struct, frozen=True):
    """Text that a run's request prepends to the prompt, or that replaces the identity and the user's profile."""

    text: str
    replaces: bool = False


class Example(Struct, frozen=True, kw_only=True):
    """One worked turn: a request, the call that serves it, the tool's result, and the answer."""

    request: str
    tool: str
    arguments: Arguments
    body: str
    result: str
    answer: str
    code: str  # of the result's delimiters: fixed, so that the prompt is the same after a restart

    def messages(self, teaching: Teaching) -> Iterator[Message]:
        call = AskedCall(f"example-{self.tool}", self.tool, self.arguments, teaching.dialect)
        yield Message("user", self.request)
        yield Message("assistant", teaching.write(self), calls=(call,))
        yield Message("tool", self.result, call=call.id, name=call.name, code=self.code)
        yield Message("assistant", self.answer)


# Small models copy the form and tone of examples, above all of the last one: hence harmless commands, results of one
# line, and an answer that is true of any result.
EXAMPLES = (
    Example(
        request="Write a file plan.txt with the text Call Ann.",
        tool="write_file",
        arguments={"path": "plan.txt", "content": "Call Ann."},
        body="plan.txt\nCall Ann.",
        result="Created plan.txt (1 line).",
        answer="Done: plan.txt has the text Call Ann.",
        code="vkwbqzhm",
    ),
    Example(
        request="Show the files.",
        tool="bash",
        arguments={"command": "ls"},
        body="ls",
        result="guide.md",
        answer="The result is: guide.md",
        code="jxtrgpfy",
    ),
)


class Teaching(Struct, frozen=True):
    """The lesson in one form of calls. `dialect` is the name of its row in `parsing.dialects`."""

    rule: str
    dialect: str
    write: Callable[[Example], str]


def tagged(example: Example) -> str:
    call = json.dumps({"name": example.tool, "arguments": example.arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def fenced(example: Example) -> str:
    return f"```{example.tool}\n{example.body}\n```"


# `<tool_call>` is the form that most open models were trained on, and that their servers turn into native calls.
TEACHINGS: Mapping[CallForm, Teaching] = {
    CallForm.TAGGED: Teaching(
        "write <tool_call>, a JSON object with the tool's name and its arguments, and </tool_call>.", "hermes", tagged
    ),
    CallForm.FENCED: Teaching(RULE, FENCED.name, fenced),
}


def opening(
    tools: Sequence[Tool],
    *,
    call_form: CallForm,
    workspace: Path | None,
    today: date,
    persona: Persona = NO_PERSONA,
    override: Override | None = None,
    guards: str = "",
    profile: str = "",
    project: str = "",
    skills: str = "",
    notes: str = "",
    secrets: str = "",
    rules: str = "",
) -> tuple[Message, ...]:
    """Return the messages that every request begins with: the system prompt, then worked examples if calls are taught.

    The examples are separate turns because small models follow turns, not descriptions of turns. The prompt lists
    `tools` and teaches the `call_form` only if the model may have no native calls. `workspace` is the folder they work
    in. `guards` is a line of this run alone. `profile` are the instructions of its profiles, `project` the accepted
    ones of the workspace, `skills` the lines of the skills, `notes` those of MCP servers on their tools, `secrets` the
    variables that commands may have, `rules` the sections of `run_rules`.
    """
    teaching = TEACHINGS.get(call_form)
    replaced = override is not None and override.replaces
    identity = persona.soul or (IDENTITY if tools else PLAIN_IDENTITY)
    pieces = {
        "override": override.text if override else "",
        "identity": "" if replaced else identity,
        "user": f"{ABOUT}{persona.user}" if persona.user and not replaced else "",
        "profile": profile,
        "project": f"{PROJECT}{project}" if project else "",
        "skills": skills if any(tool.name == READ_SKILL for tool in tools) else "",
        "tools": tool_list(tools) if teaching else "",
        "teaching": how_to_use(teaching) if tools else "",
        "notes": notes,
        "secrets": secrets if any(tool.name in COMMAND_TOOLS for tool in tools) else "",
        "workspace": f"The tools work in the folder {workspace}." if workspace and tools else "",
        "rules": rules,
        "guards": guards,
        "date": f"Today is {today:%A, %Y-%m-%d}.",
    }
    system = Message("system", "\n\n".join(within(BUDGETS[name], text) for name, text in pieces.items() if text))
    return system, *(worked_examples(tools, teaching) if teaching else ())


shared_opening = lru_cache(SHARED)(opening)
"""The same for a ToolList: runs that begin alike share the messages, and what is kept for these."""


class Prompt:
    """The opening messages of one run's requests, cached while they stay the same: each round needs them repeatedly."""

    __slots__ = ("_cache_key", "_call_form", "_clock", "_messages", "_write")

    def __init__(
        self, clock: Clock, call_form: Callable[[], CallForm], write: Callable[..., Sequence[Message]]
    ) -> None:
        self._clock = clock
        self._call_form = call_form
        self._write = write
        self._cache_key: object = None
        self._messages: Sequence[Message] = ()

    def __call__(self, tools: Sequence[Tool]) -> Sequence[Message]:
        tools = tools if isinstance(tools, ToolList) else ToolList(tools)
        call_form = self._call_form()
        today = self._clock.today()
        key = today, call_form, tools
        if key != self._cache_key:
            self._messages = self._write(tools, call_form=call_form, today=today)
            self._cache_key = key
        return self._messages


def within(budget: int, text: str) -> str:
    """Return the text, cut to the budget with a line that says so."""
    if len(text) <= budget:
        return text
    marker = f"\n[The rest is left out: there is room for {budget:,} characters.]"
    return f"{text[: budget - len(marker)]}{marker}"


def worked_examples(tools: Sequence[Tool], teaching: Teaching) -> list[Message]:
    """Return the examples of the offered tools as turns of a conversation."""
    offered = {tool.name for tool in tools}
    return [message for example in EXAMPLES if example.tool in offered for message in example.messages(teaching)]


def how_to_use(teaching: Teaching | None) -> str:
    """Return the rule for calling tools, if it is taught, and the rule for their results.

    It is one paragraph: with a second one the embedded model answers fewer requests.
    """
    if teaching is None:
        return data_delimiters.RULE
    then = "The result comes in the next message; then answer in plain text."
    return f"To use a tool, {teaching.rule} {then} {data_delimiters.RULE}"


def tool_list(tools: Sequence[Tool]) -> str:
    """Return a line per tool; empty without tools."""
    lines = [f"- {tool.name}({signature(tool.parameters)}): {tool.description}" for tool in tools]
    return "\n".join(["Tools:", *lines]) if lines else ""


def signature(schema: Mapping[str, Any]) -> str:
    """Return the arguments' names, required ones first, optional ones with a question mark: `path, offset?`."""
    required: list[str] = schema.get("required", [])
    optional = [f"{name}?" for name in schema.get("properties", {}) if name not in required]
    return ", ".join([*required, *optional])
