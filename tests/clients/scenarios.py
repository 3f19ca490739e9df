"""Replies of the tests' model: a row for each scenario that a message can name, from what the model has read so far."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.parsing.writers import Call

PLAIN = (
    'The harbour is calm: "no wind", 3 < 4 & 5 > 2,\n\n- caf\u00e9\n- \u6f22\u5b57 \u2713 \U0001f30a\n\n'
    "C:\\new\\table\ttabbed."
)
THOUGHT = "The visitor wants the weather.\nBetter to be brief."
LONG_TEXT = "\n".join(
    f'{number}. He wrote "wait", then \'go\'.\n\tC:\\new\\table {{"a": [1, 2]}} '
    "caf\u00e9 \u2713 \u6f22\u5b57 & &amp; ${x} `code`"
    for number in range(1, 25)
)
OSLO, LIMA = ("weather", {"city": "Oslo"}), ("weather", {"city": "Lima"})
NOTE = {"text": LONG_TEXT, "tags": ["two words", 'a "quote"', ""], "urgent": True, "size": 42}
CUT = "This answer ends before it"
BEFORE_FAILURE = "The first words came, and"
CONDENSED = "What was done: a command was run.\nCurrent state: fine.\nPending: nothing."
WAIT, REST = "One moment. ", "That was all."
EXAMPLE = "A model would write it so:\n\n````text\n%s\n````\n\nNothing was called."


@dataclass(frozen=True, slots=True)
class Read:
    """A request as the model reads it. `results` came since the message that names the scenario.

    `offered` has the schemas of the tools that the request offers natively; `mentions` tells if the request names a
    tool anywhere. `pictures` are the bytes of those in that message.
    """

    scenario: str
    results: Sequence[str]
    offered: Mapping[str, dict[str, Any]]
    mentions: Callable[[str], bool]
    pictures: Sequence[bytes]
    body: Mapping[str, Any]
    turns: Sequence[tuple[str, str]]
    job: str


@dataclass(frozen=True, slots=True)
class Reply:
    """`then` is what happens after it: the stream ends, fails, breaks, or goes on until the client leaves; or, before
    it, the model waits until twenty of these are under way.

    `example` are calls that the text shows without making them.
    """

    text: str = ""
    thought: str = ""
    calls: Sequence[Call] = ()
    example: Sequence[Call] = ()
    finish: str = "stop"
    then: str = "end"
    cut_call: bool = False
    usage: Mapping[str, int] = field(default_factory=lambda: {"prompt_tokens": 11, "completion_tokens": 7})


def results(read: Read) -> Reply:
    return Reply("Results: " + " | ".join(read.results))


def calling(*calls: Call, text: str = "", thought: str = "") -> Callable[[Read], Reply]:
    """Make these calls; with their results, answer with them."""

    def reply(read: Read) -> Reply:
        if not all(read.mentions(name) for name, _ in calls):
            return Reply("There is no such tool.")
        return results(read) if read.results else Reply(text, thought, calls)

    return reply


def three(read: Read) -> Reply:
    """Three calls, each made of the result before."""
    done = len(read.results)
    if done == 3:
        return results(read)
    before = int(read.results[-1]) if done else 1
    return Reply(calls=[("add", {"a": before, "b": 10**done})])


def pictures(read: Read) -> Reply:
    return Reply("Pictures: " + ", ".join(str(len(one)) for one in read.pictures))


def history(read: Read) -> Reply:
    return Reply("History: " + " / ".join(f"{role} {text[:12]}" for role, text in read.turns))


def parameters(read: Read) -> Reply:
    named = ("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "reasoning_effort")
    return Reply(json.dumps({name: read.body[name] for name in named if name in read.body}, sort_keys=True))


# The server's agent has a tool `bash` of its own: that of the client is preferred.
SHELLS = ("Bash", "shell", "shell_command", "exec_command", "execute_command", "run_commands", "local_shell", "bash")
COMMAND = "echo moored-$((40+2)) | tee moored.txt"
MOORED = "moored-42"
FILLERS: Mapping[str, Any] = {
    "string": "show a word",
    "boolean": False,
    "integer": 10_000,
    "number": 10_000,
    "array": [],
}


def slow(read: Read) -> Reply:
    """Words without end, or the rest of them for a run that goes on after its server's end."""
    begun = any(role == "assistant" and text.startswith(WAIT) for role, text in read.turns)
    return Reply(REST) if begun else Reply(WAIT, then="go on")


