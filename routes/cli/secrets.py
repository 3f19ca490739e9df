"""`dragoman secret`: values that commands and MCP servers use and no model sees, kept in the database or elsewhere."""

from __future__ import annotations

import argparse
import getpass
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from app.config.secret_spec import COMMAND_TOOLS, SOURCES, SecretSpec
from app.config.settings import Loaded
from app.secrets.library import SecretExists, UnknownSecret, add_secret, remove_secret, spec_of
from app.secrets.sources import SecretSources, SecretUnavailable, UnfitSecret
from app.storage.people.secrets import SecretRow, SecretTable
from routes.cli.columns import action, aligned, flag_problems
from routes.cli.endpoints import BY, TAKEN_IN
from routes.cli.tokens import with_store
from routes.protocol.errors import Refused
from routes.terminal.approval_text import exact

COLUMNS = ("name", "variable", "hosts", "tools", "role", "paths", "source", "added", "last used")
NOT_HERE = (
    "A value is never given on the command line, where other users and the shell's history have it. Leave it out, and "
    "write it to standard input, or type it when asked."
)
FLAGS: Mapping[str, Mapping[str, Any]] = {
    "env": {"metavar": "VARIABLE", "help": "its variable in the environment of commands (default: for MCP only)"},
    "host": {"action": "append", "metavar": "HOST", "help": "a host that gets it, such as api.github.com; repeat it"},
    "tools": {
        "nargs": "+",
        "metavar": "GLOB",
        "help": f"the tools that get it (default: {' '.join(COMMAND_TOOLS)})",
    },
    "role": {"choices": ("user", "admin"), "help": "the least role of those whose calls get it (default: admin)"},
    "path": {"action": "append", "metavar": "PATTERN", "help": "the only requests that get it: 'GET /repos/**'"},
    "from": {"metavar": "SOURCE", "help": f"take the value from {SOURCES} when it is needed, and store none"},
}
FIELDS = {"host": "hosts", "path": "paths", "from": "source"}


class SecretParser(argparse.ArgumentParser):
    """A parser that repeats no word which it does not know: it may be a value."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flags = [word.partition("=")[0] for word in unknown if word.startswith("--")]
            self.error(f"unknown: {' '.join(flags)}" if flags and flags != ["--value"] else NOT_HERE)
        return known, unknown


def secret_flags(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=SecretParser)
    add = action(actions, "add", "add a secret, whose value is read from standard input or asked for")
    listing = action(actions, "list", "list the secrets, without their values")
    remove = action(actions, "remove", "remove a secret")
    for child in (add, remove):
        child.add_argument("name")
    for flag, more in FLAGS.items():
        add.add_argument(f"--{flag}", dest=f"its_{flag}", **more)
    add.add_argument("--replace", action="store_true", help="replace the secret of this name")
    return add, listing, remove


def run_secret(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    sources = SecretSources.of(loaded.settings, environ)
    match args.action:
        case "add":
            return with_store(loaded, lambda store: _add(store, sources, args))
        case "remove":
            return with_store(loaded, lambda store: _remove(store, args.name))
    return with_store(loaded, _list)


async def _add(store: SecretTable, sources: SecretSources, args: argparse.Namespace) -> int:
    given = {FIELDS.get(flag, flag): value for flag in FLAGS if (value := getattr(args, f"its_{flag}")) is not None}
    try:
        spec = SecretSpec.model_validate(given)
    except ValidationError as wrong:
        raise Refused(422, "unfit_secret", _problems(wrong)) from None
    is_there = args.name in {row.name for row in await store.secrets()}
    try:
        if is_there and not args.replace:
            raise SecretExists(args.name)  # before the value is typed
        await add_secret(store, sources, args.name, spec, _value(spec), by=BY, replaces=args.replace)
    except (UnfitSecret, SecretExists, SecretUnavailable) as refusal:
        raise Refused(422, "unfit_secret", str(refusal)) from None
    print(f"{args.name} is {'replaced' if is_there else 'added'}. {TAKEN_IN}")
    if spec.source:
        await _try_source(store, sources, args.name)
    return 0


def _value(spec: SecretSpec) -> str:
    if spec.source:
        return ""
    return getpass.getpass("The value (not shown): ") if sys.stdin.isatty() else sys.stdin.read()


async def _try_source(store: SecretTable, sources: SecretSources, name: str) -> None:
    """Say on stderr if the source has no value here; the server may have another environment."""
    [row] = [row for row in await store.secrets() if row.name == name]
    try:
        if spec := spec_of(row):
            await sources.value(row, spec)
    except SecretUnavailable as problem:
        print(f"dragoman: from here: {exact(str(problem))} The server may see another environment.", file=sys.stderr)


def _problems(wrong: ValidationError) -> str:
    """The problems by flag; those of the whole have none."""
    texts = [str(error["ctx"]["error"]) for error in wrong.errors() if not error["loc"]]
    flags = {field: flag for flag, field in FIELDS.items()}
    text = flag_problems(wrong) if not texts else f"{'; '.join(texts)}."
    for field, flag in flags.items():
        text = text.replace(f"--{field}:", f"--{flag}:")
    return text


async def _remove(store: SecretTable, name: str) -> int:
    try:
        await remove_secret(store, name, BY)
    except UnknownSecret as unknown:
        raise Refused(404, "not_found", str(unknown)) from None
    print(f"{name} is removed. Calls that are under way keep it until they end. {TAKEN_IN}")
    return 0


async def _list(store: SecretTable) -> int:
    print("\n".join(aligned(COLUMNS, map(_columns, await store.secrets()))))
    return 0


def _columns(row: SecretRow) -> Mapping[str, str]:
    spec = spec_of(row) or SecretSpec()
    return {
        "name": row.name,
        "variable": spec.env or "-",
        "hosts": " ".join(spec.hosts) or "-",
        "tools": (" ".join(spec.tools) if spec.env else "mcp"),
        "role": spec.role,
        "paths": ", ".join(spec.paths) or "all",
        "source": exact(spec.source) or "stored",
        "added": _moment(row.at),
        "last used": _moment(row.used) if row.used else "never",
    }


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
