"""JSON as written by hand: with comments, trailing commas and a byte order mark."""

from __future__ import annotations

import json
import re
from typing import Any

from tools.base.patterns import lazy_pattern

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENTS = lazy_pattern(rf"(?P<string>{_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMAS = lazy_pattern(rf"(?P<string>{_STRING})|,(?=\s*[}}\]])")


def read_json(text: str) -> Any:
    """Parse the text. Raises ValueError, which names the line."""
    try:
        return json.loads(_COMMAS.sub(_kept, _COMMENTS.sub(_kept, text.removeprefix("\ufeff"))))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def has_comments(text: str) -> bool:
    return any(found["string"] is None for found in _COMMENTS.finditer(text))


def _kept(found: re.Match[str]) -> str:
    """Strings as they are; of a comment its line ends, so that an error names the right line."""
    return found["string"] if found["string"] is not None else "\n" * found[0].count("\n")
