"""The shape of a reply's end: does it announce work that does not follow?

Two things announce work in any language: a mark that leaves the reply open (a colon, an ellipsis, a dash), and a last
sentence that states an intention. For the latter no words are listed. The sentence is cut into words, neighbouring
words and groups of characters; each has a weight for or against, learnt from examples in fifteen languages. Names of
files, addresses and code count for nothing.

The examples are in `fixtures/endings`; `python -m tests.tasks.train_endings` writes `ending_weights.bin`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from math import sqrt
from pathlib import Path
from zlib import crc32, decompress

from app.runs.discipline.ending_weights import BIAS, SCALE
from tools.base.patterns import lazy_pattern

SHORT = 600  # characters: a longer reply is an answer
MOST_REQUEST = 20_000  # characters of a request that are looked at
MOST_SENTENCE = 240  # characters of a last sentence that are looked at: its end states what is intended
PLACES = 131_072  # in the table of weights
GROUPS = range(3, 6)  # characters in a group
DENSE_GROUPS = range(1, 5)  # the same where a character is a syllable or a word
EDGES = range(1, 9)  # characters of a sentence's beginning and end
FIRST_EDGES = range(1, 4)  # characters of the beginning and end of its first word
LONG_WORD = 3  # characters; shorter words have no endings
FULL_STOPS = ".!。।"
OPEN_MARKS = frozenset(":;,…‥–—―-→⇒➜👇：；，、،؛։︓")
QUESTION_MARKS = frozenset("?？؟⁇;՞፧‽")
JSON_MARKS = (("{", "}"), ("[", "]"))
CLOSERS = "*_`'\"”’»›)]}）】」』 \t\n"
NAME = "§"
WEIGHTS = Path(__file__).with_name("ending_weights.bin")
SEPARATOR = "\0"
# The scores at which a sentence surely is an intention, and below which it surely is none; by whether work is expected.
SURE = {True: 0.4, False: 0.5}
DOUBTFUL = {True: -0.8, False: 0.0}

_NAMES = lazy_pattern(r"`[^`\n]*`|(?<!\w)\w{1,20}://\S+|(?<![\w./~-])[\w./~-]{0,80}[\w~-][./][\w-]+(?:[./][\w-]+)*")
_NAMED = lazy_pattern(r"`|\w[./]\w|~/|\s/\w")
_SENTENCE_END = lazy_pattern(r"(?<=[.!?؟।։])\s+|(?<=[。！？｡])|\n+")
_DENSE = lazy_pattern(r"[\u3000-\u9fff\uac00-\ud7ff]")
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
    if reply.endswith("`") and _last_line(reply).startswith("`"):
        return End.ANSWER  # a command for the person
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
    """Return the parts of a sentence, as places in the table of weights."""
    text = sentence.replace(SEPARATOR, " ")
    parts = [*_of_characters(text), *_of_words(_WORD.findall(text))]
    # Encoded at once: every reply is judged, and a call for each part took most of its time.
    encoded = SEPARATOR.join(parts).encode("utf-8", "surrogatepass").split(SEPARATOR.encode())
    return frozenset([value % PLACES for value in map(crc32, encoded)])


def _of_characters(text: str) -> Iterator[str]:
    """Return the groups of neighbouring characters of a sentence, and how it begins and ends."""
    marked = f"^{text}$"
    end = text.rstrip(FULL_STOPS)
    for size in DENSE_GROUPS if _DENSE.search(text) else GROUPS:
        yield from [marked[at : at + size] for at in range(len(marked) - size + 1)]
    for size in EDGES:
        yield f"<{text[:size]}"
        yield f">{end[-size:]}"


def _of_words(words: list[str]) -> Iterator[str]:
    """Return the words of a sentence, their neighbours, how they begin and end, and its first words."""
    bounded = ["^", *words, "$"]
    yield from [f"w {one}" for one in words]
    yield from [f"b {one} {two}" for one, two in pairwise(bounded)]
    yield from [f"t {one} {two} {three}" for one, two, three in zip(bounded, bounded[1:], bounded[2:], strict=False)]
    yield from [f"k {one} {three}" for one, three in zip(words, words[2:], strict=False)]
    yield from [f"s {one}" for one in words[:3]]
    yield from [f"p {' '.join(words[:many])}" for many in (2, 3)]
    for first in words[:1]:
        yield from [part for size in FIRST_EDGES for part in (f"1f{first[:size]}", f"1e{first[-size:]}")]
    for one in words:
        if len(one) > LONG_WORD:
            yield from (f"e {one[-2:]}", f"e {one[-3:]}", f"f {one[:3]}", f"f {one[:4]}")


def _is_item(reply: str) -> bool:
    """Return True if the last line is an item of a list."""
    return "\n" in reply and _ITEM.match(_last_line(reply)) is not None


def _last_line(reply: str) -> str:
    return reply.rpartition("\n")[2]


@lru_cache(1)
def _weights() -> memoryview:
    return memoryview(decompress(WEIGHTS.read_bytes())).cast("b")
