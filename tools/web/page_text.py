"""Decoding of loaded pages: text content types, their encoding, and the visible text."""

from __future__ import annotations

import codecs
import re

from tools.base.escape_invisible import visible
from tools.base.outcome import ToolFailed
from tools.base.patterns import lazy_pattern
from tools.web.html_text import Page, readable

_HTML = ("text/html", "application/xhtml+xml")
_TEXT = lazy_pattern(
    r"text/[\w.+-]+|application/([\w.-]+\+)?(json|xml|yaml)"
    r"|application/(x-)?(ndjson|jsonlines|javascript|ecmascript|yaml|toml|sql|sh|tex|latex)"
)
_STREAMS = ("text/event-stream",)
_PROBE = 1_024
_DECLARED = lazy_pattern(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})|<\?xml[^>]{0,100}?encoding=[\"']([\w.:-]{1,40})", re.I
)
# The encodings of the web, by Python's names. Python has others, and some take a very long time.
_NAMES = (
    "utf-8 utf-16 utf-16-le utf-16-be gbk gb18030 gb2312 hz big5 big5hkscs euc_jp euc_kr cp949 iso2022_jp shift_jis "
    "cp932 koi8-r koi8-u mac-roman mac-cyrillic cp866 cp874 tis-620 ascii cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 "
    "cp1256 cp1257 cp1258 iso8859-1 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-9 "
    "iso8859-10 iso8859-11 iso8859-13 iso8859-14 iso8859-15 iso8859-16"
)
_ENCODINGS = frozenset(_NAMES.split())
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# Pages that declare Latin-1 use its superset, as browsers do (WHATWG Encoding, names and labels)
_WIDER = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}


def media_type(content_type: str) -> str:
    """The type that a header names, in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_text(kind: str) -> bool:
    """Return whether a content type is text. A missing one is detected later."""
    return not kind or (kind not in _STREAMS and bool(_TEXT.fullmatch(kind)))


def text_of(raw: bytes, content_type: str, url: str, time_limit_s: float, *, cut: bool = False) -> Page:
    """Return the visible text of a body that may be cut off. Blocks: call it in a thread."""
    kind = media_type(content_type)
    text = _decoded(raw, content_type, cut=cut)
    if not kind:
        kind = "text/html" if text[:_PROBE].lstrip().lower().startswith(("<!doctype html", "<html")) else "text/plain"
    if kind not in _HTML:
        return Page("", visible(text))
    page = readable(text, url, time_limit_s)
    return Page(visible(page.title), visible(page.text), page.hidden, page.cut)


def _decoded(raw: bytes, content_type: str, *, cut: bool) -> str:
    for mark, name in _BOMS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(name, "replace")
    declared = re.search(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", content_type, re.IGNORECASE)
    name = _encoding(declared[1] if declared else "")
    if not name and (written := _DECLARED.search(raw[:_PROBE])):
        name = _encoding((written[1] or written[2]).decode("ascii", "replace"))
        # The declaration was readable as ASCII, so the page is not UTF-16.
        name = "utf-8" if name.startswith("utf-16") else name
    if not name.startswith("utf-16") and b"\0" in raw[:_PROBE]:
        raise ToolFailed("This is a binary file, not text", ": look for a page about it.")
    return raw.decode(name, "replace") if name else _guessed(raw, cut=cut)


def _guessed(raw: bytes, *, cut: bool) -> str:
    """UTF-8 where it is valid, else what Western pages were written in."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw, final=not cut)
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def _encoding(label: str) -> str:
    """Python's name of an encoding of the web; empty when there is none."""
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return ""
    return _WIDER.get(name, name) if name in _ENCODINGS else ""
