"""`dragoman acp`: finds its server, or starts one, and serves the editor."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress

import httpx2

from app.config.settings import Loaded, load_settings
from app.config.sources import SettingsError
from routes.access.local_admin import read_local_token
from routes.terminal.chat import client_of, default_url, running_server


def acp_flags(parser: argparse.ArgumentParser) -> None:
    help_text = "the server's address, also DRAGOMAN_URL; without it, the host and port of the settings, and if no "
    help_text += "server answers there, one is started, whose workspace is the folder of the editor's first session"
    parser.add_argument("--url", help=help_text)
    help_text = "the access token; DRAGOMAN_TOKEN is safer, because other users can see flags"
    parser.add_argument("--token", help=help_text)


def run_acp(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    clients, lock = list[httpx2.AsyncClient](), asyncio.Lock()

    def found(cwd: str) -> httpx2.AsyncClient:
        """Raises ChatFailed."""
        here = loaded
        if loaded.origins["workspace"] == "default":
            with suppress(SettingsError):  # the server that is started reports it
                here = load_settings({**vars(args), "workspace": cwd}, environ)
        given = args.url or environ.get("DRAGOMAN_URL") or None
        url, _ = stack.enter_context(
            running_server(None if given == default_url(here.settings) else given, here, environ)
        )
        token = args.token or environ.get("DRAGOMAN_TOKEN") or None
        return client_of(url, token, read_local_token(loaded.settings.data_dir))

    async def reach(cwd: str) -> httpx2.AsyncClient:
        async with lock:
            if not clients:
                clients.append(await asyncio.to_thread(found, cwd))
        return clients[0]

    async def serve() -> None:
        from acp.stdio import stdio_streams  # with the types of the protocol 0.4 s

        from routes.acp.agent import Agent, handler_of
        from routes.acp.editor import LONGEST, Editor

        task = asyncio.current_task()
        assert task
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(ending, task.cancel)
        editor = Editor(*await stdio_streams(limit=LONGEST))
        sys.stdout = sys.stderr  # from here on only frames are written there
        await editor.serve(handler_of(Agent(editor, reach)))

    with suppress(asyncio.CancelledError), ExitStack() as stack:
        asyncio.run(serve())
    return 0
