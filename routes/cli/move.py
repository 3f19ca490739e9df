"""`dragoman db move`: everything from SQLite to PostgreSQL, or back."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from app.config.folders import lock_data_dir
from app.config.replica_settings import SCHEMES
from app.config.settings import Loaded, Settings
from app.storage.changes import StoreFailed
from app.storage.database import DATABASE, named_driver

if TYPE_CHECKING:
    from app.storage.transfer.move import Moved

HASH = 16  # characters of a hash that are shown: anyone who wants more compares the rows
NO_SOURCE = "Set DRAGOMAN_DATABASE_URL to the database to read, or name the URL of one to fill."


def add_move(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    help_text = "move everything from SQLite to PostgreSQL or back; stop all servers first"
    moving = actions.add_parser("move", help=help_text, allow_abbrev=False)
    target = "URL of an empty PostgreSQL database, or a new file for what DRAGOMAN_DATABASE_URL names"
    moving.add_argument("target", metavar="TARGET", help=target)
    return moving


def move(loaded: Loaded, target: str) -> int:
    """Move the database to where `target` says. Raises StoreFailed."""
    with lock_data_dir(loaded.settings.data_dir):
        if target.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
            return _to_postgres(loaded.settings, target)
        return _to_sqlite(loaded.settings, Path(target))


def _to_postgres(settings: Settings, url: str) -> int:
    database = settings.data_dir / DATABASE
    if not database.exists():
        raise StoreFailed(f"There is no database {database}. Set --data-dir or DRAGOMAN_DATA_DIR.")
    with named_driver():  # an extra, and 40 ms of a start
        from app.storage.postgres.database import place_of
        from app.storage.transfer.move import move_to_postgres
    _show(asyncio.run(move_to_postgres(database, url)))
    print(f"All of it is now in {place_of(url)}. Set DRAGOMAN_DATABASE_URL to that database, then start the server.")
    print(
        f"{database} is unchanged except for a mark: a server that uses it again ends the runs that were in progress."
    )
    return 0


def _to_sqlite(settings: Settings, file: Path) -> int:
    if settings.postgres_url is None:
        raise StoreFailed(NO_SOURCE)
    with named_driver():
        from app.storage.transfer.move import move_to_sqlite
    _show(asyncio.run(move_to_sqlite(settings.postgres_url, file)))
    own = settings.data_dir / DATABASE
    place = "" if file.resolve() == own.resolve() else f"Move it to {own}. "
    print(f"All of it is now in {file}. {place}Unset DRAGOMAN_DATABASE_URL, then start the server.")
    print("PostgreSQL keeps it, with a mark: servers that use it again end the runs that were in progress.")
    return 0


def _show(moved: Moved) -> None:
    for table in moved.tables:
        print(f"{table.name:22}{table.rows:>14,}  {table.hash[:HASH]}")
    print(f"{moved.runs:,} runs compared event by event, and every table row by row: both databases have the same.")
    for table in moved.tables:
        if table.replaced:
            print(
                f"{table.name}: {table.replaced:,} texts contained NUL or invalid UTF-8, replaced by U+FFFD.",
                file=sys.stderr,
            )
    if moved.left:
        print(f"Left behind: {moved.left:,} events of runs that are deleted.", file=sys.stderr)
