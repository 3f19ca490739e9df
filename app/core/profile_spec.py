"""Options of runs that are set ahead of a request: by a profile, in the settings or the database, or by a session."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import AfterValidator, Field, Strict

from app.core.rules import ApprovalMode, WhenAbsent, checked_pattern
from app.core.sampling import Sampling
from app.core.session_modes import SessionModes
from app.core.settings_fields import DAY_S
from app.core.strict_model import storable
from tools.base.patterns import lazy_pattern

LONGEST_MODEL = 256
LONGEST_PROFILE = 64
MOST_PROMPT = 16_000  # characters
MOST_DESCRIPTION = 200
MOST_PATTERNS = 64
NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
NAME_RULE = "a profile's name has 1 to 64 letters, digits, . _ - and begins with none of . -"


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
