"""Messages that end inside an opener."""

from __future__ import annotations

import re
from collections.abc import Iterable

import regex

from parsing.openers import Openers

# A beginning that is no ordinary text.
_CUT_TOKEN = re.compile(r"<[^a-zA-Z\s/]|</?[\w.:-]*[_:|]|<\w{4}|</s>\s*\Z|\[[A-Z]*_|\]<")
_TAG = re.compile(
    r"<{1,2}[^<>\s]*(?:\s+\w*(?:\s?=\s?[\"']?([^\"'<>]*)[\"']?\s?/?)?)?(?:>{1,2}|\Z)|\[[^\[\]\s]*(?:\]|\Z)"
)
_SPECIAL = re.compile(r"<[|｜]|\]<\]|<use_mcp_tool>")
_LONE_BAR = re.compile(r"<[|｜]{1,4}(?:[^\w▁/<|｜]|\Z)")  # no token goes on like this
_WORDS = re.compile(r"<｜(?!tool)[^｜<>]*\s")  # nor has one of no known kind space in it
_PUNCTUATION = frozenset(".,;!?)\"'")
# Any word may be the namespace of a call's tag: a tag cut before its colon counts only if it begins like one of these.
_WORD = re.compile(r"<[\w.-]+\Z")
_KNOWN = regex.compile(
    r"<(?:(?:longcat_|iquest_|iquestcoder_)?tool_calls?|tool_(?:use|code|call_name|call_args|response|result|output)|use_mcp_tool|tools|"
    r"(?:dots_|start_)?function_(?:calls?|model|response|results)|functioncall|functions|invoke|calls|TOOLCALL|TOOL_RESPONSE|"
    r"longcat_think|think|answer|response|end_of_turn|start_of_turn|bot_end|minimax|seed|atem)"
)


def is_truncated(text: str, tools: Iterable[str], openers: Openers) -> bool:
    """Return whether `text`, the end of a message, is the beginning of an opener and can be nothing else."""
    if len(text) < 3 or _LONE_BAR.match(text) or not _may_be_truncated(text, openers):
        return False
    word = next(iter(_TAG.sub(r" \1 ", text).split()), "").removeprefix("call:")
    named = any(name.startswith(word) for name in (*tools, "function", "call"))
    special = text[0] in openers.rare_marks or _SPECIAL.match(text)
    if not named and (not special or _PUNCTUATION.issuperset(word)):
        return False  # words after a tag: it is written about
    tables = (openers.marked, openers.rest) if _WORDS.match(text) else (openers.marked, openers.rest, openers.tokens)
    return any(table.is_cut(text) for table in tables)


def _may_be_truncated(text: str, openers: Openers) -> bool:
    if text[0] in openers.rare_marks:
        return True
    return bool(_CUT_TOKEN.match(text)) and not (_WORD.match(text) and not _KNOWN.fullmatch(text, partial=True))


def is_truncated_call(text: str, openers: Openers) -> bool:
    """Return whether such an end began a call, and not reasoning or a token that is never shown."""
    return not openers.not_calls.may_begin(text) and any(
        table.may_begin(text) for table in (openers.marked, openers.rest)
    )
