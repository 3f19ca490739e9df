"""What the store in PostgreSQL has of its own: how it is opened, what its failures say, and what it survives."""

from __future__ import annotations

import pytest

from app.storage.postgres.store import PostgresStore
from tests.postgres import Cluster

pytestmark = pytest.mark.anyio


async def test_it_opens_over_a_socket(postgres: Cluster) -> None:
    name = postgres.database().rpartition("/")[2]
    store = await PostgresStore.open(postgres.socket_url(name))
    await store.check()
    await store.close()
