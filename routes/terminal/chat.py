"""`dragoman chat`: a conversation in the terminal, over the same SSE API that every other client uses."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from types import FrameType

import httpx2
from msgspec import Struct
from rich.console import Console

from app.config.settings import Loaded, Settings
from app.core.events import AgentEvent, Notice, RunFailed, RunFinished, ToolFinished
from app.core.rules import WhenAbsent
from routes.access.local_admin import read_local_token
from routes.access.token_auth import TokenAuth, is_local
from routes.terminal.child_server import answers, own_server
from routes.terminal.documents import COMMAND as DOCUMENT
from routes.terminal.documents import Documents
from routes.terminal.event_client import TIMEOUT, ChatFailed, Link
from routes.terminal.keyboard import Keyboard
from routes.terminal.run_display import Answerer, Asking, NoAnswerer, RemoteAnswerer
from routes.terminal.screen import Screen
from routes.terminal.typing import HELP, INPUT, SHOW_HELP, STOP, PausingAnswerer, Typing
from routes.terminal.undo import COMMAND, Undo
from routes.terminal.view import MARGIN, View
from tools.builtin.submit_plan import NAME as SUBMIT_PLAN

PROMPT = "> "
CANCEL_LIMIT_S = 2.0  # how long leaving waits until the server has heard that the run is to stop
FAILED, INTERRUPTED = 1, 130
VALID_PORTS = range(1, 65_536)
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Left(Exception):
    """The user has interrupted twice: nothing more is wanted, not even a prompt."""


class ChatOptions(Struct, frozen=True):
    """Options of the command line; an empty message means standard input or a prompt."""

    message: str = ""
    url: str | None = None
    session: str | None = None
    token: str | None = None
    approval: str | None = None
    model: str | None = None
    when_absent: str | None = None
    mode: str | None = None
    profile: str | None = None


def chat(options: ChatOptions, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Talk until the message is answered or the user leaves. Exit code 0, 1 when a run failed, 130 when stopped."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _leave)  # as SystemExit, so that a server of our own is stopped on the way out
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        message = options.message or _piped(loaded.settings.max_message_bytes)
        with _server(options.url, loaded, environ) as (url, is_own):
            model = None if is_own else options.model  # our own has it as its default
            own = read_local_token(loaded.settings.data_dir)
            talk = Talk(
                *(url, options.token, options.session, options.approval, model, own, options.when_absent),
                mode=options.mode,
                profile=options.profile,
            )
            return talk.say(message) if message else talk.converse()
    except ChatFailed as error:
        return _report(error)
    except Left:
        return INTERRUPTED


class Talk:
    """One conversation with the server at `url`."""

    def __init__(
        self,
        url: str,
        token: str | None,
        session: str | None,
        approval: str | None = None,
        model: str | None = None,
        own: str | None = None,
        when_absent: str | None = None,
        mode: str | None = None,
        profile: str | None = None,
    ) -> None:
        self._profile = _sendable(profile) if profile else None
        self._url = url
        self._model = _sendable(model) if model else None
        self._approval = approval
        self._when_absent = when_absent
        self._mode = mode
        self._rest = ""  # typed while a run went on, and not sent
        self._has_token = bool(token)
        self._auth = TokenAuth(checked_token(token) if token else None, own)
        self._session = _sendable(session) if session else None
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._redraw = sys.stdout.isatty() and not self._console.is_dumb_terminal

    def converse(self) -> int:
        """Prompt for one message after the other until the user leaves."""
        with suppress(ImportError):  # line editing and history, where Python was built with it
            import readline  # noqa: F401
        print("Ctrl-C stops a run, Ctrl-\\ its command, Ctrl-D leaves, /help tells more.")
        interrupted = False
        while True:
            try:
                message = self._input()
            except EOFError:
                print()
                return 0
            except KeyboardInterrupt:
                print()
                if interrupted:
                    return INTERRUPTED
                interrupted = True
                continue
            interrupted = False
            if message.strip():
                self._say_or_tell(message)

    def _input(self) -> str:
        rest, self._rest = self._rest, ""
        readline = sys.modules.get("readline")
        if readline and rest:
            readline.set_startup_hook(lambda: readline.insert_text(rest))
        try:
            return input(PROMPT)
        finally:
            if readline:
                readline.set_startup_hook()

    def _say_or_tell(self, message: str) -> None:
        try:
            if message.strip() == COMMAND:
                asyncio.run(self._undo())
            elif message.split()[:1] == [DOCUMENT]:
                asyncio.run(self._print_document(message))
            elif message.strip() == SHOW_HELP:
                print(HELP)
            elif message.split()[0] in (STOP, INPUT):
                print("No command runs.")
            else:
                self.say(message)
        except ChatFailed as error:
            _report(error)

    async def _undo(self) -> None:
        async with self._client() as client:
            await Undo(client, self._console.print, _confirmed).last(self._session)

    async def _print_document(self, message: str) -> None:
        async with self._client() as client:
            await Documents(client, self._console.print).print_one(self._session, message)

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=self._url, auth=self._auth, timeout=TIMEOUT, trust_env=not is_local(self._url)
        )

    def say(self, message: str) -> int:
        """One message and everything it brings about, as an exit code. Raises ChatFailed and Left."""
        view = View(summary=self._redraw, width=_window_width)
        try:
            asyncio.run(self._turn(_sendable(message), view))
        except (asyncio.CancelledError, KeyboardInterrupt):
            return INTERRUPTED
        return exit_code(view.ended)

    async def _turn(self, message: str, view: View) -> None:
        screen = Screen(self._console, view, redraw=self._redraw)
        async with self._client() as client:
            link = Link(
                *(client, self._session, self._approval),
                model=self._model,
                when_absent=self._when_absent,
                mode=self._mode,
                profile=self._profile,
                terminal=_window(),
            )
            interrupts = Interrupts(link, lambda event: asking.show(event))
            typing = Typing(link, lambda event: asking.show(event), interrupts.stop_call, redraw=self._redraw)
            screen.typed = lambda: typing.shown
            asking = Asking(link, screen, PausingAnswerer(typing, self._answerer(link, screen)))
            with _interrupts(interrupts), typing.active():
                try:
                    async with aclosing(link.ask(message)) as events:
                        async for event in events:
                            asking.show(event)
                            if isinstance(event, ToolFinished) and event.name == SUBMIT_PLAN and event.ok:
                                self._mode = None  # what comes now is carried out
                finally:
                    await asking.close()
                    self._session = link.session
                    await typing.settle(CANCEL_LIMIT_S)
                    self._rest = typing.take_rest()
                    await interrupts.settle()

    def _answerer(self, link: Link, screen: Screen) -> Answerer:
        if sys.stdin.isatty() and sys.stdout.isatty():
            return Keyboard(lambda problem: screen.show(Notice("approval", problem)))
        waits = self._approval or self._when_absent == WhenAbsent.WAIT
        return RemoteAnswerer(link, token=self._has_token) if waits else NoAnswerer()


def _confirmed(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False


class Interrupts:
    """Keys while a run is under way: Ctrl-C stops it, and a second one leaves; Ctrl-\\ stops the latest call alone."""

    def __init__(self, link: Link, show: Callable[[AgentEvent], None]) -> None:
        self._link = link
        self._show = show
        self._turn = asyncio.current_task()
        self._cancelling: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        if self._cancelling is None and self._link.run is not None:
            self._cancelling = asyncio.get_running_loop().create_task(self._cancel())
        elif self._turn:
            self._turn.cancel()

    def stop_call(self) -> None:
        """Stop the latest call, if one runs."""
        if self._link.running and (self._stopping is None or self._stopping.done()):
            self._stopping = asyncio.get_running_loop().create_task(self._stop_call())

    async def settle(self) -> None:
        """Let a cancel that is on its way arrive: else the run would go on unwatched. Raises Left after it."""
        if self._cancelling is None:
            return
        _, late = await asyncio.wait([self._cancelling], timeout=CANCEL_LIMIT_S)
        if late:
            self._show(Notice("cancel", "The server has not answered: the run may go on."))
        if self._turn and self._turn.cancelling():
            raise Left

    async def _stop_call(self) -> None:
        self._show(Notice("cancel", "Stopping the call. Ctrl-C stops the run."))
        if trouble := await self._link.cancel_call():
            self._show(Notice("cancel", trouble))

    async def _cancel(self) -> None:
        self._show(Notice("cancel", "Stopping the run. Ctrl-C again leaves."))
        if trouble := await self._link.cancel():
            self._show(Notice("cancel", trouble))


@contextmanager
def _interrupts(answer: Interrupts) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, answer)
    loop.add_signal_handler(signal.SIGQUIT, answer.stop_call)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGQUIT)


@contextmanager
def _server(url: str | None, loaded: Loaded, environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """The URL to talk to: the one that is target, if it answers, else that of a server of our own; and which it is."""
    target = checked_url(url) if url else default_url(loaded.settings)
    if answers(target):
        yield target, False
        return
    if url and not is_local(target):
        raise ChatFailed(
            f"No dragoman server answers at {target}. Start it there, or leave --url away to run one here."
        )
    print(f"No dragoman server answers at {target}: starting one for this conversation.", file=sys.stderr)
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
        raise ChatFailed(f"{url!a} is not the URL of a server. Give one such as http://127.0.0.1:8724.")
    return url.rstrip("/")


def checked_token(token: str) -> str:
    """The token as a header can carry it. Raises ChatFailed."""
    bare = token.strip()  # `DRAGOMAN_TOKEN=$(< file)` and the like bring a line's end along
    if not bare or not bare.isascii() or not bare.isprintable() or " " in bare:
        raise ChatFailed("The token is not one that `dragoman token create` makes. Copy it again, whole and alone.")
    return bare


def default_url(settings: Settings) -> str:
    """The URL of a server with these settings, from this machine."""
    host = ANY_ADDRESS.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def exit_code(ended: AgentEvent | None) -> int:
    match ended:
        case RunFinished(reason="cancelled"):
            return INTERRUPTED
        case RunFailed():
            return FAILED
        case _:
            return 0


def _piped(limit: int) -> str:
    """The message on standard input, or nothing when that is a terminal."""
    if sys.stdin.isatty():
        return ""
    written = sys.stdin.buffer.read(limit + 1)
    if len(written) > limit:
        raise ChatFailed(
            f"The message on standard input is longer than {limit} bytes. Shorten it, or raise max_message_bytes."
        )
    if not written.strip():
        raise ChatFailed("There is nothing to say. Give a message as an argument or on standard input.")
    return written.decode("utf-8", "replace")


def _sendable(text: str) -> str:
    """The text without what a terminal could not decode, which is not valid UTF-8 to send either."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _report(error: ChatFailed) -> int:
    print(f"dragoman: {error}", file=sys.stderr)
    return FAILED


def _window_width() -> int | None:
    """The columns of the window; None where there is no window. The console takes a dumb terminal for 80 wide."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _window() -> dict[str, int] | None:
    """The room for what commands print; None where there is no terminal to read it, or to answer them."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    size = shutil.get_terminal_size()
    columns, rows = size.columns - len(MARGIN), size.lines
    return {"columns": max(20, min(400, columns)), "rows": max(5, min(200, rows))}


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
