"""A conversation of a person at a terminal: messages, commands, and what is typed while a run goes on."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any

import httpx2

from app.core.events import AgentEvent, Notice, RunStarted, ToolFinished
from routes.terminal.answers import Hooks, Interrupted, Over, PersonAnswers, Terminal
from routes.terminal.api import Api
from routes.terminal.attachments import attached, with_files
from routes.terminal.commands.conversation import Conversation
from routes.terminal.commands.table import Command, completions, found, near
from routes.terminal.event_client import ChatFailed, Choices, Link, Message, RunEnded, step
from routes.terminal.exit_codes import ANSWERED, FAILED, INTERRUPTED, exit_code
from routes.terminal.interrupts import Interrupts
from routes.terminal.own_shell import OwnShell, Ran, with_ran
from routes.terminal.rendering.figures import duration
from routes.terminal.run_display import Asking
from routes.terminal.view import View, printable
from routes.texts import text
from tools.builtin.submit_plan import NAME as SUBMIT_PLAN

CANCEL_LIMIT_S = 2.0  # how long leaving waits until the server has heard that the run is to stop
STEP_LINES = 12  # of a message that is shown again


class Talk(Conversation):
    """One conversation at a time, on a server that `client` reaches."""

    def __init__(
        self,
        terminal: Terminal,
        client: httpx2.AsyncClient,
        choices: Choices,
        *,
        width: Callable[[], int | None],
        window: Callable[[], Mapping[str, int] | None],
    ) -> None:
        super().__init__(terminal, Api(client), choices)
        self._width = width
        self._window = window
        self._link: Link | None = None
        self._queued = deque[str]()
        self._sending = set[asyncio.Task[None]]()
        self._in_order = asyncio.Lock()  # as they were typed
        self._ran: list[Ran] = []  # by the person's shell, since the last message
        self._show: Callable[[AgentEvent], None] = lambda _event: None
        terminal.hooks = Hooks(
            line=self._typed,
            switch=self._switch,
            next_mode=self._next_mode,
            status=self.standing.facts,
            completions=lambda typed: completions(typed, self.names),
            hides=self.hides,
            sign=lambda: text("terminal.input.sign", name=self._asks) if self._asks else "",
        )

    async def converse(self, *first: str) -> int:
        """Take one message after the other, these first, until the person leaves. Raises Left."""
        self._queued.extend(first)
        await self.standing.look(self.api)
        self.say(self._greeting(), "dim")
        interrupted = False
        while not self.left:
            try:
                message = self._queued.popleft() if self._queued else await self._message()
            except Over:
                break
            except Interrupted:
                if interrupted:
                    return INTERRUPTED
                interrupted = True
                self.say(text("terminal.leave_hint"), "dim")
                continue
            interrupted = False
            await self._take(message)
        return ANSWERED

    async def _message(self) -> str:
        draft, self.draft = self.draft, ""
        return await self.terminal.message(draft)

    async def _take(self, message: str) -> None:
        if not message.strip():
            return
        try:
            if (typed := command_of(message)) is not None:
                word, argument = typed
                command = found(word)
                if command is None:
                    self.problem(near(word))
                elif command.run is None:
                    stop = command.name == "stop"
                    self.problem(text("terminal.stop_call.none") if stop else text("terminal.input.none"))
                else:
                    self.say(f"> {printable(message.strip())}", "bold")
                    await command.run(self, argument)
            elif own := own_command_of(message):
                await self._run_own(own)
            else:
                await self.send(message)
        except ChatFailed as error:
            self.say(f"✗ {error}", "red")

    async def send(self, message: str) -> int:
        self.last_message = message
        self.say(_shown(message), "bold")
        parts, problems = with_files(message)
        for problem in problems:
            self.problem(problem)
        if problems:
            return FAILED
        for line in attached(parts):
            self.say(line, "dim")
        if isinstance(parts, list):
            parts[0]["text"] = with_ran(message, self._ran)
        else:
            parts = with_ran(message, self._ran)
        await self._begin_branch()
        view = View(summary=True, width=self._width)
        await self._turn(parts, view)
        return exit_code(view.ended)

    async def _begin_branch(self) -> None:
        """Go on in a branch, if the person went back to an earlier message of this conversation. Raises ChatFailed."""
        rewound, self.rewound = self.rewound, None
        if rewound and rewound.session == self.choices.session:
            path = f"/sessions/{step(rewound.session)}/fork"
            self.choices.session = str((await self.api.post(path, {"before": rewound.run}))["id"])
            await self.standing.look(self.api)
            self.say(text("terminal.rewind.branch", session=rewound.session), "dim")

    async def _turn(self, message: Message, view: View) -> None:
        choices = self.choices
        link = self._link = Link(self.api.client, choices, terminal=self._window())
        output = self.terminal.output(view)
        interrupts = Interrupts(link, lambda event: asking.show(event))
        person = PersonAnswers(self.terminal, lambda problem: output.show(Notice("approval", problem)), interrupts)
        asking = Asking(link, output, person, previews=view.previews)
        self._show = asking.show
        terminal, began = self.terminal, time.monotonic()
        self._to_agent, link.on_asks = False, self._program_asks
        hooks = terminal.hooks
        hooks.interrupt, hooks.stop, hooks.stop_call = interrupts, interrupts.stop, interrupts.stop_call
        hooks.working = lambda: self._working(link, time.monotonic() - began)
        try:
            await interrupts.during(self._events(link, message, asking))
        finally:
            await asking.close()
            choices.session = link.session
            if self._sending:
                await asyncio.wait(self._sending, timeout=CANCEL_LIMIT_S)
            terminal.hide(on=False)
            hooks.working = self._link = None
            await interrupts.settle(CANCEL_LIMIT_S)
            link.run = None  # from now on there is nothing that keys could stop

    async def _run_own(self, command: str) -> None:
        if not self._says_own:
            self._says_own = True
            self.problem(text("terminal.own.says"))
        self.say(f"$ {printable(command)}", "bold")
        shell, began, hooks = OwnShell(self.terminal.print, self._window()), time.monotonic(), self.terminal.hooks
        hooks.interrupt = hooks.stop = shell.interrupt
        hooks.working = lambda: text("terminal.own.working", time=duration(time.monotonic() - began))
        try:
            ran = await shell.run(command)
        except OSError as error:
            self.problem(text("terminal.own.failed", reason=error.strerror or error))
            return
        finally:
            hooks.working = None
            hooks.interrupt = hooks.stop = lambda: None
        self._ran.append(ran)
        self.say(f"  {text('terminal.own.ended', code=ran.code)}", "dim" if ran.code == 0 else "red")

    async def _events(self, link: Link, message: Message, asking: Asking) -> None:
        async with aclosing(link.ask(message)) as events:
            async for event in events:
                asking.show(event)
                self.standing.follow(event)
                if isinstance(event, RunStarted):
                    self._ran = []
                    self.choices.session = event.session
                elif isinstance(event, ToolFinished) and event.name == SUBMIT_PLAN and event.ok:
                    self.choices.mode = None  # what comes now is carried out

    def _working(self, link: Link, seconds: float) -> str:
        if link.hides_input:
            return text("terminal.input.hidden")
        if link.asks:
            state = "terminal.status.asks" if self._asks else "terminal.status.asks_not"
            return text(state, time=duration(seconds), name=printable(link.asks))
        return text("terminal.status.working", time=duration(seconds))

    def hides(self, typed: str) -> bool:
        """Return whether what is typed into a run is not to be shown: a program reads a password."""
        return bool(self._link and self._link.hides_input and not typed.startswith("/"))

    def _greeting(self) -> str:
        facts, session = [*filter(None, self.standing.facts()[:-1])], self.choices.session
        here = f"{text('page.conversation')} {session}" if session else text("list.new")
        more = text("terminal.greeting", sandbox=self.standing.about.get("sandbox", "?"), session=here)
        return printable("\n".join([" · ".join([*facts, more]), text("terminal.welcome")]))

    def _next_mode(self) -> None:
        self.standing.next_mode()
        if self._link:
            self._notice(text("terminal.mode.later", mode=self.standing.mode))

    @property
    def _asks(self) -> str:
        """The name of the call whose program is to get the words that are typed; empty for the agent."""
        return printable(self._link.asks) if self._link and self.terminal.edits and not self._to_agent else ""

    def _program_asks(self) -> None:
        """Leave words to the agent that were begun before the program asked."""
        self._to_agent = self._to_agent or self.terminal.is_typing

    def _switch(self) -> None:
        """Let the words go to the agent although a program asks, or to the program again."""
        self._to_agent = not self._to_agent

    # What is typed while a run goes on

    def _typed(self, line: str) -> None:
        link = self._link
        if link is None or not (line.strip() or self._asks):
            if line.strip():
                self._queued.append(line)
            return
        if self._hidden_line:
            self._hidden_line = False
            self.terminal.hide(on=False)
            self._deliver(link.type_in(line), "")
            return
        word, _, rest = line.strip().partition(" ")
        if word == "/input" and rest:
            self._deliver(link.type_in(line.lstrip().partition(" ")[2]), "")
        elif word == "/input":
            self._hidden_line = True
            self.terminal.hide(on=True)
        elif (typed := command_of(line)) is not None and (found(typed[0]) or not self._asks):
            self._command_in_run(*typed)
        elif self._asks:
            self._deliver(link.type_in(line), "")
        elif link.hides_input:  # a password is no message to a model
            self._notice(text("terminal.input.held_back"))
        elif own_command_of(line):  # one after the other: both write here
            self._queued.append(line)
            self._notice(text("terminal.own.later"))
        else:
            hint = f" {text('terminal.steer.input_hint')}" if link.reading else ""
            parts, problems = with_files(line)
            for problem in problems:
                self._notice(problem)
            if not problems:
                for row in attached(parts):
                    self._notice(row)
                self._deliver(self._steer(link, parts, line), f"{text('terminal.steer.sent')}{hint}")

    _hidden_line = _to_agent = _says_own = False

    async def _steer(self, link: Link, message: Message, line: str) -> str | None:
        async with self._in_order:
            with suppress(RunEnded):  # which is not known here yet
                trouble = await link.steer(message)
                if trouble is None or self._link is link:
                    return trouble
            self._queued.append(line)
            return text("terminal.steer.next")

    def _command_in_run(self, word: str, argument: str) -> None:
        command = found(word)
        if command is None:
            self._notice(near(word))
        elif command.name == "stop":
            self.terminal.hooks.stop_call()
        elif not command.in_run or command.run is None:
            self._notice(text("terminal.command.later", name=f"/{word}"))
        else:
            self._deliver(self._run_command(command, argument), "")

    async def _run_command(self, command: Command, argument: str) -> str | None:
        try:
            if command.run:
                await command.run(self, argument)
        except ChatFailed as error:
            return str(error)
        return None

    def _deliver(self, request: Coroutine[Any, Any, str | None], sent: str) -> None:
        async def report() -> None:
            if message := await request or sent:
                self._notice(message)

        task = asyncio.get_running_loop().create_task(report())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _notice(self, message: str) -> None:
        self._show(Notice("input", message))


def command_of(message: str) -> tuple[str, str] | None:
    """The command that a line is, and its argument; a path such as /etc/hosts is none, nor what begins with a space."""
    word, _, argument = message.rstrip().partition(" ")
    name = word.removeprefix("/")
    if word.startswith("/") and "\n" not in word and name.replace("-", "").isalpha():
        return name.lower(), argument.strip()
    return None


def own_command_of(message: str) -> str:
    """The command for the person's own shell behind `!`; empty for a message, such as `![picture](in.md)`."""
    return message[1:].strip() if message.startswith("!") and not message.startswith("![") else ""


def _shown(message: str) -> str:
    """The message as the transcript shows it: its first lines."""
    lines = printable(message.strip("\n")).split("\n")
    left_out = len(lines) - STEP_LINES
    if left_out > 1:
        lines = [*lines[:STEP_LINES], text("terminal.left_out", count=left_out)]
    return "\n  ".join([f"> {lines[0]}", *lines[1:]])
