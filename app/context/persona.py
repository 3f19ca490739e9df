"""Who the assistant is and whom it talks to: two files of each principal, which the operator writes.

They lie in the data directory, not in the workspace: what tools can write, a model could leave there for later runs.
"""

from __future__ import annotations

import codecs
import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

PERSONAS = "persona"  # in the data directory; in it a folder of each principal
SOUL, USER = "SOUL.md", "USER.md"
MOST = 4_000  # characters of each that a model is told
_MOST_BYTES = 4 * MOST + len(codecs.BOM_UTF8)


@dataclass(frozen=True, slots=True)
class Persona:
    """`soul`: who the assistant is; `user`: about the person. Empty where there is no file."""

    soul: str = ""
    user: str = ""


def persona_in(folder: Path) -> Persona:
    """What the files there say. What cannot be read is left out, and the log says so: no run fails for it."""
    if not os.path.lexists(folder):
        return Persona()
    return Persona(_text_of(folder / SOUL), _text_of(folder / USER))


def _text_of(path: Path) -> str:
    """The beginning of a text file, with more than MOST characters if the file has more."""
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
        return _left_out(path, f"it is not UTF-8 at byte {error.start}")
    except ValueError as error:
        return _left_out(path, str(error))
    text = text.replace("\r\n", "\n").strip()
    if len(text) > MOST:
        logger.warning("%s has more than %s characters; models are told these only", path, f"{MOST:,}")
    return text


def _beginning(path: Path) -> bytes:
    """At most one byte more than needed, of a regular file: a pipe would keep the server waiting. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES + 1)
    finally:
        os.close(descriptor)


def _left_out(path: Path, why: str) -> str:
    logger.warning("%s is left out of the prompt: %s", path, why)
    return ""
