"""`dragoman token`: access tokens for people and programs that are not on this machine."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from app.people import Role
from app.settings import Loaded
from app.store import Store, StoreFailed, TokenRow
from app.store.sqlite import SQLiteStore
from routes.access import fingerprint, new_token
from routes.services import DATABASE

MADE = """{token}

This is {name}'s token. It is shown only now: the server keeps a fingerprint of it.
From now on every request needs the header  Authorization: Bearer TOKEN
"""


def create_token(loaded: Loaded, name: str) -> int:
    """Make an admin's token and print it, once. Exit code 1 when it cannot be stored."""

    async def create(store: Store) -> int:
        token = new_token()
        await store.write([TokenRow(fingerprint(token), name, Role.ADMIN, time.time())])
        print(MADE.format(token=token, name=name))
        return 0

    return with_store(loaded, create)


def list_tokens(loaded: Loaded) -> int:
    async def show(store: Store) -> int:
        for row in await store.tokens():
            print(f"{row.name}  {row.role}  {datetime.fromtimestamp(row.created, UTC):%Y-%m-%d}")
        return 0

    return with_store(loaded, show)


def with_store(loaded: Loaded, work: Callable[[Store], Awaitable[int]]) -> int:
    """Do something with the database, whether a server uses it or not; exit code 1 when it cannot be used."""

    async def main() -> int:
        store = await SQLiteStore.open(loaded.settings.data_dir / DATABASE)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(main())
    except StoreFailed as failure:
        print(f"dragoman: {failure}", file=sys.stderr)
        return 1
