"""The `system` field of a request: text that is prepended to the prompt or replaces its first part."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from app.context.prompt import MOST_OVERRIDE, Override
from app.core.strict_model import StrictModel, storable

SYSTEM_FORM = 'send a text, or {"text": ..., "mode": "prepend" or "replace"}'


class SystemText(StrictModel):
    """`replace` replaces the identity and the user's profile, never the rules for tools."""

    text: str
    mode: Literal["prepend", "replace"] = "prepend"

    @field_validator("text")
    @classmethod
    def _fits(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("is empty; leave system out, or send a text")
        if len(text) > MOST_OVERRIDE:
            raise ValueError(f"has {len(text):,} characters, at most {MOST_OVERRIDE:,}; put the rest into message")
        return storable(text)

    def override(self) -> Override:
        return Override(self.text, self.mode == "replace")


def as_fields(system: Any) -> Any:
    """Return the fields of a `system` value; a plain text is prepended. Raises ValueError for any other form."""
    match system:
        case str():
            return {"text": system}
        case dict() | SystemText() | None:
            return system
    raise ValueError(SYSTEM_FORM)
