"""Checks of a trial: what its answer has to say, and what its scratch folder has to hold."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import Field

from app.core.strict_model import StrictModel
from app.replay.words import short
from tools.base.outcome import Result, ToolFailed
from tools.base.workspace import inside, regular_file
from tools.catalogue import TOOLS
from tools.tool import Context

BASH = next(tool for tool in TOOLS if tool.name == "bash")
MOST = 64
LONGEST = 200  # characters of a finding
MOST_BYTES = 1 << 24  # of a file that is compared
NO_FOLDER = "needs a scratch folder: send live"


class Checks(StrictModel):
    """`text`: parts of the answer; `json`: a value that the answer, as JSON, has; `files`: path -> content;
    `commands`: shell commands that end with 0 in the scratch folder."""

    text: list[str] = Field(default_factory=list, max_length=MOST)
    json_value: Any = Field(default=None, alias="json")
    files: dict[str, str] = Field(default_factory=dict, max_length=MOST)
    commands: list[str] = Field(default_factory=list, max_length=MOST)


class Checked(Struct, omit_defaults=True):
    """`check` is the check in words, `found` what there is where it failed."""

    check: str
    ok: bool
    found: str = ""


Refusal = Callable[[str], str]
"""Returns why a command must not be run; empty if it may be."""


async def checked(
    checks: Checks, answer: str, folder: Path | None, context: Context | None, refusal: Refusal
) -> list[Checked]:
    """Check an answer and a folder, in which commands run as those of `context`, unless there is a `refusal`."""
    found = [_said(part, answer) for part in checks.text]
    if checks.json_value is not None:
        found.append(_json(checks.json_value, answer))
    found += [_file(path, content, folder) for path, content in checks.files.items()]
    for command in checks.commands:
        found.append(await _command(command, context if folder else None, refusal))
    return found


def _said(part: str, answer: str) -> Checked:
    ok = part in answer
    return Checked(f"the answer contains {_short(part)}", ok, "" if ok else _short(answer))


def _json(wanted: object, answer: str) -> Checked:
    words = f"the answer, as JSON, has {_short(json.dumps(wanted))}"
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return Checked(words, ok=False, found=f"no JSON: {_short(answer)}")
    ok = has(value, wanted)
    return Checked(words, ok, "" if ok else _short(answer))


def has(value: object, wanted: object) -> bool:
    """Return True if a JSON value is the wanted one; an object may have further fields."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(name in value and has(value[name], one) for name, one in wanted.items())
    return value == wanted


def _file(path: str, content: str, folder: Path | None) -> Checked:
    words = f"{path} equals {_short(content)}"
    if folder is None:
        return Checked(words, ok=False, found=NO_FOLDER)
    try:
        with regular_file(folder, inside(folder, path)) as file, os.fdopen(os.dup(file), "rb") as opened:
            there = opened.read(MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ToolFailed) as error:
        return Checked(words, ok=False, found=str(error))
    return Checked(words, there == content, "" if there == content else _short(there))


async def _command(command: str, context: Context | None, refusal: Refusal) -> Checked:
    words = f"{_short(command)} exits 0"
    if context is None:
        return Checked(words, ok=False, found=NO_FOLDER)
    if reason := refusal(command):
        return Checked(words, ok=False, found=reason)
    try:
        async with aclosing(BASH.run({"command": command}, context)) as updates:
            async for update in updates:
                if isinstance(update, Result):
                    return Checked(words, update.ok, "" if update.ok else _short(update.text))
    except ToolFailed as failure:
        return Checked(words, ok=False, found=str(failure))
    return Checked(words, ok=False, found="no result")


def _short(text: str) -> str:
    return short(text, LONGEST)
