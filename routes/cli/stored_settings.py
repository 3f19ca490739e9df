"""The changes of settings that a server has stored, for `dragoman config`."""

from __future__ import annotations

import sys

from msgspec.structs import replace

from app.config.runtime_changes import RuntimeSettings
from app.config.settings import Loaded
from app.storage.database import DATABASE
from app.storage.store import Store
from routes.cli.columns import config_table
from routes.cli.tokens import with_store

ORIGIN = "changed while the server ran (PATCH /settings)"


def print_config(loaded: Loaded) -> Loaded:
    """Print the settings in force, and return them."""
    loaded = with_stored_changes(loaded)
    print(config_table(loaded))
    return loaded


def with_stored_changes(loaded: Loaded) -> Loaded:
    """Return the settings as a server with this database has them. No file is made."""
    if not (loaded.settings.postgres_url or (loaded.settings.data_dir / DATABASE).exists()):
        return loaded
    found: list[Loaded] = []

    async def read(store: Store) -> int:
        stored = RuntimeSettings(loaded.settings, store)
        for problem in await stored.load():
            print(problem, file=sys.stderr)
        origins = {**loaded.origins, **dict.fromkeys(stored.changes, ORIGIN)}
        found.append(replace(loaded, settings=stored.current, origins=origins))
        return 0

    with_store(loaded, read)
    return found[0] if found else loaded
