"""`dragoman endpoint`: servers of models, kept in the database; a server that runs takes changes in by itself."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from app.config.settings import Loaded, Settings
from app.core.endpoint_spec import EndpointSpec
from app.models.endpoints.connection_test import ConnectionReport, check_connection
from app.models.endpoints.registry import InvalidEndpoint, audit_row, check_endpoint, endpoint_row, endpoint_spec
from app.models.endpoints.startup import build_endpoint_factory, keys_of, specs_of
from app.models.http.failures import redact_url
from app.redaction.redactor import Redactor
from app.storage.endpoints import EndpointRemoved, EndpointRow, EndpointStore
from routes.cli.columns import action, aligned, flag_problems
from routes.cli.remote import NoServer, Refusal, remote_of, server_flags
from routes.cli.tokens import with_store
from routes.protocol.errors import Refused
from routes.terminal.event_client import ChatFailed
from routes.texts.exact import exact
from tools.base.containment import lies_in

BY = "the command line"
TAKEN_IN = "A running server applies this within a second or two, a stopped one when it starts."
COLUMNS = ("name", "state", "models", "keys", "under way", "waiting", "url")
SHOWN = 5  # models that are named
UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))


def endpoint_flags(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = action(actions, "add", "add a model server, or change one that was added")
    add.add_argument("name", help="as in NAME/MODEL")
    for field, more in ADD_FLAGS.items():
        add.add_argument(f"--{field.replace('_', '-')}", dest=f"its_{field}", **more)
    listing = action(actions, "list", "list the endpoints and their states")
    server_flags(listing, "an admin's token")
    remove = action(actions, "remove", "remove an endpoint that was added")
    test = action(actions, "test", "connect to an endpoint from here, and list its models")
    for child in (remove, test):
        child.add_argument("name")
    return add, listing, remove, test


def choices(field: str) -> tuple[str, ...]:
    """The values that a field of EndpointSpec may have."""
    return get_args(EndpointSpec.model_fields[field].annotation)


# Their values are kept as `its_...`: some of the names are settings, too.
ADD_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "url": {"required": True, "help": "its base URL, usually ending in /v1"},
    "key_file": {"action": "append", "metavar": "FILE", "help": "a file with its key; several keys take turns"},
    "key_env": {"action": "append", "metavar": "NAME", "help": "a variable of the server's environment with its key"},
    "model": {"help": "the model that answers when only the endpoint is named (default: the first it lists)"},
    "models": {"action": "append", "metavar": "MODEL", "help": "the models that may be requested (default: any)"},
    "format": {"choices": choices("format"), "help": "its protocol (default: auto)"},
    "tool_calls": {"choices": choices("tool_calls"), "help": "how tools are offered to its models (default: auto)"},
    "tool_grammar": {"choices": choices("tool_grammar"), "help": "the server enforces their form (default: auto)"},
    "window": {"type": int, "metavar": "TOKENS", "help": "that its models can read at a time (default: what it says)"},
    "max_requests": {"type": int, "metavar": "N", "help": "that it answers at a time (default: what it says)"},
}


def run_endpoint(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    act = {"add": _add, "list": _list, "remove": _remove, "test": _test}[args.action]
    return with_store(loaded, lambda store: act(store, loaded.settings, environ, args))


async def _add(store: EndpointStore, settings: Settings, environ: Mapping[str, str], args: argparse.Namespace) -> int:
    spec = _spec(args, settings)
    if args.name in specs_of(settings):
        raise Refused(409, "endpoint_of_settings", f"{args.name} is in the settings: change it there.")
    await store.write([endpoint_row(args.name, spec, BY), audit_row(args.name, "added", BY, spec)])
    print(f"{args.name} is added. {TAKEN_IN}")
    _report(args.name, await _tried(settings, environ, args.name, spec))
    return 0


def _spec(args: argparse.Namespace, settings: Settings) -> EndpointSpec:
    """Raises Refused."""
    given = {field: value for field in ADD_FLAGS if (value := getattr(args, f"its_{field}")) is not None}
    given["key_file"] = [str(Path(file).expanduser().absolute()) for file in given.get("key_file", ())]
    if inside := [file for file in given["key_file"] if lies_in(Path(file), settings.workspace)]:
        raise Refused(
            422, "unfit_endpoint", f"{inside[0]} is inside the workspace, where tools could change it. Move it."
        )
    try:
        spec = EndpointSpec.model_validate(given)
        check_endpoint(args.name, spec, ())
    except ValidationError as wrong:
        raise Refused(422, "unfit_endpoint", flag_problems(wrong)) from None
    except InvalidEndpoint as unfit:
        raise Refused(422, "unfit_endpoint", str(unfit)) from None
    return spec


async def _remove(
    store: EndpointStore, settings: Settings, _environ: Mapping[str, str], args: argparse.Namespace
) -> int:
    name: str = args.name
    await _row(store, settings, name)
    await store.write([EndpointRemoved(name), audit_row(name, "removed", BY)])
    print(f"{name} is removed. {TAKEN_IN}")
    warn_of_settings(settings, name)
    return 0


def warn_of_settings(settings: Settings, name: str) -> None:
    """Say on stderr that the settings name an endpoint that has gone."""
    named = [settings.model, settings.utility, *settings.fallback, *settings.aliases.values()]
    named += [one for chain in settings.fallbacks.values() for one in chain]
    if needed := [one for one in named if one and one.partition("/")[0] == name]:
        print(f"dragoman: the settings name {needed[0]}: change that before the next start.", file=sys.stderr)


async def _row(store: EndpointStore, settings: Settings, name: str) -> EndpointRow:
    """Raises Refused."""
    rows = {row.name: row for row in await store.endpoints()}
    if name in rows:
        return rows[name]
    if name in specs_of(settings):
        raise Refused(409, "endpoint_of_settings", f"{name} is in the settings: change it there.")
    known = ", ".join(rows) or "none"
    raise Refused(404, "not_found", f"No endpoint {name[:64]!a} was added; there are: {known}.")


async def _test(store: EndpointStore, settings: Settings, environ: Mapping[str, str], args: argparse.Namespace) -> int:
    name: str = args.name
    spec = specs_of(settings).get(name) or endpoint_spec(await _row(store, settings, name))
    if spec is None:
        return 1
    trial = await _tried(settings, environ, name, spec)
    _report(name, trial)
    return 1 if trial.problem else 0


async def _tried(settings: Settings, environ: Mapping[str, str], name: str, spec: EndpointSpec) -> ConnectionReport:
    factory = build_endpoint_factory(settings, Redactor(), environ)
    return await check_connection(factory, name, spec, keys_of(settings, name))


def _report(name: str, trial: ConnectionReport) -> None:
    if trial.models:
        print(f"{name} lists {first_of(trial.models)}.")
    if trial.problem:
        print(f"dragoman: {exact(trial.problem)}", file=sys.stderr)


def first_of(models: Sequence[str]) -> str:
    """The first models by name, and how many more there are."""
    more = f" and {len(models) - SHOWN} more" if len(models) > SHOWN else ""
    return f"{', '.join(map(exact, models[:SHOWN]))}{more}"


async def _list(store: EndpointStore, settings: Settings, environ: Mapping[str, str], args: argparse.Namespace) -> int:
    try:
        remote = remote_of(args, settings, environ)
        endpoints = (await asyncio.to_thread(remote.call, "GET", "/endpoints"))["endpoints"]
    except (Refusal, ChatFailed) as failure:
        raise Refused(403, "forbidden", str(failure)) from None
    except NoServer as none:
        endpoints = [
            {"name": name, "url": redact_url(spec.url), "models": [{"name": model} for model in spec.named]}
            for name, spec in specs_of(settings, await store.endpoints()).items()
        ]
        text = "The settings and the database have:" if endpoints else "None is configured."
        print(f"{none} {text}", file=sys.stderr)
    lines = aligned(COLUMNS, map(_columns, endpoints))
    for line, endpoint in zip(lines, [{}, *endpoints], strict=True):
        print(line)
        if problem := endpoint.get("problem"):
            print(f"    {exact(problem)}")
        elif error := endpoint.get("last_error"):  # which may be long past
            print(f"    {ago(time.time() - error['at'])}: {exact(error['message'])}")
    return 0


def ago(seconds: float) -> str:
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size), UNITS[-1])
    return f"{max(0, int(seconds // size))} {unit} ago"


def _columns(endpoint: Mapping[str, Any]) -> dict[str, str]:
    models, keys = [exact(model["name"]) for model in endpoint["models"]], endpoint.get("keys")
    rest = f" +{len(models) - 1}" if len(models) > 1 else ""
    default = " (default)" if endpoint.get("default") else ""
    return {
        "name": exact(endpoint["name"]),
        "state": f"{endpoint.get('state', 'not running')}{default}",
        "models": f"{models[0]}{rest}" if models else "-",
        "keys": str(keys["count"]) if keys else "-",
        "under way": str(endpoint.get("under_way", "-")),
        "waiting": str(endpoint.get("waiting", "-")),
        "url": exact(endpoint.get("url", "-")),
    }
