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
from app.redaction.redactor import Redactor
from app.secrets.library import SecretExists, Secrets, UnknownSecret, check_free
from app.secrets.sources import SecretSources, SecretUnavailable, UnfitSecret
from app.storage.people.secrets import SecretRow
from routes.cli.columns import action, aligned, flag_problems
from routes.cli.endpoints import BY, TAKEN_IN
from routes.cli.tokens import with_store
from routes.protocol.errors import Refused
from routes.texts.exact import exact

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
    act = {"add": _add, "list": _list, "remove": _remove}[args.action]
    return with_store(loaded, lambda store: act(Secrets(store, sources, Redactor()), args))


async def _add(secrets: Secrets, args: argparse.Namespace) -> int:
    given = {FIELDS.get(flag, flag): value for flag in FLAGS if (value := getattr(args, f"its_{flag}")) is not None}
    try:
        spec = SecretSpec.model_validate(given)
    except ValidationError as wrong:
        problems = flag_problems(wrong)
        for flag, field in FIELDS.items():
            problems = problems.replace(f"--{field}:", f"--{flag}:")
        raise Refused(422, "unfit_secret", problems) from None
    taken = {row.name for row, _ in await secrets.rows()}
    try:
        check_free(args.name, taken, replaces=args.replace)  # before the value is typed
        await secrets.add(args.name, spec, _value(spec), BY, replaces=args.replace)
    except (UnfitSecret, SecretExists, SecretUnavailable) as refusal:
        raise Refused(422, "unfit_secret", str(refusal)) from None
    print(f"{args.name} is {'replaced' if args.name in taken else 'added'}. {TAKEN_IN}")
    try:
        await secrets.value(args.name)
    except SecretUnavailable as problem:
        print(f"dragoman: from here: {exact(str(problem))} The server may see another environment.", file=sys.stderr)
    return 0


def _value(spec: SecretSpec) -> str:
    if spec.source:
        return ""
    if sys.stdin is None:  # closed
        return ""
    try:
        return getpass.getpass("The value (not shown): ") if sys.stdin.isatty() else sys.stdin.read()
    except EOFError:
        return ""


async def _remove(secrets: Secrets, args: argparse.Namespace) -> int:
    try:
        await secrets.remove(args.name, BY)
    except UnknownSecret as unknown:
        raise Refused(404, "not_found", str(unknown)) from None
    print(f"{args.name} is removed. Calls that are under way keep it until they end. {TAKEN_IN}")
    return 0


async def _list(secrets: Secrets, _: argparse.Namespace) -> int:
    print("\n".join(aligned(COLUMNS, (_columns(row, spec or SecretSpec()) for row, spec in await secrets.rows()))))
    return 0


def _columns(row: SecretRow, spec: SecretSpec) -> Mapping[str, str]:
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
