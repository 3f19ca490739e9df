"""`dragoman db`: the size of the database, make it smaller, export a session, back it up, restore it, move it.

`dragoman import` is the other way: conversations of other programs, into the running server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

from app.checkpoints import retention
from app.config.folders import lock_data_dir
from app.config.settings import Loaded
from app.core.messages import as_json
from app.redaction.redactor import Redactor
from app.storage.changes import StoreFailed
from app.storage.checkpoints import CheckpointStore
from app.storage.database import CHECKPOINTS, DATABASE
from app.storage.runs import ALL
from app.storage.store import Store
from app.storage.transfer.backup import back_up, restore
from routes.cli.columns import failed
from routes.cli.move import add_move, move
from routes.cli.remote import Refusal, Remote, server_flags, with_remote
from routes.cli.tokens import with_store
from routes.http.runs import run_fields
from routes.http.sessions import summary_fields
from routes.startup.storage import secrets_of
from routes.transcripts.exports import EXPORTS, exported
from routes.transcripts.formats import FORMATS, MOST_BYTES

OTHER_PROGRAMS = "The database is PostgreSQL, which has programs of its own for that: see docs/postgresql.md."
IMPORT_S = 600.0  # for one file
BESIDE = ("checkpoints.db", "keys", "mcp", "notifications", "persona", "secrets.key", "skills")  # in the data directory


def db_flags(parser: argparse.ArgumentParser) -> tuple[argparse.ArgumentParser, ...]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    sizes = actions.add_parser("sizes", help="rows of each table and the total size", allow_abbrev=False)
    shrink = actions.add_parser("vacuum", help="reclaim the space of deleted rows", allow_abbrev=False)
    exporting = actions.add_parser("export", help="write a session as JSON, Markdown, HTML ...", allow_abbrev=False)
    exporting.add_argument("session", metavar="SESSION", help="its id, as GET /sessions lists it")
    help_text = "json, with its runs and events (default), or another form"
    exporting.add_argument("--format", choices=EXPORTS, default="json", help=help_text)
    help_text = "copy the database to a new file; the server may keep running"
    backup = actions.add_parser("backup", help=help_text, allow_abbrev=False)
    backup.add_argument("file", metavar="FILE", type=Path, help="a file that does not exist yet")
    help_text = "replace the database with a backup and keep the old one; stop the server first"
    restoring = actions.add_parser("restore", help=help_text, allow_abbrev=False)
    restoring.add_argument("file", metavar="FILE", type=Path, help="a file that `dragoman db backup` wrote")
    return sizes, shrink, exporting, backup, restoring, add_move(actions)


def run_db(args: argparse.Namespace, loaded: Loaded, _environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    try:
        match args.action:
            case "sizes":
                return _with_database(loaded, show_sizes)
            case "vacuum":
                return vacuum(loaded)
            case "export":
                return export(loaded, args.session, args.format)
            case "backup":
                return _back_up(loaded, args.file)
            case "move":
                return move(loaded, args.target)
        return _restore(loaded, args.file)
    except StoreFailed as failure:
        return failed(failure)


def _back_up(loaded: Loaded, file: Path) -> int:
    database = _existing_database(loaded)
    print(f"{back_up(database, file):,} bytes in {file}")
    there = [name for name in BESIDE if (database.parent / name).exists()]
    if there:
        print(f"Not in it, in {database.parent}: {', '.join(there)}. docs/backup.md says how to copy them.")
    return 0


def _restore(loaded: Loaded, file: Path) -> int:
    if loaded.settings.postgres_url:
        raise StoreFailed(OTHER_PROGRAMS)
    folder = loaded.settings.data_dir
    with lock_data_dir(folder):
        kept = restore(file, folder / DATABASE)
    print(f"{folder / DATABASE} is now the backup {file}.")
    if kept:
        print(f"The previous database is kept as {kept}. Delete it when you no longer need it.")
    return 0


async def show_sizes(store: Store) -> int:
    """Rows of each table, and the bytes of the whole."""
    for name, count in (await store.sizes()).items():
        print(f"{name:14}{count:>14,}")
    return 0


def vacuum(loaded: Loaded) -> int:
    """Give the room of deleted rows back to the disk. Exit code 1 while a server uses it."""

    async def shrink(store: Store) -> int:
        settings = loaded.settings
        # Writes to a file would wait for us until they fail.
        with nullcontext() if settings.postgres_url else lock_data_dir(settings.data_dir):
            before = (await store.sizes())["bytes"]
            await store.vacuum()
            if not settings.postgres_url:
                await vacuum_checkpoints(settings.data_dir, store)
        if settings.postgres_url:
            with lock_data_dir(settings.data_dir):
                await vacuum_checkpoints(settings.data_dir, store)
        print(f"{before:,} bytes before, {(await store.sizes())['bytes']:,} now")
        return 0

    return _with_database(loaded, shrink)


async def vacuum_checkpoints(data_dir: Path, store: Store) -> None:
    """Contents of workspaces are kept beside the database: those that are gone leave, too. Raises StoreFailed."""
    path = data_dir / CHECKPOINTS
    if path.exists():
        with closing(CheckpointStore(path)) as kept:
            await retention.vacuum(kept, store.owner_of)


def export(loaded: Loaded, session: str, kind: str) -> int:
    """A session as a file, in JSON with its runs and their events. Exit code 1 when there is none."""

    async def write(store: Store) -> int:
        row = await store.session(session)
        if row is None:
            return failed(f"there is no session {session!r}")
        redactor = Redactor(secrets_of(loaded.settings))  # also what has become a secret since it was written
        one = await exported(store, row, redactor, as_json)
        if kind == "json":
            runs = [
                run_fields(run) | {"events": [json.loads(event.data) for event in await store.events(run.id, 0, ALL)]}
                for run in await store.runs(session)
            ]
            summaries = [summary_fields(one) for one in await store.summaries(session)]
            one |= redactor.redact_value({"principal": row.principal, "summaries": summaries, "runs": runs})
        print(EXPORTS[kind].write(one, os.environ))
        return 0

    return _with_database(loaded, write)


def _with_database(loaded: Loaded, work: Callable[[Store], Awaitable[int]]) -> int:
    """Run an action on an existing database. Raises StoreFailed."""
    if not loaded.settings.postgres_url:
        _existing_database(loaded)
    return with_store(loaded, work)


def _existing_database(loaded: Loaded) -> Path:
    """The database's file; a mistyped folder is an error and creates nothing. Raises StoreFailed."""
    if loaded.settings.postgres_url:
        raise StoreFailed(OTHER_PROGRAMS)
    path = loaded.settings.data_dir / DATABASE
    if not path.exists():
        raise StoreFailed(f"there is no database {path}. Set --data-dir or DRAGOMAN_DATA_DIR.")
    return path


