"""Marks of untrusted text: keyed digests by which it is known again, whatever brings it.

Of the shingles of a text, which are words in a row, those are digested that begin at the least checksum among their
neighbours (winnowing: Schleimer, Wilkerson and Aiken, 2003), so that a copy of a passage has the same digests wherever
it stands. Case, white space, punctuation and escapes make no difference. Pure, linear, bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import compress, islice
from zlib import crc32

from app.provenance.decodings import spelled_out
from app.provenance.quoted_text import unprefixed
from tools.base.patterns import lazy_pattern

WORDS = 8  # of a shingle; it has more until it has SHORTEST bytes
SHORTEST, MOST_WORDS = 40, 24
FEWEST_DISTINCT = 5  # words of a shingle that says something
WINDOW = 4  # shingles in a row of which one is digested: WORDS + WINDOW words in a row are known again
MOST_SHINGLES = 4_096  # of one text
MOST_CANDIDATES = 4 * MOST_SHINGLES
MOST_DECODED = 64_000  # characters of a text whose escapes are read
BYTES = 8  # of a digest
QUICK = 16_000  # ASCII characters that are read in less than 2 ms; of others fewer

# Only letters and figures count. Each letter of the scripts that write no spaces is a word.
_BETWEEN = bytes(code if code >= 128 or chr(code).isalnum() else 32 for code in range(256))
_MARKS = r"\x80-\xbf\u2000-\u206f\u2190-\u2bff\u3000-\u303f"
_LETTERS = r"\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_NO_WORD = lazy_pattern(rf"[{_MARKS}]+")
_UNSPACED = lazy_pattern(rf"[{_LETTERS}]+")


class Digester:
    """Digests of the texts of one principal: with another's, or another key, they have nothing in common."""

    def __init__(self, key: bytes, principal: str) -> None:
        person = blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self._state = blake2b(digest_size=BYTES, key=key, person=person)

    def shingles(self, words: Sequence[bytes], *, sparse: bool = False) -> Iterable[tuple[int, int]]:
        """Return the place and the digest of the shingles that stand for a text; a bounded number if `sparse`."""
        starts = _sparse(words) if sparse and len(words) > MOST_CANDIDATES else _chosen(words)
        last = len(words) - WORDS
        parts = {at: b" ".join(words[at : at + WORDS]) for at in starts if at <= last}
        for at in [at for at, part in parts.items() if len(part) < SHORTEST]:
            if (end := _end_of(words, at)) > at:
                parts[at] = b" ".join(words[at:end])
            else:
                del parts[at]
        copy, number, digests = self._state.copy, int.from_bytes, list[int]()
        for part in parts.values():  # without functions of our own: a message has a thousand
            state = copy()
            state.update(part)
            digests.append(number(state.digest(), "little"))
        return zip(parts, digests, strict=True)

    def marks(self, text: str) -> Iterable[int]:
        """The digests by which a text is known again, each once."""
        words = words_of(bare(text[:MOST_DECODED]) + text[MOST_DECODED:])
        shingles = self.shingles(words, sparse=True)
        return dict.fromkeys(one for at, one in shingles if len(set(words[at : at + WORDS])) >= FEWEST_DISTINCT)


def bare(text: str) -> str:
    """The text without its escapes, and without what programs that show it put before its lines."""
    return unprefixed(spelled_out(text))


def is_long(text: str) -> bool:
    """Return True for a text that is read beside the event loop."""
    return len(text) > (QUICK if text.isascii() else QUICK // 5)


def words_of(text: str) -> list[bytes]:
    text = text.lower()
    if not text.isascii():
        text = _UNSPACED.sub(_spaced, _NO_WORD.sub(" ", text))
    return text.encode("utf-8", "surrogatepass").translate(_BETWEEN).split()


def _spaced(match: re.Match[str]) -> str:
    return f" {' '.join(match[0])} "


def _end_of(words: Sequence[bytes], start: int) -> int:
    """Return the end of the shingle that begins there; `start` if too little follows."""
    end = start + WORDS
    size = sum(map(len, words[start:end])) + WORDS - 1
    while size < SHORTEST and end < min(len(words), start + MOST_WORDS):
        size += len(words[end]) + 1
        end += 1
    return end if size >= SHORTEST else start


def _checks(words: Sequence[bytes]) -> list[int]:
    """A checksum of each word and the one behind it."""
    return list(map(crc32, islice(words, 1, None), map(crc32, words)))


def _chosen(words: Sequence[bytes]) -> Iterable[int]:
    """Words that shingles begin with: in each window, the first one of the least checksum."""
    placed = [check << 32 | at for at, check in enumerate(_checks(words))]
    if len(placed) < WINDOW:
        return range(min(len(placed), 1))
    least = dict.fromkeys(map(min, placed, placed[1:], placed[2:], placed[3:]))
    return [one & 0xFFFFFFFF for one in least]


def _sparse(words: Sequence[bytes]) -> Iterable[int]:
    """Of a long text those of the least checksums, so that where they are depends on the passage alone."""
    checks = _checks(words)
    limit = (2 * MOST_SHINGLES << 32) // len(checks)
    candidates = islice(compress(range(len(checks)), map(limit.__gt__, checks)), MOST_CANDIDATES)
    found = [at for at in candidates if _is_least(checks, at)]
    return sorted(found, key=checks.__getitem__)[:MOST_SHINGLES]


def _is_least(checks: Sequence[int], at: int) -> bool:
    """Return True if the word has the least checksum of one of the windows that it is in."""
    own, before, behind = checks[at], 0, 0
    while before < WINDOW - 1 and at > before and checks[at - before - 1] > own:
        before += 1
    while before + behind < WINDOW - 1 and at + behind + 1 < len(checks) and checks[at + behind + 1] >= own:
        behind += 1
    return before + behind == WINDOW - 1
