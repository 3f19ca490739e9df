"""Events as a client received them: those of a kind, their notices, their text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]


def of_kind(events: Sequence[Event], kind: str) -> list[Event]:
    return [event for event in events if event["type"] == kind]


def notices(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(event["code"], event["message"]) for event in of_kind(events, "notice")]


def streamed(events: Sequence[Event]) -> str:
    return "".join(event.get("text", "") for event in events if event["type"].endswith(".delta"))


def text_of(events: Sequence[Event]) -> str:
    return "".join(event["text"] for event in of_kind(events, "text.delta"))


def notice_codes(events: Sequence[Event]) -> list[str]:
    return [code for code, _ in notices(events)]


def letters_of(events: Sequence[Event]) -> str:
    """The text without its white space."""
    return "".join(text_of(events).split())


def kinds(events: Sequence[Event]) -> list[str]:
    return [event["type"] for event in events]


def end_reason(events: Sequence[Event]) -> str:
    [end] = of_kind(events, "run.finished")
    assert isinstance(end["reason"], str)
    return end["reason"]
