"""Sensitivity labels: of sessions, and of files that calls of labelled conversations have written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class SessionLabel(Change, frozen=True):
    """A label of a session, which stays. `source` is that of the event `labels.added`, `detail` what brought it."""

    session: str
    label: str
    source: str
    detail: str
    run: str
    at: float


class FileLabel(Change, frozen=True):
    """A label of a file or folder, with all that lies in it.

    `path` is relative to the `workspace` of admins, normalised. With a `call` it holds while that one may write.
    """

    workspace: str
    path: str
    label: str
    call: str = ""


class CallLabelsEnded(Change, frozen=True):
    """The labels that held while this call could write are not needed any more: what it has written has its own."""

    call: str


class LabelStore(ChangeWriter, Protocol):
    async def session_labels(self, sessions: Sequence[str]) -> list[SessionLabel]:
        """The labels of these sessions, the oldest first."""

    async def file_labels(self, workspace: str) -> list[FileLabel]:
        """The labels of all files of a workspace."""
