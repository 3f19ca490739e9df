"""What a model is told before the conversation begins: named pieces, each with its budget, joined in one place.

The text is the same in every round of a day, so that the model's server finds it in its prefix cache: there is no clock
in it, and the date comes last. (The time stands at the end of each message, see `app.core.clock`.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from app.context.persona import MOST, Persona
from app.core import data_delimiters
from app.core.clock import Clock
from app.core.messages import AskedCall, Message
from parsing import Arguments
from parsing.fences import RULE
from tools.tool import Tool

IDENTITY = "You are dragoman, an assistant with tools."
PLAIN_IDENTITY = "You are dragoman, a helpful assistant."
TEACHING = f"To use a tool, {RULE} The result comes in the next message; then answer in plain text."
FENCED = "fence_tool_tag"  # the dialect of the worked examples
ABOUT = "About the person you talk to:\n"
MOST_OVERRIDE = 16_000
# piece -> characters it may have, in the order of the prompt. Budgets of our own sentences are there to be noticed.
BUDGETS = {
    "override": MOST_OVERRIDE,
    "identity": MOST,
    "user": len(ABOUT) + MOST,
    "tools": 100_000,
    "teaching": 1_000,
    "workspace": 5_000,  # the longest path that Linux knows, and the words around it
    "guards": 500,
    "date": 100,
}

NO_PERSONA = Persona()


@dataclass(frozen=True, slots=True)
class Override:
    """What a run's request puts before the prompt, or in place of who the assistant is and whom it talks to."""

    text: str
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """One worked turn: a request, the call that serves it, what the tool says, and the answer."""

    request: str
    tool: str
    arguments: Arguments
    body: str
    result: str
    answer: str
    code: str  # of the result's frame: fixed, so that the prompt is the same after a restart

    def messages(self) -> Iterator[Message]:
        call = AskedCall(f"example-{self.tool}", self.tool, self.arguments, FENCED)
        yield Message("user", self.request)
        yield Message("assistant", f"```{self.tool}\n{self.body}\n```", calls=(call,))
        yield Message("tool", self.result, call=call.id, name=call.name, code=self.code)
        yield Message("assistant", self.answer)


# Small models copy what they have seen, form and tone, the last one most: hence commands that do no harm, results of
# one line, and an answer that is true of any result.
EXAMPLES = (
    Example(
        "Write a file plan.txt with the text Call Ann.",
        "write_file",
        {"path": "plan.txt", "content": "Call Ann."},
        "plan.txt\nCall Ann.",
        "Created plan.txt (1 line).",
        "Done: plan.txt has the text Call Ann.",
        "vkwbqzhm",
    ),
    Example("Show the files.", "bash", {"command": "ls"}, "ls", "guide.md", "The result is: guide.md", "jxtrgpfy"),
)


def opening(
    tools: Sequence[Tool],
    *,
    teach_fences: bool,
    workspace: Path | None,
    now: datetime,
    persona: Persona = NO_PERSONA,
    override: Override | None = None,
    guards: str = "",
) -> list[Message]:
    """The messages that every request begins with: the system prompt, then worked examples where fences are taught.

    The examples are turns of their own because small models follow turns, not descriptions of turns. Only `tools` are
    mentioned, and only where the model has no native calls (`teach_fences`). `workspace` is the folder they work in.
    Of `now` the date alone is used, as written in its own time zone. `guards` is a line of this run alone.
    """
    replaced = override is not None and override.replaces
    identity = persona.soul or (IDENTITY if tools else PLAIN_IDENTITY)
    pieces = {
        "override": override.text if override else "",
        "identity": "" if replaced else identity,
        "user": f"{ABOUT}{persona.user}" if persona.user and not replaced else "",
        "tools": tool_list(tools) if teach_fences else "",
        "teaching": how_to_use(teach_fences=teach_fences) if tools else "",
        "workspace": f"The tools work in the folder {workspace}." if workspace and tools else "",
        "guards": guards,
        "date": f"Today is {now:%A, %Y-%m-%d}.",
    }
    system = Message("system", "\n\n".join(within(BUDGETS[name], text) for name, text in pieces.items() if text))
    return [system, *(worked_examples(tools) if teach_fences else ())]


class Prompt:
    """The opening of one run's requests, written anew only when it would be another: each round asks several times."""

    def __init__(self, clock: Clock, teach_fences: Callable[[], bool], write: Callable[..., list[Message]]) -> None:
        self._clock = clock
        self._teach_fences = teach_fences
        self._write = write
        self._written_for: object = None
        self._messages: list[Message] = []

    def __call__(self, tools: Sequence[Tool]) -> Sequence[Message]:
        teach_fences = self._teach_fences()
        wanted = time.time() // 60, teach_fences, tuple(tools)  # no day begins within a minute
        if wanted != self._written_for:
            self._messages = self._write(tools, teach_fences=teach_fences, now=self._clock.now())
            self._written_for = wanted
        return self._messages


def within(budget: int, text: str) -> str:
    """The text, or as much of it as there is room for, and a line that says so."""
    if len(text) <= budget:
        return text
    marker = f"\n[The rest is left out: there is room for {budget:,} characters.]"
    return f"{text[: budget - len(marker)]}{marker}"


def worked_examples(tools: Sequence[Tool]) -> list[Message]:
    """The examples of tools that are offered, as turns of a conversation."""
    offered = {tool.name for tool in tools}
    return [message for example in EXAMPLES if example.tool in offered for message in example.messages()]


def how_to_use(*, teach_fences: bool) -> str:
    """How to call tools, where that is to be taught, and what to make of their results.

    One paragraph: after a paragraph more, the embedded model answers fewer requests.
    """
    return f"{TEACHING} {data_delimiters.RULE}" if teach_fences else data_delimiters.RULE


def tool_list(tools: Sequence[Tool]) -> str:
    """A line per tool; empty without tools."""
    lines = [f"- {tool.name}({signature(tool.parameters)}): {tool.description}" for tool in tools]
    return "\n".join(["Tools:", *lines]) if lines else ""


def signature(schema: Mapping[str, Any]) -> str:
    """The names of the arguments, the required ones first and the others with a question mark: `path, offset?`."""
    required: list[str] = schema.get("required", [])
    optional = [f"{name}?" for name in schema.get("properties", {}) if name not in required]
    return ", ".join([*required, *optional])
