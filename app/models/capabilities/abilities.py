"""What is known of each model of a server, and how: set, said by its server, shown by an answer, or by its name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import httpx2

from app.core.provider import Ability
from app.models.capabilities.capability_readings import Fact
from app.models.capabilities.name_hints import hints_for
from app.models.capabilities.probe import ProbeResult, probe_model
from app.models.capabilities.server_counts import LLAMA_CPP, VLLM, counted
from app.models.http.client import NoAnswer
from app.models.http.served_model import ServedModel

LIMIT_S = 5.0  # for a look-up, and for a count
AGAIN_S = 60.0  # after one that failed
LOCAL_AGE_S = 300.0  # a local server may have been started anew with another model
HOSTED_AGE_S = 3600.0
MOST_MODELS = 1024  # that something is known of: whoever asks may name any
SHOWN_S = 3600.0  # so long holds what an answer has shown
SHOWN = ("tools", "images", "pdf", "window", "slots", "prompt_suffix", "counting")  # to people
TOOL_CALLS: dict[str, bool | None] = {"auto": None, "native": True, "fenced": False}
FORMS = {form.name: form for form in (LLAMA_CPP, VLLM)}

ToolCalls = Literal["auto", "native", "fenced"]


@dataclass(frozen=True, slots=True)
class AbilityOverrides:
    """What a person has set of a model; `auto` and None leave it to be found out."""

    tool_calls: ToolCalls = "auto"
    images: bool | None = None
    pdf: bool | None = None
    window: int | None = None

    def of(self, name: str) -> Fact | None:
        """By the ability's name."""
        match name:
            case "tools":
                return TOOL_CALLS[self.tool_calls]
            case "images":
                return self.images
            case "pdf":
                return self.pdf
            case "window":
                return self.window
        return None


@dataclass(slots=True)
class AbilityRecord:
    """Of one model of one server. `shown` is what answers have shown, with the time."""

    known: ProbeResult = field(default_factory=ProbeResult)
    ask_at: float = float("-inf")
    shown: dict[str, tuple[Ability, float]] = field(default_factory=dict)
    counts: bool = True
    sure: bool = False  # the last look-up was whole
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def take(self, known: ProbeResult) -> None:
        """What an answer had shown is forgotten when the server says other things than before: it is another one."""
        before, now = self.known.told, known.told
        if any(before[name].value != now[name].value for name in before.keys() & now.keys()):
            self.shown, self.counts = {}, True
        self.known = known if known.whole else ProbeResult({**before, **now})
        self.sure = known.whole


class AbilityCache:
    """What is known per server and model. The server is asked once, and again after a while or a failure.

    What an answer has shown holds against what the server says of itself, and that against what the name suggests.
    Whoever asks for the same at the same time waits for one look-up. Nothing here raises.
    """

    def __init__(self, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._memories: dict[tuple[str, str], AbilityRecord] = {}

    def find(self, endpoint: ServedModel, name: str, stated: AbilityOverrides = AbilityOverrides()) -> Ability:
        """As far as it is known by now."""
        if (value := stated.of(name)) is not None:
            return Ability(name, value, "setting")
        memory = self._memory(endpoint)
        shown, at = memory.shown.get(name, (None, 0.0))
        if shown and self._clock() < at + SHOWN_S:
            return shown
        if name in memory.known.told:
            return memory.known.told[name]
        guess = hints_for(endpoint.model).get(name)
        return Ability(name, guess, "unknown" if guess is None else "name")

    def rows(self, endpoint: ServedModel, stated: AbilityOverrides = AbilityOverrides()) -> list[Ability]:
        """For people."""
        return [self.find(endpoint, name, stated) for name in SHOWN]

    def show(self, endpoint: ServedModel, name: str, value: Fact, detail: str) -> None:
        """An answer has shown it."""
        self._memory(endpoint).shown[name] = Ability(name, value, "answer", detail), self._clock()

    def unshow(self, endpoint: ServedModel, name: str) -> None:
        """It was another reason."""
        self._memory(endpoint).shown.pop(name, None)

    def doubt(self, endpoint: ServedModel) -> None:
        """The server was lost: it may come back as another one, and is asked at once; if that fails, later again."""
        memory = self._memory(endpoint)
        if memory.sure:
            memory.ask_at = float("-inf")

    async def window(self, endpoint: ServedModel) -> int | None:
        await self._ask(endpoint)
        window = self.find(endpoint, "window").value
        return window if isinstance(window, int) else None

    async def count(self, endpoint: ServedModel, texts: Sequence[str]) -> list[int] | None:
        await self._ask(endpoint)
        memory, form = self._memory(endpoint), FORMS.get(str(self.find(endpoint, "counting").value))
        if form is None or not memory.counts:
            return None
        try:
            async with asyncio.timeout(self._limit_s):
                return await counted(endpoint, form, texts)
        except NoAnswer as refusal:
            memory.counts = not refusal.lasting
        except (TimeoutError, httpx2.HTTPError):
            pass  # busy, or gone: the next texts may be counted again
        return None

    def _memory(self, endpoint: ServedModel) -> AbilityRecord:
        name = endpoint.base_url, endpoint.model
        memory = self._memories.get(name)
        if memory is None:
            if len(self._memories) >= MOST_MODELS:
                del self._memories[next(iter(self._memories))]
            memory = self._memories[name] = AbilityRecord()
        return memory

    async def _ask(self, endpoint: ServedModel) -> None:
        """Look it up if it is time for that."""
        memory = self._memory(endpoint)
        if self._clock() < memory.ask_at:
            return
        async with memory.asking:
            if self._clock() < memory.ask_at:
                return
            memory.take(known := await probe_model(endpoint, self._limit_s))
            age = LOCAL_AGE_S if endpoint.local else HOSTED_AGE_S
            memory.ask_at = self._clock() + (age if known.whole else AGAIN_S)
