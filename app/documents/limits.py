"""Limits of documents, and the forms of their texts and titles."""

from __future__ import annotations

from collections.abc import Sequence

from app.models.http.json_body import encodable
from app.storage.documents import MARKDOWN, MOST_CHARACTERS, PLAIN_NAMES, VersionInfo
from tools.base.escape_invisible import visible
from tools.base.outcome import ToolFailed
from tools.base.patterns import lazy_pattern

MOST_TITLE = 200
MOST_VERSIONS, MOST_KEPT = 100, 4_000_000  # versions of a document, and characters of these
MOST_OPEN, MOST_SUGGESTIONS = 50, 1_000  # of a document
MOST_REASON = 1_000

_KIND = lazy_pattern(r"[\w+#.-]{1,40}")


class UnfitDocument(ToolFailed):
    """A text, title or kind that cannot be stored. The message says what to do."""


def text_of(text: str) -> str:
    """Return the text as it can be stored. Raises UnfitDocument."""
    text = encodable(text).replace("\0", "\ufffd")  # at which a database may end a text
    if len(text) > MOST_CHARACTERS:
        raise UnfitDocument(
            f"The document would have {len(text):,} characters; keep it to {MOST_CHARACTERS:,}, or make two."
        )
    return text


def title_of(title: str) -> str:
    """Return the title as one visible line. Raises UnfitDocument."""
    title = " ".join(visible(encodable(title)).split())
    if not 1 <= len(title) <= MOST_TITLE:
        raise UnfitDocument(f"The title has {len(title)} characters; give one of 1 to {MOST_TITLE}.")
    return title


def kind_of(kind: str) -> str:
    """Return `markdown`, `plain` or the name of a programming language. Raises UnfitDocument."""
    kind = kind.strip().casefold()
    kind = PLAIN_NAMES.get(kind, kind) or MARKDOWN
    if not _KIND.fullmatch(kind):
        raise UnfitDocument("kind is markdown, plain, or the name of a programming language.")
    return kind


def last_forgotten(versions: Sequence[VersionInfo], characters: int) -> int:
    """Return the newest version that is not kept beside a new one of so many characters; 0 if all are.

    `versions` are the stored ones, newest first.
    """
    kept = characters
    for number, one in enumerate(versions, start=1):
        kept += one.characters
        if number >= MOST_VERSIONS or kept > MOST_KEPT:
            return one.version
    return 0
