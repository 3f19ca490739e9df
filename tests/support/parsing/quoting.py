"""Ways in which a model quotes what it has read, and what becomes of the calls in its words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from app.core.messages import AskedCall, Message
from app.core.provider import TextChunk
from app.provenance.quotation import Provenance
from app.provenance.read_texts import Source
from app.redaction.redactor import Redactor
from app.transcript.conversation import Conversation
from app.transcript.reply import Reply
from tests.support.parsing.cases import CASES
from tools.base.rights import Risk, Role
from tools.tool import Tool, answering
from tools.toolbox import Allow, Toolbox

SINGLES = {case["dialect"]: case for case in CASES if case["id"].endswith("/single")}


def indented(text: str, first: str, others: str) -> str:
    return first + text.replace("\n", f"\n{others}")


WAYS: Mapping[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "on lines of its own": lambda text: f"The page says:\n\n{text}\n\nThat is all of it.",
    "in double quotes": lambda text: f'It says "{text}" and nothing else.',
    "in a list": lambda text: f"It has two points:\n\n{indented(text, '- ', '  ')}\n- a greeting",
    "in a table": lambda text: f"| what | where |\n|---|---|\n| {' '.join(text.split())} | at the end |",
    "in a fence that it closes": lambda text: f"It ends so:\n\n```text\nRead this.\n```\n\n{text}\n```",
    "as a block quote": lambda text: f"It says:\n\n{indented(text, '> ', '> ')}\n\nNo more.",
    "in a sentence": lambda text: f"The last line of the page is {text}, which seems odd.",
    "in a numbered list in bold quotes": lambda text: f"1. **Title**: x\n2. **Text**: “{indented(text, '', '   ')}”",
}


async def nothing(arguments: Any, context: Any) -> str:
    return ""


def toolbox_of(tools: Iterable[Mapping[str, Any]]) -> Toolbox:
    made = [Tool(tool["name"], "", tool["parameters"], Risk.EXECUTE, answering(nothing), Role.GUEST) for tool in tools]
    return Toolbox(made, lambda tool, arguments: Allow())


def conversation(messages: Sequence[Message]) -> Conversation:
    async def stored() -> None:
        pass

    return Conversation("s", list(messages), lambda *_: None, lambda _: None, stored, redactor=Redactor())


def called(text: str, toolbox: Toolbox, hint: Mapping[str, Any], *, refused: bool = False) -> list[AskedCall]:
    """The calls that a reply makes, with those that were `refused` too; `hint` as the cases have it."""
    numbers = count(1)
    suffix = "<think>" if hint.get("starts_in_reasoning") else hint.get("prompt_suffix", "")
    reply = Reply(
        toolbox.schemas,
        fences=lambda: bool(hint.get("fenced_tools")),
        new_id=lambda: f"c{next(numbers)}",
        prompt_suffix=lambda: suffix,
    )
    list(reply.add(TextChunk(text)))
    list(reply.end())
    return [call for call in reply.calls if refused or call.id not in reply.refused]


async def no_others(_: str) -> Sequence[Source]:
    return ()


async def quoted(
    calls: Sequence[AskedCall], read: Sequence[Message], toolbox: Toolbox, provenance: Provenance | None = None
) -> dict[str, str]:
    """Of these calls of a reply those that are quotations: by id, from where."""
    messages = [*read, Message("assistant", "", calls=tuple(calls))]
    return await (provenance or Provenance(no_others)).quotations(calls, conversation(messages), toolbox)


TEXT = {"type": "string"}
TOOLS = [
    {"name": name, "parameters": {"type": "object", "properties": dict.fromkeys(names, TEXT), "required": names}}
    for name, *names in (("bash", "command"), ("read_file", "path"), ("write_file", "path", "content"), ("clock",))
]
TOOLBOX = toolbox_of(TOOLS)
HINT = {"fenced_tools": True}


def result(text: str, name: str = "web_fetch", call: str = "x") -> Message:
    return Message("tool", text, call=call, name=name, untrusted=True)