def shell(read: Read) -> Reply:
    """One command with whatever tool the client has for that; requests without one, such as for a title, get words."""
    name = next((name for name in SHELLS if name in read.offered), None)
    if name is None:
        return Reply("A word from the shell")
    if read.results:
        return Reply("The shell wrote: " + read.results[-1][-400:])
    schema = read.offered[name]
    arguments: dict[str, Any] = {}
    for key in schema.get("required", ["command"]):
        kinds = schema.get("properties", {}).get(key, {})
        is_command = key in ("command", "cmd", "commands")
        value: Any = COMMAND if is_command else FILLERS[kinds.get("type", "string")]
        if is_command and kinds.get("type") == "array":
            value = [COMMAND] if key == "commands" else ["bash", "-c", COMMAND]
        arguments[key] = value
    return Reply(calls=[(name, arguments)])


def mixed(read: Read) -> Reply:
    """One call of the server's own tool and one of the client's, in one reply."""
    if not read.results:
        return Reply(calls=[("list_files", {}), OSLO])
    theirs = [one for one in read.results if "degrees" in one]
    return Reply(f"{len(read.results)} results, one of them: {' | '.join(theirs)}")


def ask(read: Read) -> Reply:
    """A call that needs approval in every mode: git would run the file. A file a job: approval is for its state."""
    if not read.results:
        path = f".git/hooks/{hashlib.sha256(read.job.encode()).hexdigest()[:12]}"
        return Reply(calls=[("write_file", {"path": path, "content": "true\n"})])
    return Reply("It was not run." if "not run" in read.results[-1] else "It is written.")


def condensed(read: Read) -> Reply:
    """A long turn, whose beginning the client has summarised after its first command."""
    said = [text for _, text in read.turns]
    if said[-1].startswith("Stop here."):
        return Reply(CONDENSED)
    if any(CONDENSED in text for text in said):
        return Reply("It goes on behind the notes.")
    return replace(shell(read), usage={"prompt_tokens": 90_000, "completion_tokens": 7})


SCENARIOS: Mapping[str, Callable[[Read], Reply]] = {
    "plain": lambda read: Reply(PLAIN),
    "one": calling(OSLO),
    "two": calling(OSLO, LIMA),
    "three": three,
    "words": calling(OSLO, text="Let me look."),
    "quoted": calling(("note", NOTE)),
    "example": lambda read: Reply(EXAMPLE, example=[OSLO]),
    "thoughts": lambda read: Reply(PLAIN, THOUGHT),
    "considered": calling(OSLO, thought=THOUGHT),
    "length": lambda read: Reply(CUT, finish="length"),
    "cut-call": lambda read: Reply(CUT, calls=[("note", NOTE)], finish="length", cut_call=True),
    "failure": lambda read: Reply(BEFORE_FAILURE, then="fail"),
    "break": lambda read: Reply(BEFORE_FAILURE, then="break"),
    "slow": slow,
    "image": pictures,
    "history": history,
    "together": lambda read: Reply("All are here.", then="together"),
    "parameters": parameters,
    "undeclared": calling(("weather_report", {"city": "Oslo"})),
    "shell": shell,
    "condensed": condensed,
    "edit": lambda read: Reply(f"So it is noted.\n\nmoored.txt\n```\n{MOORED}\n```\n"),
    "mixed": mixed,
    "own": lambda read: results(read) if read.results else Reply(calls=[("list_files", {})]),
    "ask": ask,
}
