"""The change that a waiting `write_file` or `edit_file` would make, as the person who decides on it sees it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from app.workspace.private_files import private_reason
from parsing import Arguments
from tools.base.diffs import unified_diff
from tools.base.outcome import ToolFailed
from tools.base.replacement import replace_once
from tools.base.workspace import ReadFile
from tools.builtin.files import EDIT_BYTES, state_of_file

DIFF_CHARACTERS = 100_000
NOT_TEXT = "What is there is not text, so there is nothing to compare."
TOO_LONG = f"What is there is longer than {EDIT_BYTES:,} bytes, too long to compare."
NO_RIGHT = "You may not use read_file, so what is there is not shown."


class WritePreview(Struct, frozen=True):
    """`change` is `create`, `replace`, `edit`, or `fail`: the call could not be carried out as things are.

    `size`, `lines` and `modified` are those of the file that is there; `lines` and `diff` are None where `note` says
    why. `binding` is the state that was compared, as an approval is bound to one.
    """

    path: str
    change: Literal["create", "replace", "edit", "fail"]
    binding: str
    size: int | None = None
    lines: int | None = None
    modified: float | None = None
    diff: str | None = None
    note: str = ""


class _There(Struct, frozen=True):
    """The file that is there. `text` is None where `note` says why."""

    binding: str
    size: int
    modified: float
    text: str | None
    note: str = ""


def preview_of(name: str, arguments: Arguments, workspace: Path, *, may_read: bool) -> WritePreview | None:
    """The change of a call, compared with the file as it is now; None for other tools. Blocks."""
    after = CHANGES.get(name)
    if after is None:
        return None
    path = str(arguments.get("path", ""))
    try:
        file = ReadFile(workspace, path)
        there = _there(file, workspace, may_read=may_read)
        return after(arguments, "/".join(file.parts), there, state_of_file(arguments, workspace))
    except (ToolFailed, OSError, KeyError, TypeError, AttributeError) as failure:  # unfit arguments among them
        return WritePreview(path, "fail", state_of_file({"path": path}, workspace), note=str(failure))


def _there(path: ReadFile, workspace: Path, *, may_read: bool) -> _There | None:
    try:
        with path.opened() as file:
            found = os.fstat(file.fileno())
            if found.st_size > EDIT_BYTES:
                binding = state_of_file({"path": str(path)}, workspace)
                return _There(binding, found.st_size, found.st_mtime, None, TOO_LONG)
            data = file.read(EDIT_BYTES + 1)
    except ToolFailed as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    binding = hashlib.sha256(data).hexdigest()
    text, note = _readable(data, path.parts, may_read=may_read)
    return _There(binding, len(data), found.st_mtime, text, note)


def _readable(data: bytes, parts: tuple[str, ...], *, may_read: bool) -> tuple[str | None, str]:
    if not may_read:
        return None, NO_RIGHT
    if reason := private_reason(parts):
        return None, f"What is there is not shown: {reason}."
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None, NOT_TEXT
    return (None, NOT_TEXT) if "\0" in text else (text, "")


def _written(arguments: Arguments, shown: str, there: _There | None, state: str) -> WritePreview:
    if there is None:
        return WritePreview(shown, "create", state)
    return _compared("replace", shown, there, str(arguments["content"]))


def _edited(arguments: Arguments, shown: str, there: _There | None, state: str) -> WritePreview:
    if there is None:
        return WritePreview(shown, "fail", state, note=f"{shown} does not exist.")
    if there.text is None:
        return _compared("edit", shown, there, "")
    after = replace_once(there.text, arguments["old"], arguments["new"], shown, "write the whole file").text
    return _compared("edit", shown, there, after)


def _compared(change: Literal["replace", "edit"], shown: str, there: _There, after: str) -> WritePreview:
    lines = None if there.text is None else len(there.text.splitlines())
    diff = None if there.text is None else unified_diff(shown, there.text, after, DIFF_CHARACTERS)
    return WritePreview(
        path=shown,
        change=change,
        binding=there.binding,
        size=there.size,
        lines=lines,
        modified=there.modified,
        diff=diff,
        note=there.note,
    )


CHANGES: dict[str, Callable[[Arguments, str, _There | None, str], WritePreview]] = {
    "write_file": _written,
    "edit_file": _edited,
}
