"""The request for a title and a summary, and the answer as plain text: a model that read untrusted words wrote it."""

from __future__ import annotations

from collections.abc import Sequence

from app.budget.side_query import DATA_RULE, ends_of
from app.context.compaction.summary import transcript
from app.core.data_delimiters import without_delimiters
from app.core.messages import Message
from app.transcript.titles import one_line
from tools.base.patterns import lazy_pattern

LONGEST_TITLE, LONGEST_SUMMARY = 80, 300
MOST_TOKENS = 400
DATA = "The conversation"  # title of the data
RULE = (
    f"You label a conversation for a list of conversations. {DATA_RULE} Write two lines in the language of the "
    "conversation: on the first a title of at most eight words, on the second a summary of one or two sentences. Write "
    "plain text without links, quotation marks or headings, and nothing else."
)
_LINK = lazy_pattern(r"!?\[([^\]]*)\]\([^)]*\)")
_ADDRESS = lazy_pattern(r"(?i)\b(?:[a-z][a-z0-9+.-]{1,20}://|www\.|mailto:|javascript:|data:)\S*")
_MARKS = lazy_pattern(r"[*_`#<>|\[\]]+")
_LABEL = lazy_pattern(r"(?i)^(?:title|summary|titel|zusammenfassung|person|user|assistant)\s*:\s*")


def read(messages: Sequence[Message], characters: int) -> dict[str, str]:
    """Return the conversation as data, its head and tail if it is long."""
    return {DATA: ends_of(transcript(messages), characters)}


def title_and_summary(answer: str) -> tuple[str, str]:
    """Return both, each one line without links and markup; empty where the answer has none."""
    lines = [line for line in map(plain_line, without_delimiters(answer, DATA).splitlines()) if line]
    if not lines:
        return "", ""
    return shortened(lines[0], LONGEST_TITLE), shortened(" ".join(lines[1:]), LONGEST_SUMMARY)


def plain_line(text: str) -> str:
    """Return a line without links, addresses and markup."""
    text = _MARKS.sub("", _ADDRESS.sub("", _LINK.sub(r"\1", text)))
    return _LABEL.sub("", one_line(text)).strip("\"'“”„ ")


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
