"""The approval prompt as text: complete and exact, with invisible characters made visible.

The arguments were written by a model, perhaps under injection: no character of them may be missing from the screen,
and none may pass for a line of ours. So each row of a value stands behind a gutter, long rows folded.
"""

from __future__ import annotations

import json
import re
import textwrap
import time
from collections.abc import Mapping
from typing import Any

from rich.cells import chop_cells
from rich.text import Text

from app.core.events import ApprovalRequired, ApprovalResolved
from app.policy.doors import DOORS
from app.policy.grants import is_command
from app.policy.patterns import ANY, STAR
from app.provenance.argument_spans import texts_in
from routes.texts import text
from routes.texts.exact import exact, exact_json, one_line
from tools.base.patterns import lazy_pattern
from tools.builtin.ask_user import OWN_QUESTION
from tools.mcp.names import is_question

GUTTER = "  │ "
NARROWEST = 12  # columns of a value's rows, however narrow the window
UNATTENDED = "No person is at the terminal of this conversation to approve it."  # the note of a denial, for the model
LONG_LINES = 12  # from here on the number of lines is shown: the first ones may have left the window


# Sentences of the server for any client, and those for people.
ASKS_FIRST = "This run asks first (approval: ask)."
NETWORK = lazy_pattern(r"It would run with network \(([^)]*)\), and could send them what the sandbox can read\.")
ANY_HOST = "any public host"


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
    values = {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in arguments.items()
    }
    return {name: value if is_command(name) else value.replace(ANY, STAR) for name, value in values.items()}


def reason_of(wanted: ApprovalRequired) -> str:
    """The reason why approval is required, in a person's words."""

    def network(found: re.Match[str]) -> str:
        hosts = text("approvals.any_host") if found[1] == ANY_HOST else found[1]
        return text("approvals.reason.network", hosts=hosts)

    return one_line(NETWORK.sub(network, wanted.reason.replace(ASKS_FIRST, text("approvals.reason.ask"))))


def question(wanted: ApprovalRequired, width: int | None) -> list[Text]:
    """The call, why it needs approval, and until when. `width` is the window's, None where nothing is folded."""
    silence = text("terminal.approval.waits")
    if wanted.expires_at is not None:
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(wanted.expires_at))
        silence = text("terminal.approval.expires", time=until)
    if wanted.name == OWN_QUESTION:
        return _own_question(wanted, silence, width)
    name = one_line(wanted.name)
    is_form = form_of(wanted) is not None
    asks = text("terminal.approval.form", name=name) if is_form else text("terminal.approval.asks", name=name)
    reason = _wrapped(f"{reason_of(wanted)} {silence}", width)
    values = _values(wanted.arguments, width)
    return [Text(f"? {asks}", "bold yellow"), *reason, *values, *origin_lines(wanted, width)]


OF_RESULT = "the result of "  # in the server's words for one
OWN_KINDS = ("person", "operator")
MOST_OF_PART = 200  # characters of a part that are shown again


def origin_lines(wanted: ApprovalRequired, width: int | None) -> list[Text]:
    """The parts of the arguments that come from somewhere, below the words for each source."""
    written = dict(texts_in(wanted.arguments)) if wanted.origins else {}
    found: dict[tuple[str, str], list[str]] = {}
    for span in wanted.origins or ():
        source, pointer = text(f"origins.from.{span['kind']}"), span["argument"]
        if span["place"].startswith(OF_RESULT):
            source = text("origins.result", source=source, name=one_line(span["place"].removeprefix(OF_RESULT)))
        source = text("origins.untrusted", source=source) if span["untrusted"] else source
        colour = "red" if span["untrusted"] else "blue" if span["kind"] in OWN_KINDS else "dim"
        part = written.get(pointer, "")[span["start"] : span["end"]]
        cut = f"{part[:MOST_OF_PART]}…" if len(part) > MOST_OF_PART else part
        found.setdefault((source, colour), []).append(one_line(f"{pointer[1:]}: {cut}"))
    lines = [Text(f"  {text('origins.title')}:", "bold")] if found else []
    for (source, colour), rows in found.items():
        lines.append(Text(f"  {source[:1].upper()}{source[1:]}:", colour))
        lines += [Text.assemble((GUTTER, "dim"), (piece, colour)) for row in rows for piece in _pieces(row, width)]
    return lines


def choices_of(wanted: ApprovalRequired) -> list[str]:
    """The choices that the tool ask_user gives; empty where a text is wanted."""
    match wanted.arguments:
        case {"schema": {"properties": {"answer": {"enum": [*choices]}}}}:
            return [choice for choice in choices if isinstance(choice, str)]
    return []


