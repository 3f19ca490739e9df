"""The shape of a reply's end: does it announce work that does not follow?

Two things announce work in any language: a mark that leaves the reply open (a colon, an ellipsis, a dash), and a last
sentence that states an intention. For the latter no words are listed. The sentence is cut into words, pairs of them and
groups of neighbouring characters; each has a weight for or against, learnt from examples in fifteen languages
(`fixtures/endings`, `python -m tests.train_endings`). Names of files, addresses and code count for nothing.
"""

from __future__ import annotations

import unicodedata
from base64 import b85decode
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from math import sqrt
from zlib import crc32, decompress

from app.runs.discipline.ending_weights import BIAS, SCALE, WEIGHTS
from tools.base.patterns import lazy_pattern

SHORT = 600  # characters: a longer reply is an answer
MOST_REQUEST = 20_000  # characters of a request that are looked at
MOST_SENTENCE = 240  # characters of a last sentence that are looked at: its end states what is intended
BUCKETS = 32_768
GROUPS = range(1, 6)  # characters in a group
OPEN_MARKS = frozenset(":;,…‥–—―-→⇒➜👇：；，、،؛։︓")
QUESTION_MARKS = frozenset("?？؟⁇;՞፧‽")
JSON_MARKS = (("{", "}"), ("[", "]"))
CLOSERS = "*_`'\"”’»›)]}）】」』 \t\n"
NAME = "§"
SEPARATOR = "\0"
# The scores at which a sentence surely is an intention, and below which it surely is none; by whether work is expected.
SURE = {True: 0.4, False: 2.0}
DOUBTFUL = {True: -0.8, False: 1.0}

_NAMES = lazy_pattern(r"`[^`\n]*`|(?<!\w)\w{1,20}://\S+|(?<![\w./~-])[\w./~-]{0,80}[\w~-][./][\w-]+(?:[./][\w-]+)*")
_NAMED = lazy_pattern(r"`|\w[./]\w|~/|\s/\w")
_SENTENCE_END = lazy_pattern(r"(?<=[.!?؟।։])\s+|(?<=[。！？｡])|\n+")
_DIGITS = lazy_pattern(r"\d+")
_ITEM = lazy_pattern(r"\s*(?:[-*+•]|\d+[.)])\s")
_LETTER = lazy_pattern(r"[^\W\d_]")
_WORD = lazy_pattern(r"\w+|[^\w\s]")


class End(StrEnum):
    """The end of a reply without calls."""

    ANSWER = "answer"
    DOUBTFUL = "doubtful"
    ANNOUNCEMENT = "announcement"


def end_of(text: str, request: str, *, worked: bool) -> End:
    """Judge the end of a reply without calls. `worked`: the run has used a tool."""
    reply = text.strip()
    if not reply or len(reply) >= SHORT or reply in request:
        return End.ANSWER
    if reply.endswith(("```", "~~~", "|")):
        return End.ANSWER  # a block of code, or a table
    if (reply[0], reply[-1]) in JSON_MARKS:
        return End.ANSWER  # whose last text may end on anything
    last = reply.rstrip(CLOSERS)[-1:]
    if last in QUESTION_MARKS:
        return End.ANSWER
    if last in OPEN_MARKS or reply.endswith(("...", "。。。")):
        return End.ANNOUNCEMENT
    if _is_item(reply) or not _LETTER.search(reply):
        return End.ANSWER
    expected = worked or names_something(request)
    score = intention(last_sentence(reply))
    if score >= SURE[expected]:
        return End.ANNOUNCEMENT
    return End.DOUBTFUL if score >= DOUBTFUL[expected] else End.ANSWER


def names_something(request: str) -> bool:
    """Return True if a request names a file, a folder, an address or a piece of code, which a tool has to look at."""
    return _NAMED.search(request, 0, MOST_REQUEST) is not None


def last_sentence(text: str) -> str:
    """Return the last sentence of a text in one form: names are a sign, digits zeros, letters small."""
    plain = _NAMES.sub(NAME, text[-2 * MOST_SENTENCE :])
    sentences = [one for one in _SENTENCE_END.split(plain) if one.strip(CLOSERS + ".!")]
    sentence = unicodedata.normalize("NFKC", sentences[-1] if sentences else plain).casefold().strip()
    return _DIGITS.sub("0", sentence)[-MOST_SENTENCE:]


def intention(sentence: str) -> float:
    """Return how surely a sentence announces what its speaker does next; 0 is as likely as not."""
    found = groups(sentence)
    return BIAS + SCALE * sum(map(_weights().__getitem__, found)) / sqrt(len(found) or 1)


def groups(sentence: str) -> frozenset[int]:
    """Return the words and groups of characters of a sentence, as places in the table of weights."""
    marked, words = f"^{sentence.replace(SEPARATOR, ' ')}$", _WORD.findall(sentence)
    parts = [marked[at : at + size] for size in GROUPS for at in range(len(marked) - size + 1)]
    parts += [f"w {one}" for one in words]
    parts += [f"s {one}" for one in words[:3]]
    parts += [f"b {one} {following}" for one, following in pairwise(["^", *words, "$"])]
    # Encoded at once: every reply is judged, and a call for each part took most of its time.
    encoded = SEPARATOR.join(parts).encode("utf-8", "surrogatepass").split(SEPARATOR.encode())
    return frozenset([value % BUCKETS for value in map(crc32, encoded)])


def _is_item(reply: str) -> bool:
    """Return True if the last line is an item of a list."""
    return "\n" in reply and _ITEM.match(reply.rpartition("\n")[2]) is not None


@lru_cache(1)
def _weights() -> tuple[int, ...]:
    return tuple(one - 256 if one > 127 else one for one in decompress(b85decode(WEIGHTS)))
