"""Ids of native calls: the servers' own, and what servers and clients take.

Each server gets the ids that it gave back byte for byte. Chat templates show them to the model: Kimi K2 numbers its
calls `functions.bash:0`, and may stop calling when it reads ids of another form. Other servers get the id of the
session or of the client. Every id of a request is used once: Moonshot and Anthropic refuse one that two calls have,
although servers do give `call_0` in each round.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence

from app.core.messages import AskedCall, Message
from app.models.wire.native_calls import NATIVE
from tools.base.patterns import lazy_pattern

LONGEST_ID = 64
PACKED = "given_"
NINE = lazy_pattern(r"[a-zA-Z0-9]{9}")  # Mistral's servers and templates take no other ids
PLAIN = lazy_pattern(r"[a-zA-Z0-9_-]{1,64}")  # Anthropic's servers and clients
SAFE = lazy_pattern(r"(?!\.+$)[a-zA-Z0-9_.:-]{1,64}")  # in URLs, and for all other clients
_OPENAI = 40  # characters: "Expected a string with maximum length 40"
_NUMBERED = lazy_pattern(r"(.*[^0-9])([0-9]{1,9})")

TakesId = Callable[[str], bool]


def takes_short_ids(id: str) -> bool:
    return 0 < len(id) <= LONGEST_ID


def takes_openai(id: str) -> bool:
    return 0 < len(id) <= _OPENAI


def takes_nine(id: str) -> bool:
    return NINE.fullmatch(id) is not None


def takes_plain(id: str) -> bool:
    return PLAIN.fullmatch(id) is not None


def takes_for(*, mistral: bool, openai: bool) -> TakesId:
    """Return the rule of a server with chat completions."""
    return takes_nine if mistral else takes_openai if openai else takes_short_ids


class CallIds:
    """The ids of the calls in one request, each used once.

    `origin` is the server that the request goes to; without one, ids only become different from each other. `takes_id`
    says which of others' ids it takes.
    """

    def __init__(self, takes_id: TakesId = takes_short_ids, origin: str = "") -> None:
        self._takes_id = takes_id
        self._origin = origin
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}  # the next one by what stands before it: many calls may have the same id
        self._tries: dict[str, int] = {}

    def of(self, call: AskedCall) -> str:
        """Return the id of the next call: the same in each request with the same calls before it."""
        given = call.given if self._origin and call.giver == self._origin else ""
        own = [unpacked(call.id), call.id] if self._origin else [call.id]
        wanted = [given, *filter(self._takes_id, own)] if given else filter(self._takes_id, own)
        id = next(filter(None, map(self._unused, wanted)), None) or self._made(call.id)
        self._used.add(id)
        return id

    def take(self, id: str) -> str | None:
        """Return this id, or another in its place; None if it is used, and has no number that others could have."""
        if found := self._unused(id):
            self._used.add(found)
        return found

    def _unused(self, id: str) -> str | None:
        """Return the id, or with the next number if it is used already."""
        if id not in self._used:
            return id
        found = _NUMBERED.fullmatch(id)
        if found is None:
            return None
        stem, number = found[1], self._numbers.get(found[1], int(found[2]) + 1)
        while f"{stem}{number}" in self._used:
            number += 1
        self._numbers[stem] = number + 1
        return f"{stem}{number}" if self._takes_id(f"{stem}{number}") else None

    def _made(self, id: str) -> str:
        """Return an id of nine letters and digits, made of one that is used or refused."""
        while True:
            tries = self._tries.get(id, 0)
            self._tries[id] = tries + 1
            made = f"c{hashlib.sha256(f'{tries} {id}'.encode('utf-8', 'replace')).hexdigest()[:8]}"
            if made not in self._used:
                return made


def call_ids(history: Sequence[Message], takes_id: TakesId, origin: str) -> dict[str, str]:
    """Return the id that the server `origin` gets for each native call, by the call's id."""
    ids = CallIds(takes_id, origin)
    return {call.id: ids.of(call) for message in history for call in message.calls if call.dialect == NATIVE}


def id_for_client(given: str) -> str:
    """Return a server's id as clients get it who keep their history themselves; "" if they cannot get it.

    One that would be unsafe in a URL is packed, so that it can come back.
    """
    if SAFE.fullmatch(given) and not given.startswith(PACKED):
        return given
    return packed(given) if takes_short_ids(given) and given.isprintable() else ""


def plain_for_client(id: str) -> str:
    """Return an id with letters, digits, `_` and `-` alone, for clients of Anthropic's format."""
    return id if takes_plain(id) or not takes_short_ids(id) else packed(id)


def packed(id: str) -> str:
    return PACKED + base64.urlsafe_b64encode(id.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def unpacked(id: str) -> str:
    """Return the server's id in one that `packed` has made; any other id as it is."""
    text = id.removeprefix(PACKED)
    if text == id or len(text) > 6 * LONGEST_ID:
        return id
    try:
        given = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return id
    return given if takes_short_ids(given) and given.isprintable() else id
