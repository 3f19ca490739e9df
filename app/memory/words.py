"""Texts as the index of words has them, and the words of a search.

The index knows words with spaces between them. Scripts that write none are indexed by the character, and searched by
pairs of neighbours; of longer words an inflected form is found by its beginning.
"""

from __future__ import annotations

import hashlib
import unicodedata

from app.transcript.stop_words import STOP_WORDS
from tools.base.patterns import lazy_pattern

MOST_WORDS = 48  # of a search
LONGEST = 64  # characters of a word
MOST_READ = 8_000  # characters of a search
ENDING, STEM = 2, 5  # letters that an inflected form may have in place of others, behind at least so many
# Thai, Lao, Burmese, Khmer, Japanese, Chinese; and Korean, whose words end in particles.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_ONE_UNSPACED = lazy_pattern(f"([{_UNSPACED}])")
_TOKEN = lazy_pattern(rf"[{_UNSPACED}]+|[^\W_]+")
_SPACE = lazy_pattern(r"\s+")
# Pairs of characters of a Chinese or Japanese question rather than of what it is about.
_PAIRS = """
什么 怎么 哪里 哪个 我的 你的 是什 多少 すか です ます した たか どこ なに 私の 何で のは
"""
STOP_PAIRS = frozenset(_PAIRS.split())


def as_indexed(text: str) -> str:
    """The text with spaces between characters of scripts that write none."""
    return _SPACE.sub(" ", _ONE_UNSPACED.sub(r" \1 ", _plain(text))).strip()


def search_words(query: str) -> list[list[str]]:
    """The phrases of index words to search for; a `*` at the end of a word stands for any ending."""
    found: dict[tuple[str, ...], None] = {}
    for token in _TOKEN.findall(_plain(query[:MOST_READ])):
        for phrase in _phrases(token.lower()[:LONGEST]):
            found.setdefault(phrase)
            if len(found) >= MOST_WORDS:
                return list(map(list, found))
    return list(map(list, found))


def _phrases(token: str) -> list[tuple[str, ...]]:
    if _ONE_UNSPACED.match(token):
        pairs = [token[at : at + 2] for at in range(max(1, len(token) - 1))]
        return [tuple(pair) for pair in pairs if pair not in STOP_PAIRS]
    if token in STOP_WORDS or (len(token) == 1 and not token.isdigit()):
        return []
    if token.isalpha() and len(token) >= STEM + ENDING:
        return [(token,), (f"{token[:-ENDING]}*",)]
    return [(token,), (f"{token}*",)] if token.isalpha() and len(token) >= STEM else [(token,)]


def digest_of(text: str) -> str:
    """Equal for texts that differ in nothing but case, spaces and the mark at the end."""
    return hashlib.sha256(digest_form(text).encode("utf-8", "surrogatepass")).hexdigest()


def digest_form(text: str) -> str:
    """The text without what makes no difference."""
    return _SPACE.sub(" ", _plain(text).casefold()).strip(" .!")


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)
