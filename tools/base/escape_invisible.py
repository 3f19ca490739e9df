"""Removal of invisible characters: a model reads them, a person does not, so they can hide injected instructions."""

from __future__ import annotations

import regex

_HIDDEN = r"[\p{Cf}\p{Default_Ignorable_Code_Point}]"
_SEEN = r"(?<=[^\x00-\xff\p{Cf}\p{Default_Ignorable_Code_Point}])"
_UNSEEN = regex.compile(
    # One joiner between two visible characters spells Persian, Hindi and families of emoji; one selector after a
    # visible character chooses between text and emoji. Whatever else is invisible goes.
    rf"(?P<kept>{_SEEN}\ufe0f?[\u200c\u200d](?=[^\x00-\xff\p{{Cf}}\p{{Default_Ignorable_Code_Point}}])"
    rf"|(?:{_SEEN}|(?<=[0-9\#*©®]))[\ufe0e\ufe0f](?!{_HIDDEN}))"
    rf"|{_HIDDEN}|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|[\u2800]"
)


def visible(text: str) -> str:
    """The text without control, format, tag and filler characters, bidirectional overrides and lone joiners."""
    return _UNSEEN.sub(lambda found: found["kept"] or "", text)
