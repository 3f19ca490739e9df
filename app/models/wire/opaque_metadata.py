"""Opaque metadata that a server wants back unchanged, such as signatures of reasoning: collected from a stream.

Gemini signs the first call of a reply (https://ai.google.dev/gemini-api/docs/thought-signatures) and refuses a request
whose call has lost its signature. OpenRouter sends the reasoning itself, signed or encrypted, as `reasoning_details`
(https://openrouter.ai/docs/guides/best-practices/reasoning-tokens).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from app.core.messages import OpaqueMetadata
from app.core.provider import MetadataChunk

MOST = 256 * 1024  # characters of JSON per reply; anything beyond is dropped
CALL_FIELDS = frozenset({"index", "id", "type", "function"})  # standard fields of calls; all others are metadata
SIGNED = "extra_content"  # Gemini's, also on a reply without a call
DETAILS = "reasoning_details"
THOUGHT_IN = "thought_in"  # a field of ours: which one of a reply its reasoning came in
LOST = f"what its server wants back with it is longer than {MOST // 1024} KB, and is left out"
STREAMED = ("text", "summary", "data")  # fields of a detail that are streamed
PARTS = "content"  # the field of thoughts that are parts of a reply's content (Mistral)
EMPTY: tuple[object, ...] = (None, "", [], {})


@lru_cache(256)
def origin_of(model: str, url: str) -> str:
    """Return the origin of metadata: other models cannot read it, and other servers of the same model may refuse it."""
    return f"{model} at {urlsplit(url).hostname}"


class MetadataCollector:
    """Collector for one reply."""

    def __init__(self, origin: str = "") -> None:
        self.origin = origin
        self.thought_in = ""
        self.has_lost = False  # something was left out
        self._calls: dict[int, dict[str, Any]] = {}
        self._reply: dict[str, Any] = {}
        self._details: list[ReasoningDetail] | None = []  # None once they are too long: a part of them is useless
        self._left = MOST

    def see_call(self, number: int, fragment: dict[str, Any]) -> None:
        own = {name: value for name, value in fragment.items() if name not in CALL_FIELDS and value not in EMPTY}
        if own and self._fits(own):
            self._calls.setdefault(number, {}).update(own)

    def see_reply(self, delta: dict[str, Any]) -> None:
        signed, details = delta.get(SIGNED), delta.get(DETAILS)
        if signed not in EMPTY and self._fits(signed):
            self._reply[SIGNED] = signed
        for detail in details if isinstance(details, list) else ():
            self._see_detail(detail)

    def of_call(self, number: int) -> Iterator[MetadataChunk]:
        if number in self._calls:
            yield MetadataChunk(OpaqueMetadata(self.origin, self._calls[number]), number)

    def of_reply(self, *, calls: bool) -> Iterator[MetadataChunk]:
        """Yield what the server wants back of a reply; its signature only with `calls`."""
        fields = dict(self._reply) if calls else {}
        if self._details:
            fields[DETAILS] = [detail.whole() for detail in self._details]
        elif self.thought_in and self.origin:
            fields[THOUGHT_IN] = self.thought_in
        if fields:
            yield MetadataChunk(OpaqueMetadata(self.origin, fields))

    def _see_detail(self, detail: Any) -> None:
        if self._details is None or not isinstance(detail, dict) or not detail:
            return
        if not self._fits(detail):
            self._details = None
        elif not (self._details and self._details[-1].append_if_same(detail)):
            self._details.append(ReasoningDetail(detail))

    def _fits(self, value: Any) -> bool:
        try:
            size = len(json.dumps(value, allow_nan=False))
        except (ValueError, RecursionError):  # not valid JSON, so it cannot be sent back
            return False
        self.has_lost |= size > self._left
        if size > self._left:
            return False
        self._left -= size
        return True


class ReasoningDetail:
    """One of OpenRouter's reasoning details; adjacent ones with the same type and index are fragments of it."""

    def __init__(self, first: dict[str, Any]) -> None:
        self._fields: dict[str, Any] = {}
        self._streamed: dict[str, list[str]] = {}
        self._take(first)

    def append_if_same(self, piece: dict[str, Any]) -> bool:
        """Append the fragment if it continues this detail; return whether it does."""
        known = self._fields
        same = piece.get("index") is not None and all(piece.get(name) == known.get(name) for name in ("type", "index"))
        if not same or piece.get("id") not in (None, known.get("id")):
            return False
        self._take(piece)
        return True

    def whole(self) -> dict[str, Any]:
        return self._fields | {name: "".join(pieces) for name, pieces in self._streamed.items()}

    def _take(self, piece: dict[str, Any]) -> None:
        for name, value in piece.items():
            if name in STREAMED and isinstance(value, str):
                self._streamed.setdefault(name, []).append(value)
            elif value is not None or name not in self._fields:
                self._fields[name] = value
