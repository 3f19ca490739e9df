"""Small operations on texts that models, servers and pages write: of any length, and with halves of characters."""

from __future__ import annotations

import json
from typing import Any

from tools.base.outcome import ToolFailed


def shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


def encoded(text: str) -> bytes:
    """Return a model's text as UTF-8. Raises ToolFailed for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed(f"The character at {error.start} is a lone surrogate: write it as valid text.") from error


def without_surrogates(read: Any) -> Any:
    """Replace lone surrogates in what was read from JSON: they could not be stored or sent."""
    written = json.dumps(read, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:
        return json.loads(written.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    return read
