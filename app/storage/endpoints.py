"""Model endpoints that were added at run time."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class EndpointRow(Change, frozen=True):
    """An endpoint that was added at run time; a later row of its name replaces it.

    `spec` is the JSON of `app.core.endpoint_spec.EndpointSpec`; it names the keys' files and holds no key.
    """

    name: str
    spec: str
    by: str
    at: float


class EndpointRemoved(Change, frozen=True):
    name: str


class EndpointStore(ChangeWriter, Protocol):
    async def endpoints(self) -> list[EndpointRow]:
        """All of them, oldest first."""
