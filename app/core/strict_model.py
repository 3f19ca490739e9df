"""The base of models that clients send as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from tools.base.patterns import lazy_pattern

UNSTORABLE = lazy_pattern("[\0\ud800-\udfff]")  # NUL, and halves of characters


class StrictModel(BaseModel):
    """Refuses unknown fields and converts no types. The validator is built at the first use, not at every start."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


def storable(text: str) -> str:
    """Return the text if it can be stored and sent. Raises ValueError."""
    if odd := UNSTORABLE.search(text):
        raise ValueError(f"contains {odd[0]!a} at character {odd.start()}; send Unicode text without it")
    return text
