"""Discover a model server that already runs on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx2
from msgspec import Struct

from app.models.capabilities.model_list import NoModelList, chat_model, model_names
from app.models.capabilities.server_profiles import PROFILES, Profile

PROBE_LIMIT_S = 0.3


KNOWN_SERVERS = tuple(row for row in PROFILES if row.port)


class DiscoveredServer(Struct, frozen=True):
    """A server that answered, with its first model."""

    server: Profile
    model: str


async def discover(client: httpx2.AsyncClient, servers: Sequence[Profile] = KNOWN_SERVERS) -> DiscoveredServer | None:
    """Return the first server of the table that lists a model within 0.3 s. All are probed concurrently."""
    found = await asyncio.gather(*(probe_server(client, server) for server in servers))
    return next((one for one in found if one), None)


async def probe_server(client: httpx2.AsyncClient, server: Profile) -> DiscoveredServer | None:
    try:
        async with asyncio.timeout(PROBE_LIMIT_S):
            model = chat_model(await model_names(client, server.base_url))
    except (TimeoutError, httpx2.HTTPError, NoModelList):
        return None  # nothing listens there, or something else
    return DiscoveredServer(server, model) if model else None