def import_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("format", choices=FORMATS, help="the program that has written the files")
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder of them, or - for standard input")
    server_flags(parser)


def run_import(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 if a file cannot be imported; the others are."""
    return with_remote(args, loaded, environ, partial(_import, args.format, args.files))


def _import(kind: str, given: list[str], remote: Remote) -> int:
    code = 0
    for name in (path for one in given for path in _files(kind, one)):
        try:
            done = remote.call("POST", f"/sessions/import?format={kind}", content=_content(name), limit_s=IMPORT_S)
        except (Refusal, OSError) as problem:
            code = failed(f"{name}: {problem}")
            continue
        for one in done["sessions"]:
            print(f"{one['session']}  {one['state']:9}  {one['messages']:6,} messages  {one['title']}")
        for one in done["skipped"]:
            print(f"{name}:{one['line']}: skipped. {one['reason']}", file=sys.stderr)
    return code


def _files(kind: str, given: str) -> list[str]:
    if given == "-" or not Path(given).is_dir():
        return [given]
    return sorted(map(str, Path(given).rglob("*.jsonl" if kind in ("claude", "codex") else "*.json")))


def _content(name: str) -> bytes:
    """Raises OSError."""
    with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
        return file.read(MOST_BYTES + 1)  # with that the server refuses it
