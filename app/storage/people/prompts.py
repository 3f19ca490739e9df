"""Prompts that a person has stored, and the defaults of a person's new conversations."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class PromptRow(Change, frozen=True):
    """A later row of the same owner and name replaces it."""

    owner: str
    name: str
    about: str
    text: str
    updated: float


class PromptRemoved(Change, frozen=True):
    owner: str
    name: str


class PreferencesRow(Change, frozen=True):
    """`options`: JSON of what the page gives to new conversations of this person."""

    owner: str
    options: str
    updated: float


class PromptStore(ChangeWriter, Protocol):
    async def prompts(self, owner: str) -> list[PromptRow]:
        """The prompts of a person, by name."""

    async def prompt(self, owner: str, name: str) -> PromptRow | None: ...

    async def preferences(self, owner: str) -> PreferencesRow | None: ...
