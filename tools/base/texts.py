"""Small operations on texts that models, servers and pages write: of any length, and with halves of characters."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tools.base.outcome import ToolFailed


def shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


def encoded(text: str) -> bytes:
    """Return a model's text as UTF-8. Raises ToolFailed for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolFailed(f"The character at {error.start} is a lone surrogate", ": write it as valid text.") from error


def without_surrogates(read: Any) -> Any:
    """Replace lone surrogates in what was read from JSON: they could not be stored or sent."""
    written = json.dumps(read, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:
        return json.loads(written.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    return read


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, as UTF-8. A link stays one.

    A new file is for its owner only, an old one keeps its mode. Raises OSError; then the old file is as it was.
    """
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, name)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
