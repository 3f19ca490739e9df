"""Command lines of agents: a row each, with the words that make it answer once, and what its output says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Output:
    """`texts` are the answers, `commands` those that the program ran for the model; None where it shows none."""

    texts: list[str] = field(default_factory=list)
    commands: list[str] | None = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Command:
    """`words` stand behind the program's name, which `dragoman connect NAME` prints; a prompt follows them.

    `unknown_model` is a part of what it shows then, if not the server's words. `fails` tells if an error is an exit
    code, too. `tool` is the scenario in which it changes a file.
    """

    name: str
    title: str
    environment: str
    words: str
    read: Callable[[str, Path], Output]
    unknown_model: str = "there is no 'no-such-model'"
    fails: bool = True
    tool: str = "shell"


def lines(written: str) -> Iterator[dict[str, Any]]:
    """The JSON objects among all lines."""
    yield from (json.loads(line) for line in written.splitlines() if line.startswith("{"))


def codex(written: str, work: Path) -> Output:
    ended = [line["item"] for line in lines(written) if line["type"] == "item.completed"]
    texts = [item["text"] for item in ended if item["type"] == "agent_message"]
    return Output(texts, [item["command"] for item in ended if item["type"] == "command_execution"])


def claude(written: str, work: Path) -> Output:
    output = Output([], commands := [])
    for line in lines(written):
        for block in line["message"]["content"] if line["type"] == "assistant" else []:
            if block["type"] == "text":
                output.texts.append(block["text"])
            if block["type"] == "tool_use":
                commands.append(block["input"]["command"])
    return output


def opencode(written: str, work: Path) -> Output:
    parts = [line["part"] for line in lines(written) if "part" in line]
    commands = [part["state"]["input"]["command"] for part in parts if part["type"] == "tool"]
    return Output([part["text"] for part in parts if part["type"] == "text"], commands)


def cline(written: str, work: Path) -> Output:
    events = [line["event"] for line in lines(written) if line["type"] == "agent_event"]
    ended = [event for event in events if event["type"] == "content_end" and event["contentType"] == "text"]
    begun = [event for event in events if event["type"] == "content_start" and event["contentType"] == "tool"]
    return Output([event["text"] for event in ended], [one for event in begun for one in event["input"]["commands"]])


def plain_text(written: str, work: Path) -> Output:
    return Output([written], None)


TURN = re.compile(r"^#### .*?$\n(.*?)^> ", re.MULTILINE | re.DOTALL)


def aider(written: str, work: Path) -> Output:
    """Its history: on the screen lines are wrapped."""
    history = work / ".aider.chat.history.md"
    return Output(TURN.findall(history.read_text()) if history.exists() else [], None)


COMMANDS: Sequence[Command] = (
    Command(
        "codex",
        "Codex",
        "commands",
        "exec --skip-git-repo-check --json --dangerously-bypass-approvals-and-sandbox",
        codex,
    ),
    Command(
        "claude",
        "Claude Code",
        "commands",
        "--allowedTools Bash --output-format stream-json --verbose -p",
        claude,
        "There's an issue with the selected model (no-such-model)",
    ),
    Command("opencode", "opencode", "commands", "run --format json", opencode),
    Command(
        "aider",
        "aider",
        "aider",
        "--no-git --no-check-update --no-analytics --yes-always --message",
        aider,
        fails=False,
        tool="edit",
    ),
    Command("cline", "Cline", "commands", "--json", cline),
    Command("continue", "Continue", "commands", "-p --auto", plain_text),
)


def script_of(printed: str, key: str, words: str) -> str:
    """The commands that `dragoman connect --write` prints, with a key and the words behind the program's name."""
    shown = [line for line in printed.replace("dgm_...", key).splitlines() if line and line[0] not in "#+-@ "]
    commands = [line for line in shown if not line.startswith("dragoman ")]
    return "\n".join([*commands[:-1], f'exec {commands[-1]} {words} "$1"'])
