"""`dragoman acp`: finds its server, or starts one, and serves the editor."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress

import httpx2

from app.config.settings import Loaded, load_settings
from app.config.sources import SettingsError
from routes.access.local_admin import read_local_token
from routes.terminal.chat import checked_url, client_of, default_url
from routes.terminal.child_server import answers, own_server
from routes.terminal.event_client import ChatFailed
from routes.terminal.exit_codes import UNREACHABLE
from routes.texts import text


def acp_flags(parser: argparse.ArgumentParser) -> None:
    help_text = "the server's address, also DRAGOMAN_URL; without it, the host and port of the settings, and if no "
    help_text += "server answers there, one is started, whose workspace is the folder of the editor's first session"
    parser.add_argument("--url", help=help_text)
    help_text = "the access token; DRAGOMAN_TOKEN is safer, because other users can see flags"
    parser.add_argument("--token", help=help_text)


def run_acp(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    clients, lock = list[httpx2.AsyncClient](), asyncio.Lock()
    usual, data = default_url(loaded.settings), loaded.settings.data_dir

    def start(cwd: str) -> str:
        """Start a server, where other windows find it; its URL. Raises ChatFailed."""
        own, around = loaded, {**environ, "DRAGOMAN_DATA_DIR": str(data)}
        try:
            # An editor starts this in its project, where tools will write: nothing that configures a server lies there.
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chdir(data)
            if loaded.origins["workspace"] == "default":
                own = load_settings({**vars(args), "workspace": cwd}, around, folder=data)
            with (data / "acp.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # another window may be starting it
                return usual if answers(usual) else stack.enter_context(own_server(own, around, loaded.settings.port))
        except (SettingsError, OSError) as error:
            raise ChatFailed("\n".join(getattr(error, "problems", None) or [str(error)])) from error

    def found(cwd: str) -> str:
        """Raises ChatFailed."""
        url = checked_url(args.url or environ.get("DRAGOMAN_URL") or usual)
        if not answers(url) and url != usual:
            raise ChatFailed(text("terminal.unreachable", url=url), UNREACHABLE)
        return url if answers(url) else start(cwd)

    async def reach(cwd: str) -> httpx2.AsyncClient:
        async with lock:
            url = await asyncio.to_thread(found, cwd)
            if not clients:
                token = args.token or environ.get("DRAGOMAN_TOKEN") or None
                clients.append(client_of(url, token, read_local_token(data)))
        return clients[0]

    async def serve() -> None:
        from acp.stdio import stdio_streams  # with the types of the protocol 0.4 s

        from routes.acp.agent import Agent, handler_of
        from routes.acp.editor import LONGEST, Editor

        task = asyncio.current_task()
        assert task
        for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(ending, task.cancel)
        try:
            editor = Editor(*await stdio_streams(limit=LONGEST))
        except ValueError:  # files
            raise SystemExit(
                "dragoman: an editor starts this command, with pipes: see `dragoman connect zed`"
            ) from None
        sys.stdout = sys.stderr  # from here on only frames are written there
        await editor.serve(handler_of(Agent(editor, reach)))

    with suppress(asyncio.CancelledError), ExitStack() as stack:
        asyncio.run(serve())
    return 0
