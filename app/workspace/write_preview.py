"""The change that a waiting `write_file` or `edit_file` would make, as the person who decides on it sees it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

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


def preview_of(name: str, arguments: Arguments, workspace: Path, *, may_read: bool) -> WritePreview | None:
    """The change of a call, compared with the file as it is now; None for other tools. Blocks."""
    if name not in ("write_file", "edit_file"):
        return None
    path = str(arguments.get("path", ""))
    try:
        return _preview(name, arguments, workspace, ReadFile(workspace, path), may_read=may_read)
    except (ToolFailed, OSError, KeyError, TypeError, AttributeError) as failure:  # unfit arguments among them
        return WritePreview(path, "fail", state_of_file({"path": path}, workspace), note=str(failure))


def _preview(name: str, arguments: Arguments, workspace: Path, file: ReadFile, *, may_read: bool) -> WritePreview:
    shown = "/".join(file.parts)
    there = _there(file, workspace, shown)
    if there is None and name == "write_file":
        return WritePreview(shown, "create", state_of_file(arguments, workspace))
    if there is None:
        return WritePreview(shown, "fail", state_of_file(arguments, workspace), note=f"{shown} does not exist.")
    preview, data = there
    text, note = (None, TOO_LONG) if data is None else _readable(data, file.parts, may_read=may_read)
    if name == "write_file":
        preview, after = replace(preview, change="replace"), str(arguments["content"])
    elif text is not None:
        after = replace_once(text, arguments["old"], arguments["new"], shown, "write the whole file").text
    if text is None:
        return replace(preview, note=note)
    return replace(preview, lines=len(text.splitlines()), diff=unified_diff(shown, text, after, DIFF_CHARACTERS))


def _there(path: ReadFile, workspace: Path, shown: str) -> tuple[WritePreview, bytes | None] | None:
    """Return the file that is there, as an edit of it begins, and its content unless that is too long."""
    try:
        with path.opened() as file:
            found = os.fstat(file.fileno())
            if found.st_size > EDIT_BYTES:
                binding = state_of_file({"path": str(path)}, workspace)
                return WritePreview(shown, "edit", binding, found.st_size, modified=found.st_mtime), None
            data = file.read(EDIT_BYTES + 1)
    except ToolFailed as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    binding = hashlib.sha256(data).hexdigest()
    return WritePreview(shown, "edit", binding, len(data), modified=found.st_mtime), data


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
