"""Modes of a conversation: chosen with its first message, kept with its session, the same in its helpers and branches.

A mode is a field of `SessionModes`, which requests and sessions have, and a row of `MODES`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from secrets import token_hex
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Struct
from pydantic import AfterValidator, Field

from app.core.strict_model import StrictModel, storable

NEW = "new"  # a workspace folder that is made for the conversation
NEW_FOLDERS = "conversations"  # where those lie
GONE_WITH_IT = f"{NEW_FOLDERS}/temporary-"  # begins those that are deleted with their conversation
LONGEST_FOLDER = 1_000
TEMPORARY = "temporary"
NOTHING_SET: Mapping[str, Any] = MappingProxyType({})


class ModeFixed(Exception):
    """A request wants a mode that its conversation does not have. The message says what to do."""


def _folder(name: str) -> str:
    """Return the normalised path of a folder below a workspace. Raises ValueError."""
    path = PurePosixPath(storable(name).strip())
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("is outside of the workspace; send the path of a folder below it, or new")
    if not path.parts:
        raise ValueError("names no folder; send the path of one below the workspace, or new, or leave it out")
    return str(path)


class SessionModes(StrictModel):
    """None leaves a mode as it is in the conversation."""

    temporary: bool | None = None
    read_only: bool | None = None
    workspace: Annotated[str, Field(max_length=LONGEST_FOLDER), AfterValidator(_folder)] | None = None


class Mode(Struct, frozen=True):
    """`sets` are options of all runs in such a conversation; `otherwise` is what to do for another value of it."""

    name: str
    otherwise: str
    sets: Mapping[str, Any] = NOTHING_SET


MODES = (
    Mode(TEMPORARY, "Begin a new conversation.", {"memory": False, "record": False}),
    Mode("read_only", "PATCH /sessions/{id} changes it."),
    Mode("workspace", "Begin a new conversation."),
)
NAMES = tuple(mode.name for mode in MODES)


def modes_of(modes: SessionModes) -> dict[str, Any]:
    """Return the modes that are on."""
    return {name: value for name in NAMES if (value := getattr(modes, name))}


def new_folder(*, temporary: bool) -> str:
    """Return the path of a folder for a new conversation."""
    return f"{GONE_WITH_IT if temporary else f'{NEW_FOLDERS}/'}{token_hex(6)}"


def modes_in(policy: str) -> dict[str, Any]:
    """Return the modes that are on, from the policy of a run or the options of a session."""
    if not any(f'"{name}"' in policy for name in NAMES):
        return {}
    values = json.loads(policy)
    return {name: values[name] for name in NAMES if values.get(name)}


def check_modes(wanted: SessionModes, kept: SessionModes | None) -> None:
    """Raise ModeFixed if a request names another value of a mode than its conversation has."""
    for mode in MODES:
        value, there = getattr(wanted, mode.name), kept and getattr(kept, mode.name)
        if value is not None and value != (there or False) and not (value == NEW and there):
            state = f"is {there!r}" if there else "is off"
            raise ModeFixed(f"{mode.name}: it {state} in this conversation. {mode.otherwise}")
