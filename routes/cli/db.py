"""`dragoman db`: how large the database is, make it smaller, take a session out of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from app.config.folders import lock_data_dir
from app.config.settings import Loaded
from app.core.messages import as_json
from app.redaction.redactor import Redactor
from app.storage.database import DATABASE
from app.storage.runs import ALL
from app.storage.store import Store
from routes.cli.tokens import with_store
from routes.http.runs import run_fields
from routes.http.sessions import summary_fields
from routes.services import secrets_of


def show_sizes(loaded: Loaded) -> int:
    """Rows of each table, and the bytes of the whole."""

    async def show(store: Store) -> int:
        for name, count in (await store.sizes()).items():
            print(f"{name:14}{count:>14,}")
        return 0

    return _with_database(loaded, show)


def vacuum(loaded: Loaded) -> int:
    """Give the room of deleted rows back to the disk. Exit code 1 while a server uses it."""

    async def shrink(store: Store) -> int:
        with lock_data_dir(loaded.settings.data_dir):  # its writes would wait for us until they fail
            before = (await store.sizes())["bytes"]
            await store.vacuum()
        print(f"{before:,} bytes before, {(await store.sizes())['bytes']:,} now")
        return 0

    return _with_database(loaded, shrink)


def export(loaded: Loaded, session: str) -> int:
    """A session as JSON: its messages, its runs, and each run's events. Exit code 1 when there is none."""
    return _with_database(loaded, _exporting(session, Redactor(secrets_of(loaded.settings))))


def _exporting(session: str, redactor: Redactor) -> Callable[[Store], Awaitable[int]]:
    async def write(store: Store) -> int:
        row = await store.session(session)
        if row is None:
            print(f"dragoman: there is no session {session!r}", file=sys.stderr)
            return 1
        runs = [
            run_fields(run) | {"events": [json.loads(event.data) for event in await store.events(run.id, 0, ALL)]}
            for run in await store.runs(session)
        ]
        messages = [as_json(message) for message in await store.messages(session)]
        summaries = [summary_fields(one) for one in await store.summaries(session)]
        whole: dict[str, Any] = {"id": row.id, "principal": row.principal, "title": row.title, "created": row.created}
        # Also what has become a secret since it was written.
        whole |= {"messages": messages, "summaries": summaries, "runs": runs}
        print(json.dumps(redactor.redact_value(whole), indent=1))
        return 0

    return write


def _with_database(loaded: Loaded, work: Callable[[Store], Awaitable[int]]) -> int:
    """Run an action on an existing database; a mistyped folder is an error and creates nothing."""
    path = loaded.settings.data_dir / DATABASE
    if not path.exists():
        print(f"dragoman: there is no database {path}. --data-dir or DRAGOMAN_DATA_DIR says where.", file=sys.stderr)
        return 1
    return with_store(loaded, work)
