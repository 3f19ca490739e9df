"""The terminal client's side of the wire: one run's events, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import httpx2
from msgspec import Struct
from msgspec.structs import asdict

from app.core.events import TERMINAL, AgentEvent, Notice, ToolFinished, ToolProgress, ToolStarted
from app.core.helper_events import HelperApproval
from routes.access.token_auth import NotProven
from routes.terminal.exit_codes import FAILED, UNREACHABLE
from routes.terminal.view import printable, read_event
from routes.texts import text

# The server writes a comment at least every 15 s: three missed ones mean that the connection is dead.
TIMEOUT = httpx2.Timeout(10.0, read=45.0)
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
AWAY = frozenset({502, 503, 504})
ENDED = 409  # of a message: its run takes no more
DECIDED = frozenset({404, 409, 410})  # nothing waits there, not any more, or it is too late: asking again is no use
MAX_REFUSAL_BYTES = 64 * 1024
# An event may hold a whole answer or the whole arguments of a call: 4 Mi characters of 12 ASCII bytes at most.
MAX_EVENT_BYTES = 64 * 1024 * 1024

Message = str | list[dict[str, Any]]
"""A text, or parts: a text and files."""


class ChatFailed(Exception):
    """The conversation cannot go on. The message says what to do next; `code` is the exit code of a script."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class RunEnded(Exception):
    """The run has ended before the server had the message."""


class Choices(Struct):
    """The options of the runs to come; None for the server's own."""

    session: str | None = None
    model: str | None = None
    approval: str | None = None
    when_absent: str | None = None
    mode: str | None = None
    profile: str | None = None
    temporary: bool | None = None
    read_only: bool | None = None
    workspace: str | None = None
    channel: str | None = None

    def switch(self, session: str | None) -> None:
        """Go on in another conversation, which has modes of its own, or (None) in a new one."""
        self.session = session
        self.temporary = self.read_only = self.workspace = None


class NotTaken(Struct, frozen=True):
    """A decision that the server did not take. `final`: another one would not be, either."""

    message: str
    final: bool


