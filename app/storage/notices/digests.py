"""Titles and summaries of sessions that a model writes, and the jobs that ask for them."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter

DUE, ASKED, DONE, FAILED = "due", "asked", "done", "failed"  # states


class DigestRow(Change, frozen=True):
    """The digest of a session: its title and summary, of its first `messages`, as they were generated last."""

    session: str
    principal: str
    run: str
    state: str
    messages: int = 0
    title: str = ""
    summary: str = ""


class DigestDue(Change, frozen=True):
    """A run of a session was answered: its digest is to be looked at."""

    session: str
    principal: str
    run: str


class DigestState(Change, frozen=True):
    session: str
    state: str


class DigestDone(Change, frozen=True):
    session: str
    state: str
    messages: int
    title: str
    summary: str


class SessionRetitled(Change, frozen=True):
    """A session gets a title, unless it has another one than `before`."""

    id: str
    title: str
    before: str


class DigestStore(ChangeWriter, Protocol):
    async def next_digest(self) -> DigestRow | None:
        """A digest that is due."""

    async def asked_digests(self) -> list[DigestRow]:
        """Digests whose request to the model had no end that was stored."""

    async def session_summaries(self, principal: str) -> dict[str, str]:
        """Generated summaries by session."""
