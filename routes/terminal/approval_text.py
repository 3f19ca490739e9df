"""The approval prompt as text: complete and exact, with invisible characters made visible.

The arguments were written by a model, perhaps under injection: no character of them may be missing from the screen,
and none may pass for a line of ours. So each row of a value stands behind a gutter, long rows folded.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Mapping
from typing import Any

import regex
from rich.cells import chop_cells
from rich.text import Text

from app.core.events import ApprovalRequired, ApprovalResolved
from app.policy.grants import is_command
from app.policy.patterns import ANY, STAR
from tools.builtin.ask_user import OWN_QUESTION
from tools.mcp.names import is_question

GUTTER = "  │ "
NARROWEST = 12  # columns of a value's rows, however narrow the window
LONG_LINES = 12  # from here on the number of lines is shown: the first ones may have left the window
UNSEEN = regex.compile(r"(?![ \n\t])[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]")


def exact(text: str) -> str:
    """The text with every character that cannot be seen spelled out; spaces, tabs and line ends stay."""
    return UNSEEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def one_line(text: str) -> str:
    """`exact`, line ends and tabs spelled out, too."""
    return exact(text).replace("\n", "<U+000A>").replace("\t", "<U+0009>")


def exact_json(value: Any) -> str:
    """One line of JSON, to be changed by a person and read again: what cannot be seen is escaped."""
    return UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], json.dumps(value, ensure_ascii=False))


def form_of(wanted: ApprovalRequired) -> dict[str, Any] | None:
    """The fields of a form that an MCP server asks to be filled in, with what it proposes; None for a call."""
    if not is_question(wanted.name):
        return None
    schema = wanted.arguments.get("schema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict):
        return {}
    return {name: field.get("default", "") if isinstance(field, dict) else "" for name, field in fields.items()}


def literal_pattern(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The pattern of a grant that covers this very call only, for a person to widen."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in arguments.items()
    }
    return {name: text if is_command(name) else text.replace(ANY, STAR) for name, text in texts.items()}


def question(wanted: ApprovalRequired, width: int | None) -> list[Text]:
    """The call, why it needs approval, and until when. `width` is the window's, None where nothing is folded."""
    silence = "It waits until you answer."
    if wanted.expires_at is not None:
        until = time.strftime("%H:%M:%S on %d %b", time.localtime(wanted.expires_at))
        silence = f"Without an answer it is off at {until}."
    if wanted.name == OWN_QUESTION:
        return _own_question(wanted, silence, width)
    title = [f"? {one_line(wanted.name)} {'asks you.' if form_of(wanted) is not None else 'wants to run.'}"]
    reason = [f"  {line}" for line in _wrapped(f"{one_line(wanted.reason)} {silence}", width)]
    return [*_styled(title, "bold yellow"), *_styled(reason, "yellow"), *_values(wanted.arguments, width)]


def choices_of(wanted: ApprovalRequired) -> list[str]:
    """The choices that the tool ask_user gives; empty where a text is wanted."""
    match wanted.arguments:
        case {"schema": {"properties": {"answer": {"enum": [*choices]}}}}:
            return [choice for choice in choices if isinstance(choice, str)]
    return []


def _own_question(wanted: ApprovalRequired, silence: str, width: int | None) -> list[Text]:
    """A question of the model, with its choices numbered."""
    message = exact(str(wanted.arguments.get("message", ""))).split("\n")
    title = _styled(["? The assistant asks you."], "bold yellow")
    rows = [Text(f"{GUTTER}{piece}") for row in message for piece in _folded(row.expandtabs(4), width)]
    for number, choice in enumerate(choices_of(wanted), start=1):
        rows += [Text(f"{GUTTER}{piece}") for piece in _folded(f"{number}  {one_line(choice)}", width)]
    return [*title, *rows, *_styled([f"  {line}" for line in _wrapped(silence, width)], "yellow")]


def answer(settled: ApprovalResolved, name: str, width: int | None) -> list[Text]:
    """The outcome of the question, in one line; and the arguments, where a person changed them."""
    name, by = one_line(name), one_line(settled.by)
    note = f": {one_line(settled.note)}" if settled.note else "."
    match settled.decision:
        case "approved":
            scope = " for this session" if settled.scope == "session" else ""
            changed = ", with other arguments" if settled.arguments is not None else ""
            return [
                Text(f"✓ {name} was approved by {by}{scope}{changed}{note}", "green"),
                *_values(settled.arguments, width),
            ]
        case "denied":
            return [Text(f"✗ {name} was denied by {by}{note}", "red")]
        case "expired":
            return [Text(f"✗ {name} did not run: nobody answered in time.", "red")]
    return [Text(f"■ {name} did not run: the question was {one_line(settled.decision)} by {by}.", "yellow")]


def _values(arguments: Mapping[str, Any] | None, width: int | None) -> list[Text]:
    if arguments is None:
        return []
    if not arguments:
        return [Text("  without arguments")]
    lines: list[Text] = []
    for name, value in arguments.items():
        rows = exact(value if isinstance(value, str) else exact_json(value)).split("\n")
        size = f" ({len(rows)} lines)" if len(rows) >= LONG_LINES else ""
        lines.append(Text(f"  {one_line(name)}{size}:", "bold"))
        lines.extend(Text(f"{GUTTER}{piece}") for row in rows for piece in _folded(row.expandtabs(4), width))
    return lines


def _folded(row: str, width: int | None) -> list[str]:
    if width is None or not row:
        return [row]
    return chop_cells(row, max(NARROWEST, width - len(GUTTER)))


def _wrapped(text: str, width: int | None) -> list[str]:
    return [text] if width is None else textwrap.wrap(text, max(NARROWEST, width - 2))


def _styled(lines: list[str], style: str) -> list[Text]:
    return [Text(line, style) for line in lines]
