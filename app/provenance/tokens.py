"""Tokens of a text in the form in which they are compared: words, and the addresses, numbers and paths in it.

Each is one token, however it is written: `1,250.00` and `1.250,00` are 1250, an IBAN has no spaces, a host no capitals.
Every alternative of the pattern is bounded, so the time is linear in the length of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from app.transcript.stop_words import STOP_WORDS
from tools.base.patterns import lazy_pattern

TELLS, CHARACTER = 3, 1  # the weight of a word, and one character of a script that writes no spaces
LEAST = 9  # the weight of a passage that is more than a common phrase
YEARS = range(1900, 2100)

_TOKEN = lazy_pattern(
    r"(?P<url>(?:https?|wss?|s?ftp|ssh|git|file)://[^\s<>\"'`{}|\\^]{1,2000}+)"
    r"|(?P<mail>[\w.+%-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+){1,8}+)"
    r"|(?P<digits>(?<![\w.])(?:[A-Za-z]{2}\d{2} ?[A-Za-z\d]{4}(?: ?\d{4}){1,6}(?: ?\d{1,3})?"
    r"|\+\d[\d ()/.-]{5,18}\d|\d{4}(?:[ -]\d{4}){2,3})(?!\w))"
    r"|(?P<number>(?<!\d,)(?:(?<![^\s(=:\[,])[-\u2212])?(?:\d{1,3}(?: \d{3})+[.,]\d{1,2}"
    r"|\d{1,3}(?:[.,'\u2019\u00a0\u202f]\d{3}){1,8}(?:[.,]\d{1,9}+)?|\d{1,40}+(?:[.,]\d{1,20}+)?)"
    r"(?!\w|[-.:/#@+]\w|,\d))"
    r"|(?P<path>(?:~|\.{1,2}|[A-Za-z]:)?(?:[\\/]{1,2}[\w.@%+~=-]{1,128}+){1,40}+[\\/]?"
    r"|[\w.@%+~-]{1,128}+(?:[\\/]{1,2}[\w.@%+~=-]{1,128}+){1,40}+[\\/]?)"
    r"|(?P<character>[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])"
    r"|(?P<word>\w{1,256}+(?:(?:[-.'\u2019+#&]|(?<=\d):(?=\d))\w{1,256}+){0,16}+)"
)
_TRAILING = ".,;:!?)]*_-"
_NO_DIGITS = lazy_pattern(r"[^\w+]+")
_HOST = lazy_pattern(r"[a-z]+://(?:[^/?#]*@)?(?:www\.)?([^/?#:]+)")
# Endings of hosts, without which a name with a dot is none.
_DOMAINS = """
com org net io de at ch eu uk fr es it nl pl se us ca au jp cn ru br in info biz dev app ai co me tv gov edu mil xyz
online site top shop cloud link onion example test invalid local internal
"""
DOMAINS = frozenset(_DOMAINS.split())
# Words that letters and offices have in common, beside the words of grammar.
_USUAL = """
again any anything ask attached attachment available back below best call change check click come contact copy dear
details due email file files find finds first follow following free further give go good great happy hear hearing
help here hesitate hope i'd i'll i'm i've interest keep kind kindly last latest link list look looking forward mail make
many may message might morning most much must name need new next number one open part per question questions read
regarding regards reply request response review say see send sending set share sincerely soon sorry sure take team
time today tomorrow touch two update use very want way week well wish work write yesterday yours
anbei angehängt anhang bald beste bitten datei freundlichen freundliche freundlicher fragen gern gerne grüße
grüßen guten heute lieber liebe melden morgen nachricht sehen senden vielen viele weitere weiteren wünschen
false true null none ok
"""
ORDINARY = frozenset(map(str.casefold, (*STOP_WORDS, *_USUAL.split())))


class Token(Struct, frozen=True, array_like=True):
    """`key` is what is compared, `start` and `end` its place; `parts` are others that it stands for: host, base name.

    `single`: by itself it tells where it comes from, as an address does and a word does not.
    """

    key: str
    start: int
    end: int
    tells: int = TELLS
    single: bool = False
    parts: tuple[str, ...] = ()


def tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        kind, written = match.lastgroup, match[0]
        start = match.start()
        if kind == "word":
            key = written.casefold()
            tells, single = _of_word(key)
            yield Token(key, start, match.end(), tells, single)
        elif kind == "character":
            yield Token(written, start, match.end(), CHARACTER)
        elif kind == "digits":
            yield Token(_NO_DIGITS.sub("", written).casefold(), start, match.end(), single=True)
        elif kind == "number":
            key, *others = numbers(written)
            yield Token(key, start, match.end(), single=_is_telling_number(key), parts=tuple(others))
        else:
            yield _address(kind or "", written.rstrip(_TRAILING) or written, start)


@lru_cache(16_384)
def _of_word(key: str) -> tuple[int, bool]:
    return _tells(key), _is_single(key)


def _tells(key: str) -> int:
    return 0 if len(key) < 2 or key in ORDINARY or key.replace("’", "'").partition("'")[0] in ORDINARY else TELLS


def _is_single(key: str) -> bool:
    if key.isalpha():
        return False
    if len(key) > 4 and not key.isdigit() and any(map(str.isdigit, key)) and any(map(str.isalpha, key)):
        return True
    digits = sum(map(str.isdigit, key))
    return digits > 5 or _is_host(key)


def _is_host(key: str) -> bool:
    return "." in key and key.rpartition(".")[2] in DOMAINS


def _is_telling_number(key: str) -> bool:
    digits = key.lstrip("-")
    return len(digits) > 2 and not (digits.isdigit() and int(digits[:9]) in YEARS)


def _address(kind: str, written: str, start: int) -> Token:
    end = start + len(written)
    if kind == "mail":
        key = written.casefold()
        return Token(key, start, end, single=True, parts=(key.rpartition("@")[2],))
    if kind == "url":
        key = written.rstrip("/")
        host = _HOST.match(key.casefold())
        origin = host.end() if host else 0
        key = key[:origin].casefold() + key[origin:]
        return Token(key, start, end, single=True, parts=(host[1],) if host else ())
    key = "/".join(part for part in written.replace("\\", "/").split("/") if part not in ("", "."))
    key = f"/{key}" if written[:1] in ("/", "\\") else key
    base = key.rpartition("/")[2]
    single = "." in base.strip(".") or key.count("/") > 1
    return Token(key, start, end, single=single, parts=(base,) if "." in base.strip(".") else ())


def numbers(written: str) -> Sequence[str]:
    """The number in one form, and the other one that it can be: `1.250` is 1250, or 1.25."""
    sign = "-" if written[0] in "-\u2212" else ""
    body = written.lstrip("-\u2212")
    for space in (" ", "'", "\u2019", "\u00a0", "\u202f"):
        body = body.replace(space, "")
    marks = [one for one in body if one in ".,"]
    if not marks:
        return [sign + body]
    last = marks[-1]
    whole, _, decimals = body.rpartition(last)
    plain = whole.replace(".", "").replace(",", "")
    grouped = sign + plain + decimals
    decimal = sign + f"{plain.lstrip('0') or '0'}.{decimals}".rstrip("0").rstrip(".")
    if len(marks) > 1 and len(set(marks)) == 1:
        return [grouped]
    if len(marks) == 1 and len(decimals) == 3 and plain != "0":
        return [grouped, decimal]
    return [decimal]
