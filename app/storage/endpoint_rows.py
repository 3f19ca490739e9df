"""What the store keeps of endpoints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """An endpoint that was added at run time; a later row of its name replaces it.

    `spec` is the JSON of `app.core.endpoint_spec.EndpointSpec`; it names the keys' files and holds no key.
    """

    name: str
    spec: str
    by: str
    at: float


@dataclass(frozen=True, slots=True)
class EndpointGone:
    name: str


EndpointChange = EndpointRow | EndpointGone
