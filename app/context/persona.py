"""The persona of the assistant and a profile of its user: two files per principal, written by the operator.

They are in the data directory, not in the workspace: a model could plant instructions for later runs in any file that
tools can write.
"""

from __future__ import annotations

import codecs
import logging
import os
import stat
from pathlib import Path

from msgspec import Struct

logger = logging.getLogger(__name__)

PERSONAS = "persona"  # in the data directory, with a folder per principal
SOUL, USER = "SOUL.md", "USER.md"
MOST = 4_000  # characters of each that the prompt includes
_MOST_BYTES = 4 * MOST + len(codecs.BOM_UTF8)


class Persona(Struct, frozen=True):
    """`soul`: identity of the assistant; `user`: about the person. Empty without a file."""

    soul: str = ""
    user: str = ""


def persona_in(folder: Path | str) -> Persona:
    """Read the persona's files. An unreadable file is logged and skipped: no run fails because of it."""
    if not os.path.lexists(folder):
        return Persona()
    return Persona(_text_of(Path(folder, SOUL)), _text_of(Path(folder, USER)))


def _text_of(path: Path) -> str:
    """Read the beginning of a text file; the result has more than MOST characters if the file has more."""
    try:
        data = _beginning(path)
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(data, final=len(data) < _MOST_BYTES + 1)
        if "\0" in text:
            raise ValueError("it holds NUL characters")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return _left_out(path, error.strerror or type(error).__name__)
    except UnicodeDecodeError as error:
        return _left_out(path, f"it is not valid UTF-8 at byte {error.start}")
    except ValueError as error:
        return _left_out(path, str(error))
    text = text.replace("\r\n", "\n").strip()
    if len(text) > MOST:
        logger.warning("%s is longer than %s characters; the prompt includes only these", path, f"{MOST:,}")
    return text


def _beginning(path: Path) -> bytes:
    """Read at most one byte more than needed of a regular file (a pipe would block the server). Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES + 1)
    finally:
        os.close(descriptor)


def _left_out(path: Path, why: str) -> str:
    logger.warning("%s is not included in the prompt: %s", path, why)
    return ""
