"""`dragoman chat`: a conversation in the terminal, over the same SSE API that every other client uses."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from types import FrameType

import httpx2
from msgspec import Struct
from rich.console import Console

from app.config.settings import Loaded, Settings
from app.core.events import AgentEvent
from app.core.rules import WhenAbsent
from routes.access.local_admin import read_local_token
from routes.access.token_auth import TokenAuth, is_local
from routes.terminal.answers import Terminal
from routes.terminal.api import Api
from routes.terminal.child_server import answers, own_server
from routes.terminal.event_client import TIMEOUT, ChatFailed, Choices, Link
from routes.terminal.exit_codes import FAILED, INTERRUPTED, UNREACHABLE, USAGE, exit_code
from routes.terminal.interrupts import Interrupts, Left
from routes.terminal.run_display import Answerer, Asking, NoAnswerer, Output, RemoteAnswerer
from routes.terminal.screen import PipeConsole, Screen
from routes.terminal.scripts import AnswerOutput, JsonOutput, ResultOutput, piped
from routes.terminal.talk import CANCEL_LIMIT_S, Talk
from routes.terminal.view import MARGIN, View
from routes.texts import text

UNWRITABLE = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
VALID_PORTS = range(1, 65_536)
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class ChatOptions(Struct, frozen=True):
    """Options of the command line; an empty message means standard input or a prompt.

    `output` is "text" (-p), "json" or "stream-json" for scripts; `last` continues the conversation used last;
    with `resumes` the person chooses one.
    """

    choices: Choices
    message: str
    url: str | None
    token: str | None
    output: str | None
    last: bool
    resumes: bool = False


def chat(options: ChatOptions, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Talk until the message is answered or the person leaves; the exit code (docs/terminal.md)."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _leave)  # as SystemExit, so that a server of our own is stopped on the way out
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # a shell has closed it: `>&-`
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
        getattr(sys, name).reconfigure(errors="replace")
    try:
        return _code(options, loaded, environ)
    except BrokenPipeError:
        raise  # routes/cli/main.py
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python would try again at exit
        print(f"dragoman: {text('terminal.script.closed', reason=error.strerror)}", file=sys.stderr)
        return FAILED


def _code(options: ChatOptions, loaded: Loaded, environ: Mapping[str, str]) -> int:
    result, problem = ResultOutput(sys.stdout, _errors()), ""
    try:
        message = _message(options, loaded.settings.max_message_bytes)
        with running_server(options.url, loaded, environ) as (url, is_own):
            client = client_of(url, options.token, read_local_token(loaded.settings.data_dir))
            if is_own:
                options.choices.model = None  # our own has it as its default
            code = asyncio.run(_talk(client, options, message, environ, result))
    except ChatFailed as error:
        print(f"dragoman: {error}", file=sys.stderr)
        code, problem = error.code, str(error)
    except (Left, KeyboardInterrupt, asyncio.CancelledError):
        code = INTERRUPTED
    if options.output == "json":
        result.write(code, problem)
    return code


def _message(options: ChatOptions, limit: int) -> str:
    """The message of the command line, with what is piped behind it. Raises ChatFailed."""
    if not options.message:
        message = piped(limit, beside=False)
    elif options.output:
        message = "\n\n".join(filter(None, [options.message, piped(limit, beside=True)]))
    else:
        message = options.message
    if options.output and not message.strip():
        raise ChatFailed(text("terminal.script.nothing"), USAGE)
    return sendable(message)


def client_of(url: str, token: str | None, own: str | None = None) -> httpx2.AsyncClient:
    """The way to one server. Raises ChatFailed for a token that cannot be one."""
    auth = TokenAuth(checked_token(token) if token else None, own)
    return httpx2.AsyncClient(base_url=url, auth=auth, timeout=TIMEOUT, trust_env=not is_local(url))


async def _talk(
    client: httpx2.AsyncClient, options: ChatOptions, message: str, environ: Mapping[str, str], result: ResultOutput
) -> int:
    """Raises ChatFailed, Left."""
    choices = options.choices
    async with client:
        if options.last and not choices.session:
            choices.session = await _last_session(Api(client))
        if options.output or not (sys.stdin.isatty() and sys.stdout.isatty()):
            if options.resumes:
                raise ChatFailed(text("terminal.resume.script"), USAGE)
            output = result if options.output == "json" else _output(options.output)
            return await alone(client, choices, message, output, token=bool(options.token))
        terminal = _terminal(environ)
        talk = Talk(terminal, client, choices, width=_window_width, window=_window)
        if options.resumes:
            return await terminal.within(talk.converse("/resume", *filter(None, [message])))
        return await terminal.within(talk.send(message) if message else talk.converse())


async def _last_session(api: Api) -> str:
    rows = (await api.get("/sessions"))["sessions"]
    if not rows:
        raise ChatFailed(text("terminal.sessions.none"), USAGE)
    return str(rows[0]["id"])


def _terminal(environ: Mapping[str, str]) -> Terminal:
    if os.environ.get("TERM", "dumb").lower() in ("", "dumb", "unknown"):
        from routes.terminal.dumb_terminal import DumbTerminal

        return DumbTerminal()
    from routes.terminal.window import Window  # 0.1 s that scripts do without

    return Window(environ)


async def alone(
    client: httpx2.AsyncClient, choices: Choices, message: str, screen: Output | None = None, *, token: bool = False
) -> int:
    """One turn without a person at a terminal; its exit code. Raises ChatFailed, Left."""
    screen = screen or _output(None)
    link = Link(client, choices)
    waits = choices.approval or choices.when_absent == WhenAbsent.WAIT
    answerer: Answerer = RemoteAnswerer(link, token=token) if waits else NoAnswerer()
    asking = Asking(link, screen, answerer)
    interrupts = Interrupts(link, asking.show)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupts)
    try:
        last = await interrupts.during(_events(link, message, asking))
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await asking.close()
        await interrupts.settle(CANCEL_LIMIT_S)
    return exit_code(last, denied=isinstance(answerer, NoAnswerer) and bool(answerer.denied))


async def _events(link: Link, message: str, asking: Asking) -> AgentEvent | None:
    """Show the events of the run, and return the last one."""
    event: AgentEvent | None = None
    async with aclosing(link.ask(message)) as events:
        async for event in events:
            asking.show(event)
    return event


def _errors() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def _output(kind: str | None) -> Output:
    if kind == "stream-json":
        return JsonOutput(sys.stdout)
    if kind == "text":
        return AnswerOutput(sys.stdout, _errors())
    view = View(summary=False, width=_window_width)
    console = PipeConsole(highlight=False, markup=False, emoji=False)
    return Screen(console, view, markdown=console.is_terminal and not console.is_dumb_terminal)


@contextmanager
def running_server(url: str | None, loaded: Loaded, environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """The URL to talk to, and whether the server there is our own, started because none was named and none answers."""
    target = checked_url(url) if url else default_url(loaded.settings)
    if answers(target):
        yield target, False
        return
    if url:
        raise ChatFailed(text("terminal.unreachable", url=target), UNREACHABLE)
    print(text("terminal.own_server", url=target), file=sys.stderr, flush=True)
    with own_server(loaded, environ) as own:
        yield own, True


def checked_url(url: str) -> str:
    """The URL without a trailing slash. Raises ChatFailed when it is not one of a server."""
    try:
        parts = httpx2.URL(url)
        usable = (
            parts.scheme in ("http", "https") and bool(parts.host) and (parts.port is None or parts.port in VALID_PORTS)
        )
    except (httpx2.InvalidURL, ValueError):
        usable = False
    if not usable:
        raise ChatFailed(text("terminal.bad_url", url=ascii(url)), USAGE)
    return url.rstrip("/")


def checked_token(token: str) -> str:
    """The token as a header can carry it. Raises ChatFailed."""
    bare = token.strip()  # `DRAGOMAN_TOKEN=$(< file)` and the like bring a line's end along
    if not bare or not bare.isascii() or not bare.isprintable() or " " in bare:
        raise ChatFailed(text("terminal.bad_token"), USAGE)
    return bare


def default_url(settings: Settings) -> str:
    """The URL of a server with these settings, from this machine."""
    host = ANY_ADDRESS.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def sendable(given: str) -> str:
    """The text without what a terminal could not decode, which is not valid UTF-8 to send either."""
    return given.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _window_width() -> int | None:
    """The columns of the window; None where there is no window. The console takes a dumb terminal for 80 wide."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _window() -> dict[str, int]:
    """The room for what commands print."""
    size = shutil.get_terminal_size()
    columns, rows = size.columns - len(MARGIN), size.lines
    return {"columns": max(20, min(400, columns)), "rows": max(5, min(200, rows))}


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