def _own_question(wanted: ApprovalRequired, silence: str, width: int | None) -> list[Text]:
    """A question of the model, with its choices numbered."""
    message = exact(str(wanted.arguments.get("message", ""))).split("\n")
    title = Text(f"? {text('terminal.approval.question')}", "bold yellow")
    choices = [f"{number}  {one_line(choice)}" for number, choice in enumerate(choices_of(wanted), start=1)]
    return [title, *_folded([*message, *choices], width), *_wrapped(silence, width)]


def _person(name: str) -> str:
    """The person who has decided; `local` is the only account of a server without tokens, the reader's own."""
    return text("by.you") if name == "local" else one_line(name)


def answer(settled: ApprovalResolved, name: str, width: int | None) -> list[Text]:
    """The outcome of the question, in one line; and the arguments, where a person changed them."""
    door = f" {text(f'approvals.door.{settled.door}')}" if settled.door in DOORS else ""
    facts = {"name": one_line(name), "by": f"{_person(settled.by)}{door}"}
    note = f": {one_line(settled.note)}" if settled.note else "."
    match settled.decision:
        case "approved":
            outcome = text("terminal.approval.approved", **facts)
            lasts = {"session": text("terminal.approval.session"), "always": text("terminal.approval.always")}
            scope = f" {lasts[settled.scope]}" if settled.scope in lasts else ""
            changed = f", {text('terminal.approval.changed')}" if settled.arguments is not None else ""
            return [Text(f"✓ {outcome}{scope}{changed}{note}", "green"), *_values(settled.arguments, width)]
        case "denied" if settled.note == UNATTENDED:
            return [Text(f"✗ {text('terminal.approval.unattended', **facts)}", "red")]
        case "denied":
            return [Text(f"✗ {text('terminal.approval.denied', **facts)}{note}", "red")]
        case "expired":
            return [Text(f"✗ {text('terminal.approval.expired', **facts)}", "red")]
        case "withdrawn":
            return [Text(f"■ {text('terminal.approval.withdrawn', **facts)}", "yellow")]
    return [Text(f"■ {text('terminal.approval.ended', **facts, state=one_line(settled.decision))}", "yellow")]


CHANGES = {
    "create": "terminal.preview.create",
    "replace": "terminal.preview.replace",
    "edit": "terminal.preview.edit",
    "fail": "terminal.preview.fail",
}
DIFF = {"+": "green", "-": "red", "@": "cyan"}


def preview_lines(preview: Mapping[str, Any], width: int | None) -> list[Text]:
    """The change that a call would make to a file, as a diff (GET /runs/{id}/approvals/{call}/preview)."""
    change, note = str(preview.get("change")), preview.get("note")
    if change not in CHANGES:
        return []
    title = text(CHANGES[change], path=one_line(str(preview.get("path"))))
    rows = exact(str(preview.get("diff") or "")).split("\n") if change != "create" else []
    lines = [Text(f"  {title}", "bold yellow"), *(_wrapped(one_line(str(note)), width) if note else ())]
    for row in rows:
        if row and not row.startswith(("--- ", "+++ ")):
            style = DIFF.get(row[0], "dim")
            lines += [Text.assemble((GUTTER, "dim"), (piece, style)) for piece in _pieces(row, width)]
    return lines


def _values(arguments: Mapping[str, Any] | None, width: int | None) -> list[Text]:
    if arguments is None:
        return []
    if not arguments:
        return [Text(f"  {text('terminal.approval.no_arguments')}")]
    lines: list[Text] = []
    for name, value in arguments.items():
        rows = exact(value if isinstance(value, str) else exact_json(value)).split("\n")
        size = f" ({text('terminal.lines', count=len(rows))})" if len(rows) >= LONG_LINES else ""
        lines.append(Text(f"  {one_line(name)}{size}:", "bold"))
        lines += _folded(rows, width)
    return lines


def _folded(rows: list[str], width: int | None) -> list[Text]:
    """Rows of a value behind the gutter."""
    return [Text(f"{GUTTER}{piece}") for row in rows for piece in _pieces(row, width)]


def _pieces(row: str, width: int | None) -> list[str]:
    row = row.expandtabs(4)
    if width is None or not row:
        return [row]
    return chop_cells(row, max(NARROWEST, width - len(GUTTER)))


def _wrapped(written: str, width: int | None) -> list[Text]:
    """A sentence of ours."""
    lines = [written] if width is None else textwrap.wrap(written, max(NARROWEST, width - 2))
    return [Text(f"  {line}", "yellow") for line in lines]
