"""`dragoman config`: the settings in force, with the changes that a server has stored, and the options of a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from msgspec.structs import replace

from app.config.display import as_written
from app.config.runtime_changes import RuntimeSettings
from app.config.settings import Loaded
from app.storage.database import DATABASE
from app.storage.store import Store
from routes.cli.tokens import with_store

ORIGIN = "changed while the server ran (PATCH /settings)"
MAX_COLUMN = 40


def config_flags(parser: argparse.ArgumentParser) -> None:
    help_text = "also show the options of a run with this profile and where they come from"
    parser.add_argument("--profile", dest="its_profile", metavar="NAME", help=help_text)
    help_text = "the same for a run in this session"
    parser.add_argument("--session", dest="its_session", metavar="ID", help=help_text)


def run_config(args: argparse.Namespace, loaded: Loaded, _environ: Mapping[str, str]) -> int:
    loaded = with_stored_changes(loaded)
    print(config_table(loaded))
    if not (args.its_profile or args.its_session):
        return 0
    from routes.cli.profiles import show_options  # which few ask for, and takes its time to load

    print()
    return show_options(loaded, args.its_profile, args.its_session)


def config_table(loaded: Loaded) -> str:
    """The settings in force, one aligned line each: name, value (keys masked), where the value comes from."""
    rows = [("setting", "value", "from")]
    rows += [(name, as_written(getattr(loaded.settings, name)), origin) for name, origin in loaded.origins.items()]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = min(MAX_COLUMN, max(len(value) for _, value, _ in rows))  # a longer value moves its own line only
    return "\n".join(f"{name:{name_width}}  {value:{value_width}}  {origin}" for name, value, origin in rows)


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
