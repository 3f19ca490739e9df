"""Options of runs that are set ahead of a request: by a profile, in the settings or the database, or by a session.

The modes of a conversation are chosen with its first message, kept with its session, and the same in its helpers and
branches. A mode is a field of `SessionModes`, which requests and sessions have, and a row of `OTHERWISE`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from secrets import token_hex
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, Field, Strict

from app.core.rules import ApprovalMode, WhenAbsent, checked_pattern
from app.core.sampling import Sampling
from app.core.settings_fields import DAY_S
from app.core.strict_model import StrictModel, storable
from tools.base.patterns import lazy_pattern

LONGEST_MODEL = 256
LONGEST_PROFILE = 64
MOST_PROMPT = 16_000  # characters
MOST_DESCRIPTION = 200
MOST_PATTERNS = 64
NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
NAME_RULE = "a profile's name has 1 to 64 letters, digits, . _ - and begins with none of . -"
NEW_FOLDER = "new"  # a workspace folder that is made for the conversation
NEW_FOLDERS = "conversations"  # where those lie
GONE_WITH_IT = f"{NEW_FOLDERS}/temporary-"  # begins those that are deleted with their conversation
LONGEST_FOLDER = 1_000
TEMPORARY = "temporary"
NOTHING_SET: Mapping[str, Any] = MappingProxyType({})


def checked_profile_name(name: str) -> str:
    """Return the name. Raises ValueError with the rule."""
    if not NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    return name


def _written(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; leave it out, or write a text")
    return storable(text)


def _line(text: str) -> str:
    if text and not text.isprintable():
        raise ValueError("holds characters that cannot be printed")
    return text


Patterns = Annotated[list[Annotated[str, AfterValidator(checked_pattern)]], Field(max_length=MOST_PATTERNS)]


class RunDefaults(Sampling):
    """Options that a request, a session and a profile may each name. All are optional."""

    model: str | None = Field(default=None, max_length=LONGEST_MODEL)
    max_rounds: int | None = Field(default=None, ge=1, le=200)
    max_calls: int | None = Field(default=None, ge=1, le=100_000)
    max_tokens: int | None = Field(default=None, ge=1, le=10**12)
    time_limit_s: float | None = Field(default=None, gt=0, le=DAY_S)
    inactivity_s: float | None = Field(default=None, gt=0, le=DAY_S)
    approval: Annotated[ApprovalMode, Strict(strict=False)] | None = None
    memory: bool | None = None


class PresetDefaults(RunDefaults):
    """Those that are set ahead of a request."""

    when_absent: Annotated[WhenAbsent, Strict(strict=False)] | None = None


class SessionPresets(PresetDefaults):
    """Those that a conversation may have. `instructions` are added to the system prompt of its runs."""

    instructions: Annotated[str, Field(max_length=MOST_PROMPT), AfterValidator(_written)] | None = None


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


# What to do for another value of a mode.
OTHERWISE = {
    TEMPORARY: "Begin a new conversation.",
    "read_only": "PATCH /sessions/{id} changes it.",
    "workspace": "Begin a new conversation.",
}
MODE_NAMES = tuple(OTHERWISE)
_NAMED = lazy_pattern('"(?:' + "|".join(MODE_NAMES) + ')"')
IN_TEMPORARY: Mapping[str, Any] = MappingProxyType({"memory": False, "record": False})  # options of all runs there


class SessionDefaults(SessionPresets, SessionModes):
    """The options that a session sets for its runs; `profile` is the name of the one that they use."""

    profile: str | None = Field(default=None, max_length=LONGEST_PROFILE)


class ProfileSpec(PresetDefaults):
    """A profile. `tools` are patterns: only tools that match one may be used; those that match `disabled` may not."""

    description: Annotated[str, Field(max_length=MOST_DESCRIPTION), AfterValidator(_line)] = ""
    prompt: Annotated[str, Field(max_length=MOST_PROMPT), AfterValidator(_written)] | None = None
    tools: Patterns | None = None
    disabled: Patterns = Field(default_factory=list)

    @property
    def version(self) -> str:
        """A digest of all values: another one after each change."""
        return hashlib.sha256(self.as_json().encode()).hexdigest()[:12]

    def as_json(self) -> str:
        """The values that are not the default, as a row keeps them."""
        return self.model_dump_json(exclude_defaults=True)


def modes_of(modes: SessionModes) -> dict[str, Any]:
    """Return the modes that are on."""
    return {name: value for name in MODE_NAMES if (value := getattr(modes, name))}


def new_folder(*, temporary: bool) -> str:
    """Return the path of a folder for a new conversation."""
    return f"{GONE_WITH_IT if temporary else f'{NEW_FOLDERS}/'}{token_hex(6)}"


def modes_in(policy: str) -> dict[str, Any]:
    """Return the modes that are on, from the policy of a run or the options of a session."""
    if not _NAMED.search(policy):
        return {}
    values = json.loads(policy)
    return {name: values[name] for name in MODE_NAMES if values.get(name)}


def check_modes(wanted: SessionModes, kept: SessionModes | None) -> None:
    """Raise ModeFixed if a request names another value of a mode than its conversation has."""
    for name, otherwise in OTHERWISE.items():
        value, there = getattr(wanted, name), kept and getattr(kept, name)
        if value is not None and value != (there or False) and not (value == NEW_FOLDER and there):
            state = f"is {there!r}" if there else "is off"
            raise ModeFixed(f"{name}: it {state} in this conversation. {otherwise}")
