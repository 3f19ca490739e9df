"""Standing of the conversation: greeting, status line, Shift-Tab; what the server does not say is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from app.core.events import AgentEvent, RunStarted, Usage
from routes.terminal.api import Api
from routes.terminal.event_client import ChatFailed, Choices, step
from routes.terminal.rendering.figures import cost
from routes.texts import text
from routes.texts.exact import one_line

LIMIT_S = 3.0
ORDER = ("sandboxed", "ask", "plan", "deny", "auto")  # of Shift-Tab


class Standing(Struct):
    choices: Choices
    about: Mapping[str, Any] = {}  # the answer of GET /options, with each option by its name
    windows: dict[str, int | None] = {}
    model: str = ""  # of the last run
    tokens: int = 0  # of its last request and answer
    spent: float = 0.0  # by the runs before the one that goes on
    spending: float = 0.0

    async def look(self, api: Api) -> None:
        """Ask anew, for another conversation. No prompt waits long for it."""
        self.model, self.tokens, self.spent, self.spending = "", 0, 0.0, 0.0
        with suppress(ChatFailed, TimeoutError, LookupError, TypeError, ValueError, AttributeError):
            async with asyncio.timeout(LIMIT_S):
                await self.learn(api)
                for one in (await api.get("/endpoints"))["endpoints"]:
                    self.windows |= {row["name"].rpartition("/")[2]: row.get("window") for row in one["models"]}

    async def learn(self, api: Api) -> None:
        """Raises ChatFailed."""
        about = await api.get(f"/options?session={step(self.choices.session or '')}")
        self.about = about | {row["option"]: row["value"] for row in about["options"]}

    def follow(self, event: AgentEvent) -> None:
        match event:
            case RunStarted(model=model):
                self.model, self.spent, self.spending = model, self.spent + self.spending, 0.0
            case Usage(read, written, total_cost=total):
                self.tokens, self.spending = read + written, total or 0.0

    @property
    def mode(self) -> str:
        return "plan" if self.choices.mode == "plan" else str(self.choices.approval or self.about.get("approval") or "")

    @property
    def modes(self) -> list[str]:
        """`auto` is for admins."""
        return [mode for mode in ORDER if mode != "auto" or self.about.get("role") == "admin"]

    def next_mode(self) -> None:
        modes = self.modes
        self.choose_mode(modes[(modes.index(self.mode) + 1) % len(modes) if self.mode in modes else 0])

    def choose_mode(self, mode: str) -> None:
        """A plan that is accepted is carried out with the server's mode."""
        self.choices.mode, self.choices.approval = ("plan", None) if mode == "plan" else (None, mode)

    def facts(self) -> list[str]:
        """Model, folder, context, cost and mode."""
        model = (self.choices.model or self.model or str(self.about.get("model") or "")).rpartition("/")[2]
        window, home = self.windows.get(model), str(Path.home())
        window = window if isinstance(window, int) and window > 0 else None
        share = f"{text('usage.context')} {100 * self.tokens // window} %" if window and self.tokens else ""
        spent = cost({"cost": self.spent + self.spending, "measured": True}) if self.spent + self.spending else ""
        folder = str(self.about.get("workspace") or "")
        folder = f"~{folder.removeprefix(home)}" if f"{folder}/".startswith(f"{home}/") else folder
        return [*map(one_line, (model, folder, share, spent.removeprefix(", "), self.mode))]
