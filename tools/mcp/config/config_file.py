"""Changes of an `mcp.json`: atomic, and everything else in it stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.base.texts import replace_file
from tools.mcp.config.entries import has_comments, read_json, servers_of


class FileUnchanged(Exception):
    """The file could not be changed. The message has the reason and what to do."""


def entries_of(path: Path) -> dict[str, Any]:
    """The entries as they are written; none without a file. Raises FileUnchanged."""
    return _read(path)[1]


def put_entry(path: Path, name: str, entry: Mapping[str, Any]) -> str:
    """Add an entry; return a notice for the user. Raises FileUnchanged, also if the name is taken."""
    whole, servers, text = _read(path)
    if name in servers:
        raise FileUnchanged(f"{path} has a server {name} already. Remove that first, or take another name.")
    servers[name] = dict(entry)
    return _save(path, whole, text)


def drop_entry(path: Path, name: str) -> str:
    """Remove an entry; return a notice for the user. Raises FileUnchanged, KeyError if there is none."""
    whole, servers, text = _read(path)
    del servers[name]
    return _save(path, whole, text)


def set_enabled(path: Path, name: str, *, enabled: bool) -> str:
    """Enable or disable an entry; return a notice for the user. Raises FileUnchanged, KeyError if there is none."""
    whole, servers, text = _read(path)
    entry = servers[name]
    if not isinstance(entry, dict):
        raise FileUnchanged(f"{name} in {path} is no object. Mend it there.")
    for field in ("disabled", "enabled"):
        entry.pop(field, None)
    if not enabled:
        entry["disabled"] = True
    return _save(path, whole, text)


def _save(path: Path, whole: Any, text: str) -> str:
    """Write the file, which was `text`. Comments do not survive: it is copied first, and the notice names the copy."""
    notice = ""
    try:
        target = path.resolve()  # a link stays one
        if has_comments(text):
            copy = target.with_name(f"{target.name}.bak")
            shutil.copy2(target, copy)
            notice = f"The comments of {path} are gone; {copy} has it as it was."
        replace_file(target, json.dumps(whole, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise FileUnchanged(f"{path} cannot be written: {error.strerror}.") from error
    return notice


def _read(path: Path) -> tuple[Any, dict[str, Any], str]:
    """The whole file, the part of it that names servers, and its text."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnchanged(f"{path} cannot be read: {error}.") from error
    try:
        whole = read_json(text) if text.strip() else {}
        if whole == {}:
            whole = {"mcpServers": {}}
        return whole, servers_of(whole), text
    except ValueError as error:
        raise FileUnchanged(f"{path} is not a list of MCP servers: {error}. Mend it first.") from error
