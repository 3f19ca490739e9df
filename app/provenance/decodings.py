"""Decode a text: escapes of HTML, JSON, URLs and terminals, and look-alike characters.

Texts are read layer by layer, because one writing is put into another. Pure, linear, bounded.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

from tools.base.patterns import lazy_pattern

MOST_LAYERS = 8  # JSON in JSON in HTML is as deep as results of tools go
_ESCAPE = lazy_pattern(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\n"}
_AMPERSANDS = lazy_pattern(r"&(?:(?:amp|#0*38|#[xX]0*26);)+")
_PER_CENT = lazy_pattern(r"%(?:3[cCeEaAdDfF]|[57][bBdD]|2[028]|0[aA])")
# Colours and links of terminals, and letters that were overstruck to be bold.
_TERMINAL = lazy_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[^\n]\x08")
# Marks of single words. Those that are blocks stay: dialects are made of tags, too.
_TAGS = lazy_pattern(r"</?(?:a|b|em|font|i|ins|kbd|mark|s|small|span|strong|sub|sup|u|wbr)(?:\s[^<>]{0,500})?/?>", re.I)
_LINK = lazy_pattern(r"\[([^\[\]\n]{1,200})\]\((?:https?|mailto):[^()\s]{1,500}\)")
_PARTED = lazy_pattern(r"(?<=[^\W\d])-\n[ \t]*(?=[^\W\d])")  # words at the end of a line
_UNSEEN = lazy_pattern(  # what is not drawn, beside the category Cf
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e001f\U000e0100-\U000e01ef]"
)
_ALIKE = str.maketrans(
    "“”„‟«»″‘’‚‛′´⟨⟩‹›❮❯аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅαοΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    '"""""""\'\'\'\'\'\'<><><>aeopcyxijshdqwABEKMHOPCTXIJSaoABEZHIKMNOPTYX',
)
_ALIKE |= {code: code - 0xE0000 for code in range(0xE0020, 0xE007F)}  # letters that only models see


class TooManyLayers(Exception):
    """The text is escaped more often than it is read."""


def layers(text: str) -> Iterator[str]:
    """The text, and what it says where its characters are written in other ways, each other one once."""
    yield text
    for _ in range(MOST_LAYERS):
        before, text = text, _unescaped(_drawn(text))
        if text == before:
            return
        yield text


def readings(text: str) -> tuple[str, ...]:
    """The text as it is, without escapes, and as it is drawn: links stand only in the first two.

    Raises TooManyLayers.
    """
    plain = text
    for _ in range(MOST_LAYERS):
        before, plain = plain, unquote(_unescaped(plain))
        if plain == before:
            drawn = _PARTED.sub("", spelled_out(plain))
            return tuple(dict.fromkeys((text, plain, drawn)))
    raise TooManyLayers


def _drawn(text: str) -> str:
    """The characters that a reader sees, or believes to see, without the marks of words."""
    if "\x1b" in text or "\x08" in text:
        text = _TERMINAL.sub("", text)
    if "<" in text:
        text = _TAGS.sub("", text)
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text.translate(_ALIKE)))
    unseen = {ord(one): None for one in set(text) if unicodedata.category(one) == "Cf"}
    return text.translate(unseen) if unseen else text


def _unescaped(text: str) -> str:
    if "&" in text:
        text = html.unescape(_AMPERSANDS.sub("&", text))
    if "\\" in text:
        text = _ESCAPE.sub(_character, text)
    return unquote(text) if _PER_CENT.search(text) else text


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else _ESCAPES.get(match[3], match[3])


def spelled_out(text: str) -> str:
    """The last layer."""
    for last in layers(text):  # noqa: B007 - the last one is wanted
        pass
    return last