class Link:
    """Talks to one server about one run. `session` is the conversation, once there is one; `run` is the run's id.

    `terminal` is the size of the window that shows what commands print. `pauses_s` are the waits before each attempt to
    reconnect; events that arrive start them anew.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        choices: Choices,
        *,
        terminal: Mapping[str, int] | None = None,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self.session = choices.session
        self._options = asdict(choices) | {"terminal": terminal}
        self.run: str | None = None
        self.running: dict[str, str] = {}  # calls with their names, the latest last
        self.reading: str | None = None  # the latest of them that has a terminal
        self.asks = ""  # the name of that call, while its program asks for a line
        self.on_asks: Callable[[], None] = lambda: None
        self.hides_input = False  # its program reads a line without showing it, such as a password
        self._helpers: dict[str, str] = {}  # approval -> the helper whose call it is
        self._client = client
        self._pauses_s = pauses_s
        self._last_id = ""

    def ask(self, message: Message, **more: Any) -> AsyncGenerator[AgentEvent, None]:
        """Start the run, with `more` fields of its request, and yield its events, the terminal one last.

        Raises ChatFailed.
        """
        body = {name: value for name, value in self._options.items() if value is not None} | {"message": message}
        return self._to_the_end(self._connection("POST", "/chat", json=body | more))

    def follow(self, run: str, after: int) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events of a run behind the one with this number. Raises ChatFailed."""
        self.run, self._last_id = run, str(after)
        return self._to_the_end(self._rest())

    def _rest(self) -> AsyncGenerator[AgentEvent, None]:
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        return self._connection("GET", f"/runs/{self.run}/events", headers=headers)

    async def _to_the_end(self, connection: AsyncGenerator[AgentEvent, None]) -> AsyncGenerator[AgentEvent, None]:
        pauses, announced = iter(self._pauses_s), False
        while True:
            before = self._last_id
            try:
                async with aclosing(connection) as events:
                    async for event in events:
                        self._follow(event)
                        yield event
                        if event.type in TERMINAL:
                            return
            except NotProven as error:
                raise ChatFailed(str(error)) from error
            except httpx2.TransportError as error:
                if self.run is None:
                    raise no_answer(self._client, error) from error
            if self.run is None:
                raise ChatFailed(text("terminal.no_run"))
            if self._last_id != before:
                pauses, announced = iter(self._pauses_s), False
            if (pause := next(pauses, None)) is None:
                count = len(self._pauses_s)
                raise ChatFailed(text("terminal.lost", count=count, session=self.session), UNREACHABLE)
            if not announced:
                yield Notice("reconnect", text("terminal.reconnecting"))
                announced = True
            await asyncio.sleep(pause)
            connection = self._rest()

    def _follow(self, event: AgentEvent) -> None:
        if isinstance(event, HelperApproval):
            self._helpers[event.approval] = event.path[-1] if event.path else ""
        elif isinstance(event, ToolStarted):
            self.running[event.call] = event.name
        elif isinstance(event, ToolProgress) and event.input:
            self.reading, self.hides_input = event.call, bool(event.hidden)
            asks = self.running.get(event.call, "") if event.asks and not event.hidden else ""
            if asks and not self.asks:
                self.on_asks()
            self.asks = asks
        elif isinstance(event, ToolFinished) and event.call in self.running:
            del self.running[event.call]
            if self.reading == event.call:
                self.reading, self.hides_input, self.asks = None, False, ""

    async def cancel(self) -> str | None:
        """Stop the run under way; None when the server took it, else why not."""
        return await self._post(text("terminal.stop.failed"), "cancel")

    async def cancel_call(self) -> str | None:
        """Stop the call that began last, while the run goes on; None when the server took it, else why not."""
        return await self._post(text("terminal.stop_call.failed"), f"calls/{step([*self.running][-1])}/cancel")

    async def type_in(self, line: str) -> str | None:
        """Type a line into the command that has a terminal; None when the server took it, else why not."""
        if self.reading is None:
            return text("terminal.input.none")
        self.asks = ""  # until it asks again
        path = f"calls/{step(self.reading)}/input"
        return await self._post(text("terminal.input.failed"), path, {"text": line, "keys": ["enter"]})

    async def steer(self, message: Message) -> str | None:
        """Send a message to the run under way; None when the server took it, else why not. Raises RunEnded."""
        if self.run is None:
            return text("terminal.steer.early")
        return await self._post(text("terminal.steer.failed"), "messages", {"message": message}, ended=ENDED)

    async def _post(
        self, trouble: str, path: str, body: Mapping[str, Any] | None = None, *, ended: int | None = None
    ) -> str | None:
        """Return why the server did not take it. Raises RunEnded where it answers `ended`."""
        try:
            response = await self._client.post(f"/runs/{self.run}/{path}", json=body)
        except httpx2.TransportError as error:
            return f"{trouble}: {_reason(error)}."
        if response.status_code == ended:
            raise RunEnded
        return None if response.is_success else f"{trouble}: {refusal(response.status_code, response.content)}"

    async def decide(self, call: str, body: Mapping[str, Any]) -> NotTaken | None:
        """Answer what the run asks; None when the server took it."""
        try:
            response = await self._client.post(self.decision_url(call), json={"door": "terminal", **body})
        except httpx2.TransportError as error:
            return NotTaken(text("terminal.answer.failed", reason=_reason(error)), final=False)
        if response.is_success:
            return None
        return NotTaken(refusal(response.status_code, response.content), final=response.status_code in DECIDED)

    async def preview(self, call: str) -> Mapping[str, Any]:
        """The change that a waiting call would make to a file; empty if the server cannot tell."""
        try:
            response = await self._client.get(f"{self._approval_path(call)}/preview")
            change = response.json() if response.status_code == 200 else None
        except (httpx2.TransportError, ValueError, RecursionError):
            return {}
        return change if isinstance(change, dict) else {}

    def decision_url(self, call: str) -> str:
        return f"{str(self._client.base_url).rstrip('/')}{self._approval_path(call)}"

    def _approval_path(self, call: str) -> str:
        return f"/runs/{self._helpers.get(call, self.run)}/approvals/{step(call)}"

    async def _connection(self, method: str, path: str, **request: Any) -> AsyncGenerator[AgentEvent, None]:
        async with self._client.stream(method, path, **request) as response:
            if response.status_code == 204:
                raise ChatFailed(text("terminal.no_end", run=self.run))
            if response.status_code != 200:
                problem = refusal(response.status_code, await _start_of(response))
                if self.run and response.status_code in AWAY:
                    raise httpx2.RemoteProtocolError(problem)
                raise ChatFailed(problem)
            self.run = response.headers.get("x-run-id", self.run)
            self.session = response.headers.get("x-session-id", self.session)
            async for message in httpx2.EventSource(response, MAX_EVENT_BYTES):
                self._last_id = message.id or self._last_id
                try:
                    event = read_event(message.event, message.data)
                except ValueError as error:
                    event = Notice("unreadable", str(error))
                if event:
                    yield event


async def _start_of(response: httpx2.Response) -> bytes:
    """A refusal's body, which is short; a long one is no refusal of ours and is cut."""
    body = bytearray()
    async for block in response.aiter_bytes():
        body += block
        if len(body) > MAX_REFUSAL_BYTES:
            break
    return bytes(body)


def step(name: str) -> str:
    """The name as one step of a path."""
    return quote(name, safe="")


def refusal(status: int, body: bytes) -> str:
    """The message of an error in the one error shape, or the status of any other answer."""
    hint = f" {text('terminal.give_token')}" if status == 401 else ""
    try:
        return printable(str(json.loads(body)["error"]["message"])) + hint
    except (ValueError, KeyError, TypeError, RecursionError):
        return text("terminal.answered_status", status=status)


def no_answer(client: httpx2.AsyncClient, error: httpx2.TransportError) -> ChatFailed:
    return ChatFailed(text("terminal.no_answer", url=client.base_url, reason=_reason(error)), UNREACHABLE)


def _reason(error: httpx2.TransportError) -> str:
    return printable(str(error)) or type(error).__name__
