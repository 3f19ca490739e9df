"""Stand-ins for secrets in recordings: a mark that says which secret stood there, of what kind, and never the secret.

The log has `[redacted]` for every secret, so a log alone could not show that a secret is hidden. A recording has
`⟦secret 2⟧`: when the run is played again, a made-up secret of the same kind takes its place, which is hidden as the
first one was. The same secret has the same number within a run; the numbers are kept in memory only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any

from app.policy.canary import Canary
from app.redaction.redactor import Redactor
from tools.base.patterns import lazy_pattern

TOKEN, SECRET, CODE = "token", "secret", "code"
_MARK = lazy_pattern(r"⟦(token|secret|code) (\d{1,6})⟧")
_OUR_TOKEN = lazy_pattern(r"dgm_[A-Za-z0-9_-]*")
Change = tuple[int, int, str]
"""A place in a text, from and to, and what stands there instead."""


class StandIns:
    """Replaces secrets by marks, for one run."""

    def __init__(self, redactors: Sequence[Redactor]) -> None:
        # The prompt is recorded as well: that it has the code is no leak.
        self._redactors = [one.apart() if isinstance(one, Canary) else one for one in redactors]
        self._numbers: dict[str, int] = {}

    def changes(self, text: str) -> list[Change]:
        """Return where secrets stand, and their marks."""
        found = list[Change]()
        for redactor in self._redactors:
            if not redactor.is_clean(text):
                found += self._of(redactor, text)
        return _without_overlaps(sorted(found))

    def hidden(self, text: str) -> str:
        return applied(text, changes) if (changes := self.changes(text)) else text

    def hidden_in(self, value: Any) -> Any:
        """Return JSON with marks for the secrets in its texts, keys included."""
        return mapped(value, self.hidden)

    def _of(self, redactor: Redactor, text: str) -> Iterator[Change]:
        for start, end in redactor.look_at_end(text)[0]:
            secret = text[start:end]
            kind = CODE if isinstance(redactor, Canary) else TOKEN if _OUR_TOKEN.fullmatch(secret) else SECRET
            number = self._numbers.setdefault(secret, len(self._numbers) + 1)
            yield start, end, f"⟦{kind} {number}⟧"


class MadeUp:
    """Puts made-up secrets in place of marks. `learn` takes each, for a redactor; `code` is that of a canary."""

    def __init__(self, learn: Callable[[str], None], code: str) -> None:
        self._learn = learn
        self._code = code
        self._secrets: dict[str, str] = {}  # by their marks

    def changes(self, text: str) -> list[Change]:
        if "⟦" not in text:
            return []
        return [(*found.span(), self._secret(found[0], found[1], found[2])) for found in _MARK.finditer(text)]

    def shown(self, text: str) -> str:
        return applied(text, changes) if (changes := self.changes(text)) else text

    def shown_in(self, value: Any) -> Any:
        return mapped(value, self.shown)

    def _secret(self, mark: str, kind: str, number: str) -> str:
        if kind == CODE:
            return self._code
        if mark not in self._secrets:
            digest = sha256(f"{kind} {number}".encode()).hexdigest()
            self._secrets[mark] = secret = f"dgm_{digest[:43]}" if kind == TOKEN else f"made-up-{digest[:24]}"
            if kind == SECRET:  # a token is known by its shape
                self._learn(secret)
        return self._secrets[mark]


def applied(text: str, changes: Sequence[Change]) -> str:
    parts, end = list[str](), 0
    for start, behind, instead in changes:
        parts += text[end:start], instead
        end = behind
    return "".join([*parts, text[end:]])


def borders_of(sizes: Sequence[int], changes: Sequence[Change]) -> list[int]:
    """Return the sizes of pieces after these changes: a border inside of a changed part stays inside of it."""
    if not changes:
        return list(sizes)
    borders, end = list[int](), 0
    for size in sizes:
        end += size
        borders.append(_moved(end, changes))
    return [now - before for before, now in zip([0, *borders], borders, strict=False)]


def _moved(border: int, changes: Sequence[Change]) -> int:
    shift = 0
    for start, end, instead in changes:
        if border >= end:
            shift += len(instead) - (end - start)
        elif border > start:
            return start + shift + (border - start) * len(instead) // (end - start)
    return border + shift


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with each text changed."""
    match value:
        case str():
            return change(value)
        case dict():
            return {change(key): mapped(one, change) for key, one in value.items()}
        case list() | tuple():
            return [mapped(one, change) for one in value]
    return value


def _without_overlaps(changes: list[Change]) -> list[Change]:
    kept = list[Change]()
    for one in changes:
        if kept and one[0] < kept[-1][1]:
            kept[-1] = (kept[-1][0], max(kept[-1][1], one[1]), kept[-1][2])
        else:
            kept.append(one)
    return kept
