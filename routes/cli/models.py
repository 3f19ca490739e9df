"""`dragoman model`: model files of this machine, kept in the database; a running server takes changes in by itself."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.config.settings import Loaded, Settings
from app.core.endpoint_spec import EndpointSpec
from app.models.capabilities.server_kind import server_kind
from app.models.endpoints.connection_test import check_connection
from app.models.endpoints.downloads import check_room, fetching
from app.models.endpoints.registry import InvalidEndpoint, ReadOnlyEndpoint, audit_row, check_endpoint, endpoint_row
from app.models.endpoints.served_models import ServedModels, wanted_of
from app.models.endpoints.startup import build_endpoint_factory
from app.models.http.client import base_url_of
from app.models.serving.catalogue import CACHE_TYPES, estimate_of, header_of
from app.models.serving.download import Download, fetch
from app.models.serving.hub import is_source
from app.models.serving.memory import mib
from app.models.serving.refusals import TooLittleMemory, UnfitFile, UnknownServedModel
from app.redaction.redactor import Redactor
from app.storage.data_dir import MODELS
from app.storage.served_models import ServedModelRow
from app.storage.store import Store
from routes.cli.columns import action, aligned
from routes.cli.endpoints import BY, TAKEN_IN, first_of, warn_of_settings
from routes.cli.remote import NoServer, Refusal, remote_of, server_flags
from routes.cli.tokens import with_store
from routes.protocol.errors import Refused
from routes.terminal.event_client import ChatFailed
from routes.texts.exact import exact

COLUMNS = ("name", "state", "model", "quantisation", "context", "slots", "memory", "file")


def model_flags(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = action(actions, "list", "list the added models and their state")
    server_flags(listing, "an admin's token")
    add = action(actions, "add", "check a GGUF file and add it, or add it again with other values")
    add.add_argument(
        "file",
        type=_expanded,
        metavar="FILE|hf:OWNER/REPO[:QUANT]|URL",
        help="the GGUF file, of a split model the first one; or where to download it from",
    )
    add.add_argument("--name", help="of its endpoint, as in NAME/MODEL (default: from the file)")
    add.add_argument("--context", type=int, metavar="TOKENS", help="of one conversation (default: at most 8192)")
    add.add_argument("--slots", type=int, metavar="N", help="conversations at a time (default: 1)")
    add.add_argument("--cache-type", choices=CACHE_TYPES, help="of the key-value cache; less memory with q8_0, q4_0")
    add.add_argument("--threads", type=int, metavar="N", help="that compute (default: of the cores, at most 4)")
    add.add_argument("--serve", action="store_true", help="serve it, too")
    serve = action(actions, "serve", "serve a model; it starts with the first request")
    serve.add_argument("name")
    for child in (add, serve):
        child.add_argument("--at-start", action="store_true", help="start it with the server, and keep it")
        child.add_argument("--force", action="store_true", help="even if memory seems too short")
    stop = action(actions, "stop", "remove the endpoint of a model and stop its process")
    stop.add_argument("name")
    remove = action(actions, "remove", "forget a model; its file stays, unless it was downloaded")
    remove.add_argument("name")
    adopt = action(actions, "adopt", "use a model server that is already running: llama.cpp, Ollama, vLLM ...")
    adopt.add_argument("url")
    adopt.add_argument("--name", help="of the endpoint (default: by the kind of server)")
    return listing, add, serve, stop, remove, adopt


def _expanded(text: str) -> Path | str:
    if is_source(text):
        return text
    return Path(os.path.expanduser(text))  # noqa: PTH111 (Path.expanduser fails for unknown accounts)


def run_model(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    settings = loaded.settings

    async def work(store: Store) -> int:
        try:
            return await _act(args, store, settings, environ)
        except (UnfitFile, InvalidEndpoint) as unfit:
            raise Refused(422, "unfit_model", str(unfit)) from None
        except (TooLittleMemory, ReadOnlyEndpoint) as conflict:
            raise Refused(409, "model_memory", str(conflict)) from None
        except UnknownServedModel as unknown:
            raise Refused(404, "not_found", str(unknown)) from None

    return with_store(loaded, work)


async def _act(args: argparse.Namespace, store: Store, settings: Settings, environ: Mapping[str, str]) -> int:
    models = ServedModels(store, settings)
    match args.action:
        case "list":
            return await _list(models, settings, environ, args)
        case "adopt":
            return await _adopt(store, settings, environ, args)
        case "add":
            if isinstance(args.file, str):
                args.file = await _fetched(models, args, settings)
            return await _add(models, args)
        case "serve":
            row = await models.serve(args.name, BY, at_start=args.at_start or None, forced=args.force)
            print(_served(row))
        case "stop":
            row = await models.stop(args.name, BY)
            print(f"{row.name} is no longer served. {TAKEN_IN}")
        case "remove":
            deleted = await models.remove(args.name, BY)
            print(f"{args.name} is removed; its file {'is deleted' if deleted else 'stays'}. {TAKEN_IN}")
    if args.action != "serve":
        warn_of_settings(settings, args.name)
    return 0


async def _fetched(models: ServedModels, args: argparse.Namespace, settings: Settings) -> Path:
    """Download a model with its progress on stderr; Ctrl-C ends it, and the next time it goes on."""
    client, limits = fetching(settings)
    plan = await client.plan(args.file)
    await models.check_name(args.name or plan.name)
    if args.serve and not args.force:
        check_room(plan)
    download = Download(name=plan.name, source=plan.source, folder=plan.folder)
    begin, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    pause = 0.5 if end == "" else 10.0
    work = asyncio.create_task(fetch(client, plan, settings.data_dir / MODELS, limits, download))
    try:
        while not (await asyncio.wait([work], timeout=pause))[0]:
            print(f"{begin}{plan.name}: {progress_of(download.fields())}", end=end, file=sys.stderr, flush=True)
        path = await work
    except asyncio.CancelledError:
        print(f"\ndragoman: {plan.name} is not whole; the same command goes on with it.", file=sys.stderr)
        raise
    finally:
        work.cancel()
        await asyncio.wait([work])
    print(f"{begin}{exact(str(path))} is there (checked: {download.checked}).", file=sys.stderr)
    return path


def progress_of(fields: Mapping[str, Any]) -> str:
    """Return how far a download is: percent, bytes, speed, and the time that is left."""
    if fields["state"] == "checking":
        return "checking"
    done, whole, left = fields["bytes"], fields["total"], fields["left_s"] or 0
    if not whole:
        return f"{mib(done)}, {mib(fields['speed'] or 0)}/s"
    part = f"{100 * done // whole} %, {mib(done)} of {mib(whole)}"
    return f"{part}, {mib(fields['speed'] or 0)}/s, {left // 60}:{left % 60:02} left"


async def _add(models: ServedModels, args: argparse.Namespace) -> int:
    fields = {name: getattr(args, name) for name in ("name", "context", "slots", "cache_type", "threads", "at_start")}
    row = await models.add(args.file, wanted_of(fields | {"forced": args.force}), BY)
    header = header_of(row)
    about = filter(None, (header.architecture, header.quantisation, f"trained for {header.context:,} tokens"))
    print(f"{row.name} is added: {exact(header.name)} ({', '.join(about)}).")
    print(f"With {row.slots} x {row.context:,} tokens of context it needs {estimate_of(row)}.")
    if not header.template:
        print("It has no chat template: llama.cpp uses a general one. It may be a base model.", file=sys.stderr)
    if args.serve:
        print(_served(await models.serve(row.name, BY)))
        return 0
    try:
        models.check_memory(row)
    except TooLittleMemory as short:
        print(f"dragoman: {short}", file=sys.stderr)
    print(f"Serve it with `dragoman model serve {row.name}`.")
    return 0


def _served(row: ServedModelRow) -> str:
    when = "with the server" if row.at_start else "with the first request"
    return f"{row.name} is served as {row.name}/{exact(header_of(row).name)}, and starts {when}. {TAKEN_IN}"


async def _adopt(store: Store, settings: Settings, environ: Mapping[str, str], args: argparse.Namespace) -> int:
    """Add an endpoint for a server that runs already, and that goes on without dragoman."""
    address = args.url if "://" in args.url else f"http://{args.url}"
    try:
        url = base_url_of(address)
        spec = EndpointSpec(url=url)
    except ValueError:
        raise InvalidEndpoint(
            f"{address[:200]!a} is not the address of a server, such as http://127.0.0.1:8080."
        ) from None
    kind = await server_kind(url)
    name = args.name or re.sub(r"[^a-z0-9]+", "-", (kind or urlsplit(url).hostname or "server").lower()).strip("-")
    check_endpoint(name, spec, ())
    if name in settings.endpoints or any(row.name == name and row.spec for row in await store.endpoints()):
        raise ReadOnlyEndpoint(f"An endpoint is called {name} already: choose another --name.")
    found = await check_connection(build_endpoint_factory(settings, Redactor(), environ), name, spec)
    if found.problem or not found.models:
        raise InvalidEndpoint(found.problem or f"{url} lists no models. Start one there, and try again.")
    await store.write([endpoint_row(name, spec, BY), audit_row(name, "adopted", BY, spec)])
    names = first_of(found.models)
    print(f"{name} is {kind or 'a server'} with {names}; dragoman neither starts nor stops it. {TAKEN_IN}")
    return 0


async def _list(models: ServedModels, settings: Settings, environ: Mapping[str, str], args: argparse.Namespace) -> int:
    try:
        remote = remote_of(args, settings, environ)
        overview = await asyncio.to_thread(remote.call, "GET", "/served-models")
    except (Refusal, ChatFailed) as failure:
        raise Refused(403, "forbidden", str(failure)) from None
    except NoServer as none:
        overview = await models.overview()
        text = "The database has:" if overview["models"] else "No model was added."
        print(f"{none} {text}", file=sys.stderr)
    rows: list[dict[str, Any]] = overview["models"]
    for line, row in zip(aligned(COLUMNS, map(_columns, rows)), [{}, *rows], strict=True):
        print(line)
        if problem := row.get("problem"):
            print(f"    {exact(problem)}")
    return 0


def _columns(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "name": exact(row["name"]),
        "state": row["state"] + (" (at start)" if row["at_start"] else ""),
        "model": exact(row["model"]),
        "quantisation": row["quantisation"] or "-",
        "context": str(row["context"]),
        "slots": str(row["slots"]),
        "memory": mib(row["memory"]["total"]),
        "file": exact(row["file"]),
    }
