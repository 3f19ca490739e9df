"""The event of labels that a conversation gets."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct


class LabelsAdded(Struct, frozen=True):
    """The conversation has these labels from here on, besides those that it had.

    `source` says why: `mark`, `path`, `server`, `memory` or `call`; `call` is the call that brought them.
    """

    type: ClassVar[str] = "labels.added"
    labels: list[str]
    source: str
    call: str | None = None
