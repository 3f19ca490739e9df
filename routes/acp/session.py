"""One session of the editor: its options, its prompts as runs of the server, and the runs before them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from acp import RequestError
from msgspec.structs import replace
from pydantic import BaseModel

from app.core import events
from app.core.helper_events import HelperApproval
from routes.acp.content import message_of
from routes.acp.editor import Editor
from routes.acp.editor_tools import EDITOR_TOOLS, Place
from routes.acp.turn import Turn
from routes.acp.updates import STOP_REASONS, Json, Updates, chunk
from routes.terminal.api import Api
from routes.terminal.commands.prompts import BLANK
from routes.terminal.event_client import ChatFailed, Choices, Link, step
from routes.terminal.exit_codes import UNREACHABLE
from routes.terminal.run_display import Asking, as_own
from routes.terminal.standing import Standing
from routes.terminal.talk import command_of
from routes.terminal.view import read_event
from routes.texts import text
from tools.builtin.submit_plan import NAME as SUBMIT_PLAN

KEY = "acp-"  # begins the ids that this program makes: the server knows them as keys of conversations
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0)  # a server that restarts may take half a minute
MOST_PAGES = 50  # of a log that is shown again
DEFAULT, PLAN = "default", "plan"


class Session:
    """`reach` starts a server again where that of another window was used, which has been closed."""

    def __init__(
        self, key: str, editor: Editor, api: Api, cwd: Path, reach: Callable[[], Awaitable[httpx2.AsyncClient]]
    ) -> None:
        self.key = key
        self._reach = reach
        self._cancels = 0
        self.choices = Choices()
        self._standing = Standing(self.choices)
        self._editor = editor
        self._api = api
        self._cwd = self._base = cwd  # and the folder of its tools
        self._tools: Sequence[Json] = ()
        self._models: Sequence[str] = ()
        self._prompts: dict[str, str] = {}
        self._turns: list[Turn] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Learn what the server has of the session, and what it offers. Raises ChatFailed, RequestError."""
        session = self.choices.session = await session_of(self._api, self.key)
        await self._standing.look(self._api)
        if not self._standing.about:  # it could not be had, for a reason
            await self._standing.learn(self._api)
        about = self._standing.about
        models = [row["id"] for row in (await self._api.get("/v1/models"))["data"]]
        self._models = [name for name in models if not name.startswith("dragoman/")]
        root, can = Path(about["workspace"] or self._cwd), self._editor.capabilities
        inside = self._cwd.is_relative_to(root)
        if not inside and not root.is_relative_to(self._cwd):
            self._tools = [tool.declared(name) for name, tool in EDITOR_TOOLS.items() if tool.offered(can)]
        if session is None and not inside and not self._tools:
            raise RequestError(-32602, text("terminal.acp.outside", folder=self._cwd, workspace=root))
        if session is None and inside and self._cwd != root:
            self.choices.workspace = str(self._cwd.relative_to(root))
        self._base = root if session else self._cwd
        self._later(self._show_commands())  # behind the answer, which names the session

    def options(self) -> Json:
        """Choices of a person with their values now, as the newer and as the older field of the protocol."""
        modes = self._standing.modes
        keys = {mode: "composer.plan.hint" if mode == PLAN else f"terminal.approve.{mode}" for mode in modes}
        named = [{"name": mode, "description": text(keys[mode])} for mode in modes]
        models = [{"value": one, "name": one} for one in (DEFAULT, *self._models)]
        mode, model = self._standing.mode or modes[0], self.choices.model or DEFAULT
        rows = (
            ("mode", text("conversation.name.approval"), mode, [{"value": one["name"]} | one for one in named]),
            ("model", text("conversation.name.model"), model, models),
        )
        options = [
            {"id": key, "name": name, "category": key, "type": "select", "currentValue": value, "options": offered}
            for key, name, value, offered in rows
        ]
        state = {"currentModeId": mode, "availableModes": [{"id": one["name"]} | one for one in named]}
        return {"configOptions": options, "modes": state}

    def choose(self, option: str, value: str | bool) -> None:
        """From the next prompt on. Raises RequestError."""
        rows = {row["id"]: [one["value"] for one in row["options"]] for row in self.options()["configOptions"]}
        if value not in rows.get(option, ()):
            raise RequestError(-32602, f"{str(value)[:80]!a} is not among {', '.join(rows.get(option, rows))}")
        if option == "model":
            self.choices.model = None if value == DEFAULT else str(value)
        else:
            self._standing.choose_mode(str(value))

    async def prompt(self, blocks: Sequence[BaseModel]) -> str:
        """One turn; its stop reason. Raises RequestError, ChatFailed."""
        message = message_of(blocks, self._cwd)
        if isinstance(message, str) and (typed := command_of(message)) and typed[0] in self._prompts:
            message = self._filled(*typed)
        more: Json = {"when_busy": "queue"} | ({"conversation": self.key} if self.key.startswith(KEY) else {})
        more |= {"client_tools": self._tools} if self._tools else {}
        cancels, again = self._cancels, True
        while True:
            turn = self._turn()
            turn.cancelled = self._cancels > cancels
            try:
                await self._watch(turn, turn.link.ask(message, **more))
            except ChatFailed as error:
                if again and error.code == UNREACHABLE and turn.link.run is None:
                    again = not await self._reach()
                    continue
                if not turn.cancelled:
                    raise
            self.choices.session, self.choices.workspace = turn.link.session, None
            if not turn.handed or turn.cancelled or (results := await self._results(turn)) is None:
                break
            message, more = "", more | {"tool_results": results}
        match turn.ended:
            case events.RunFailed(code, problem, retryable) if not turn.cancelled:
                raise RequestError(-32603, problem, {"code": code, "retryable": retryable})
            case events.RunFinished(reason) if not turn.cancelled:
                return STOP_REASONS.get(reason, "end_turn")
        return "cancelled"

    async def _results(self, turn: Turn) -> list[Json] | None:
        """Run the calls of the editor's tools; None if the turn was cancelled meanwhile."""
        turn.work = asyncio.gather(*(self._run_in_editor(turn, call) for call in turn.handed))
        self._turns.append(turn)
        try:
            return await turn.work
        except asyncio.CancelledError:
            if turn.cancelled:
                return None
            raise
        finally:
            self._turns.remove(turn)

    async def _run_in_editor(self, turn: Turn, call: events.ToolHanded) -> Json:
        """Run a call of a tool of the editor's, if its person allows it. Return the result for the model."""

        def show_terminal(terminal: str) -> None:
            self._editor.show(self.key, turn.updates.terminal(call.call, terminal))

        tool, ok, denies = EDITOR_TOOLS.get(call.name), False, self._standing.mode == "deny"
        names = (*tool.texts, *tool.numbers) if tool else ()  # a model may add others, such as another session
        call = replace(call, arguments={name: one for name, one in call.arguments.items() if name in names})
        asks = self.choices.approval != "auto"  # chosen here: a server's default is no word on this machine
        try:
            if tool is None:
                words = f"The editor has no tool {call.name}."
            elif tool.asks and asks and (denies or not await turn.permits(call)):
                words = "The person does not allow it."
            else:
                ask = partial(self._editor.request, sessionId=self.key)
                words, ok = await tool.run(Place(self._cwd, ask, show_terminal), call.arguments), True
        except (RequestError, KeyError) as error:
            words = f"The editor could not do it: {error}"
        words = words.encode("utf-8", "replace").decode()  # without lone surrogates
        turn.show(events.ToolFinished(call.call, call.name, ok, words, 0.0))
        return {"call": call.call, "text": words}

    async def cancel(self) -> None:
        self._cancels += 1
        for turn in [*self._turns]:
            turn.cancelled = True
            if turn.work:
                turn.work.cancel()
            elif turn.link.run:
                turn.stopped = await turn.link.cancel() is None

    def close(self) -> None:
        """Stop showing runs that no prompt has begun."""
        for task in self._tasks:
            task.cancel()

    def _turn(self) -> Turn:
        link = Link(self._api.client, self.choices, pauses_s=PAUSES_S)
        return Turn(self._editor, self.key, link, Updates(self._base, self._standing.windows))

    async def _watch(
        self, turn: Turn, run: AsyncGenerator[events.AgentEvent, None], waiting: Iterable[events.AgentEvent] = ()
    ) -> None:
        """Show a run to its end, and ask what it asks, the `waiting` questions first. Raises ChatFailed."""
        asking = Asking(turn.link, turn, turn)
        self._turns.append(turn)
        try:
            for event in waiting:
                asking.show(event)
            async with aclosing(run) as arriving:
                async for event in arriving:
                    if turn.cancelled and not turn.stopped:  # the run was not known, or its server away
                        turn.stopped = await turn.link.cancel() is None
                    await self._load_picture(event, turn)
                    asking.show(event)
                    if isinstance(event, events.ToolFinished) and event.name == SUBMIT_PLAN and event.ok:
                        self.choices.mode = None  # what comes now is carried out
                        mode, options = self._standing.mode, self.options()["configOptions"]
                        self._editor.show(self.key, {"sessionUpdate": "config_option_update", "configOptions": options})
                        self._editor.show(self.key, {"sessionUpdate": "current_mode_update", "currentModeId": mode})
                    await self._editor.drain()
        finally:
            await asking.close()
            self._turns.remove(turn)

    async def _load_picture(self, event: events.AgentEvent, turn: Turn) -> None:
        if isinstance(event, events.ImageReturned):
            with suppress(httpx2.TransportError):
                path = f"/sessions/{step(turn.link.session or '')}/files/{event.sha256}"
                if (response := await self._api.client.get(path)).is_success:
                    turn.updates.pictures[event.sha256] = base64.b64encode(response.content).decode()

    async def _show_commands(self) -> None:
        """The person's stored prompts; their blanks are the hint for what stands behind the name."""
        rows = (await self._api.get("/prompts"))["prompts"]
        self._prompts = {row["name"]: row["text"] for row in rows}
        commands = list[Json]()
        for row in rows:
            blanks = ", ".join(dict.fromkeys(BLANK.findall(row["text"])))
            about = {"name": row["name"], "description": row["about"] or row["text"][:100]}
            commands.append(about | ({"input": {"hint": blanks}} if blanks else {}))
        self._editor.show(self.key, {"sessionUpdate": "available_commands_update", "availableCommands": commands})

    def _filled(self, name: str, argument: str) -> str:
        """The stored prompt; what stands behind its name fills its blanks, or follows."""
        words = self._prompts[name]
        return BLANK.sub(lambda _: argument, words) if BLANK.search(words) else f"{words}\n\n{argument}".rstrip()

    async def replay(self) -> None:
        """Show the runs so far, and go on with the one under way. Raises ChatFailed."""
        path, pages = f"/sessions/{step(self.choices.session or '')}/log?runs=100", list[Any]()
        while self.choices.session and (not pages or (pages[-1]["earlier"] and len(pages) < MOST_PAGES)):
            before = f"&before={step(pages[-1]['runs'][0]['run'])}" if pages else ""
            pages.append(await self._api.get(f"{path}{before}"))
        for run in (run for page in reversed(pages) for run in page["runs"]):
            await self._replay(run)

    async def _replay(self, run: Json) -> None:
        turn, waiting, last = self._turn(), dict[str, events.AgentEvent](), 0
        if words := (run.get("message") or {}).get("text"):
            self._editor.show(self.key, chunk("user_message", words))
        for row in run["events"]:
            last = row["seq"]
            with suppress(ValueError):
                if event := read_event(row["type"], json.dumps(row)):
                    event = as_own(event) if isinstance(event, HelperApproval) else event
                    if isinstance(event, events.ApprovalRequired):
                        waiting[event.call] = event
                    elif isinstance(event, events.ApprovalResolved):
                        waiting.pop(event.call, None)
                    await self._load_picture(event, turn)
                    turn.show(event)
        await self._editor.drain()
        if run.get("ended") is None:
            self._later(self._watch(turn, turn.link.follow(run["run"], last), waiting.values()))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what no request waits for."""

        async def quietly() -> None:
            with suppress(ChatFailed, ConnectionError):
                await work

        task = asyncio.create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def session_of(api: Api, key: str) -> str | None:
    """The id of a session at the server; None for one that has no messages yet. Raises ChatFailed."""
    if not key.startswith(KEY):
        return str((await api.get(f"/sessions/{step(key)}"))["id"])
    found = (await api.get(f"/sessions?conversation={step(key)}"))["sessions"]
    return str(found[0]["id"]) if found else None
