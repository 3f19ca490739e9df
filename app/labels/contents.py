"""Labels by content: text with an IBAN, a card number or a mail address, or one that a pattern of the operator finds.

A check digit decides where there is one: sixteen digits of an order are no card. A pattern that takes too long counts
as found, as it cannot be shown that nothing is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import regex
from msgspec import Struct

from app.core.labels import LabelPolicy, Labels
from app.core.messages import Message

LIMIT_S = 0.5  # of one pattern in the texts of one look
_SPACE = "[ \u00a0\u202f-]"
_IBAN = regex.compile(rf"(?<![A-Za-z0-9])[A-Z]{{2}}[0-9]{{2}}(?:{_SPACE}?[A-Z0-9]){{11,30}}", regex.I | regex.A)
# Characters of an IBAN by country, of the registry of ISO 13616.
_REGISTRY = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 "
    "EE20 EG29 ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 "
    "JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 "
    "NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 "
    "TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE24"
)
_LENGTHS = {one[:2]: int(one[2:]) for one in _REGISTRY.split()}
# In one piece, or in the groups that are printed on cards: 4 4 4 4, with up to three digits behind, 4 6 5 and 4 6 4.
_CARD = regex.compile(
    rf"(?<![A-Za-z0-9])(?:[0-9]{{13,19}}|[0-9]{{4}}(?:{_SPACE}[0-9]{{4}}){{3}}(?:{_SPACE}[0-9]{{1,3}})?"
    rf"|[0-9]{{4}}{_SPACE}[0-9]{{6}}{_SPACE}[0-9]{{4,5}})(?![A-Za-z0-9])"
)
_GROUPS = 19  # characters of 4 4 4 4; what follows may be the date or the code of the card
_MAIL = regex.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[\p{L}]{2,63}(?![\w-])")


def _is_iban(text: str) -> bool:
    """Check the length and the check digits of an IBAN, with which the text begins; words may follow behind a space."""
    if not (length := _LENGTHS.get(text[:2].upper(), 0)):
        return False
    at = [place for place, character in enumerate(text) if character.isalnum()]
    if len(at) < length or (len(at) > length and at[length] == at[length - 1] + 1):
        return False
    spelled = "".join(text[place] for place in at[:length])
    return int("".join(str(int(one, 36)) for one in spelled[4:] + spelled[:4])) % 97 == 1


def _is_card(text: str) -> bool:
    return any(map(_is_checked, {text, text[:_GROUPS]}))


def _is_checked(text: str) -> bool:
    """Check the last digit of a card's number (ISO/IEC 7812, the formula of Luhn)."""
    digits = [int(character) for character in reversed(text) if character.isdecimal()]
    doubled = (digit * 2 - 9 * (digit > 4) for digit in digits[1::2])
    return len(set(digits)) > 1 and (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _always(_: str) -> bool:
    return True


# The names that `contains` may have, which are those of `app.core.labels.Content`.
DETECTORS: dict[str, tuple[regex.Pattern[str], Callable[[str], bool]]] = {
    "iban": (_IBAN, _is_iban),
    "card_number": (_CARD, _is_card),
    "email_address": (_MAIL, _always),
}


class _Row(Struct, frozen=True):
    label: str
    pattern: Any  # regex.Pattern[str], which is no type of a field
    check: Callable[[str], bool]

    def is_in(self, texts: Sequence[str]) -> bool:
        # Without the interpreter's lock; overlapped, because what only looks alike may end within what is sought.
        find = partial(self.pattern.finditer, overlapped=True, timeout=LIMIT_S, concurrent=True)
        try:
            return any(self.check(found[0]) for text in texts for found in find(text))
        except TimeoutError:
            return True


class Contents(Struct, frozen=True):
    """Labels of texts by their content; empty for a policy without such sources."""

    rows: tuple[_Row, ...] = ()

    @classmethod
    def of(cls, policy: LabelPolicy) -> Contents:
        rows = [(one.label, *DETECTORS[name]) for one in policy.sources for name in one.contains]
        rows += [(one.label, regex.compile(pattern), _always) for one in policy.sources for pattern in one.patterns]
        return cls(tuple(_Row(label, pattern, check) for label, pattern, check in rows))

    def labels(self, messages: Iterable[Message], known: Labels) -> Labels:
        """Return the labels of these messages besides those that are known."""
        rows = [row for row in self.rows if row.label not in known]
        read = list(messages) if rows else []
        texts = [text for one in read for text in (one.text, one.recalled, *(file.text for file in one.attachments))]
        return frozenset(row.label for row in rows if row.is_in(texts))
