"""The `system` text of a request: what it puts before the prompt, or in place of its first part."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator

from app.context.prompt import MOST_OVERRIDE, Override

SYSTEM_FORM = 'send a text, or {"text": ..., "mode": "prepend" or "replace"}'


class SystemText(BaseModel):
    """`replace` takes the place of who the assistant is and whom it talks to, never of how tools are used."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str
    mode: Literal["prepend", "replace"] = "prepend"

    @field_validator("text")
    @classmethod
    def _fits(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("is empty; leave system out, or say something")
        if len(text) > MOST_OVERRIDE:
            raise ValueError(f"has {len(text):,} characters; {MOST_OVERRIDE:,} are allowed, put the rest into message")
        return storable(text)

    def override(self) -> Override:
        return Override(self.text, self.mode == "replace")


def as_fields(system: Any) -> Any:
    """A plain text is to be prepended. Raises ValueError for what is no form of `system`."""
    match system:
        case str():
            return {"text": system}
        case dict() | SystemText() | None:
            return system
    raise ValueError(SYSTEM_FORM)


def storable(text: str) -> str:
    """The text, if it can be kept and sent. Raises ValueError."""
    for position, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise ValueError(f"holds {character!a} at character {position}; send Unicode text without it")
    return text
