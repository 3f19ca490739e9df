"""Cache of model abilities by source: configured, shown by an answer, reported by the server, or suggested by name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import httpx2
from msgspec import Struct, field

from app.core.endpoint_spec import EndpointSpec, ToolCalls, ToolGrammar
from app.core.provider import Ability
from app.models.capabilities.capability_readings import TEMPLATE, Fact
from app.models.capabilities.name_hints import hints_for
from app.models.capabilities.probe import ProbeResult, probe_model
from app.models.capabilities.server_counts import LLAMA_CPP, VLLM, counted
from app.models.http.client import NoAnswer
from app.models.http.served_model import ServedModel
from parsing.templates.derive import TemplateGrammar
from tools.base.tasks import import_in_thread

LIMIT_S = 5.0  # for a probe, and for a count
AGAIN_S = 60.0  # after a failed probe
REFUSED_AGAIN_S = 1.0  # where nothing listened: that is soon known, and the server may be there any moment
LOCAL_AGE_S = 300.0  # a local server may be restarted with another model
HOSTED_AGE_S = 3600.0
MOST_MODELS = 1024  # bounded, because clients may send any name
SHOWN_S = 3600.0  # validity of what an answer has shown
# Abilities that are listed.
SHOWN = ("tools", "images", "pdf", "window", "slots", "prompt_suffix", "reasoning", "counting", "tool_grammar")
TOOL_CALLS: dict[str, bool | None] = {"auto": None, "native": True, "tagged": False, "fenced": False}
READING = "app.models.templates.reading"
FORMS = {form.name: form for form in (LLAMA_CPP, VLLM)}


class AbilityOverrides(Struct, frozen=True):
    """Configured abilities of a model; `auto` and None mean detect."""

    tool_calls: ToolCalls = "auto"
    images: bool | None = None
    pdf: bool | None = None
    window: int | None = None
    tool_grammar: ToolGrammar = "auto"

    def of(self, name: str) -> Fact | None:
        """Return the configured value of an ability."""
        match name:
            case "tools":
                return TOOL_CALLS[self.tool_calls]
            case "call_form":
                return None if self.tool_calls == "auto" else self.tool_calls
            case "tool_grammar":
                return False if self.tool_grammar == "off" else None
            case "images":
                return self.images
            case "pdf":
                return self.pdf
            case "window":
                return self.window
        return None


def overrides_of(spec: EndpointSpec) -> AbilityOverrides:
    """Return the abilities that an endpoint configures."""
    return AbilityOverrides(spec.tool_calls, spec.images, spec.pdf, spec.window, spec.tool_grammar)


class AbilityRecord(Struct):
    """The known abilities of one model of one server. `shown`: what answers have shown, with the time."""

    known: ProbeResult = field(default_factory=ProbeResult)
    probe_at: float = float("-inf")
    shown: dict[str, tuple[Ability, float]] = field(default_factory=dict)
    counts: bool = True
    sure: bool = False  # the last probe was complete
    failed: bool = False  # it failed, and is worth another as soon as the server answers
    retried: bool = False  # the server has answered since probes fail: some never get an answer to them
    probing: asyncio.Lock = field(default_factory=asyncio.Lock)
    grammar: TemplateGrammar | None = None  # derived from its template

    def update(self, known: ProbeResult) -> None:
        """Store a probe result. If it contradicts the last one, the model has changed: drop what answers have shown."""
        before, now = self.known.abilities, known.abilities
        if any(before[name].value != now[name].value for name in before.keys() & now.keys()):
            self.shown, self.counts = {}, True
        self.known = known if known.complete else ProbeResult({**before, **now})
        self.retried &= known.failed and not known.refused
        self.sure, self.failed = known.complete, known.failed and not self.retried


class AbilityCache:
    """Abilities per server and model. A server is probed once, and again after a while or a failure.

    Configuration comes first, then what an answer has shown, then the server's report, then the name hint. Concurrent
    callers share one probe. No method raises. Until `changes` grows, `find` returns the same, except for what an answer
    has shown, which expires.
    """

    def __init__(self, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._records: dict[tuple[str, str], AbilityRecord] = {}
        self.changes = 0

    def find(self, endpoint: ServedModel, name: str, overrides: AbilityOverrides = AbilityOverrides()) -> Ability:
        """Return an ability as known by now."""
        if (value := overrides.of(name)) is not None:
            return Ability(name, value, "setting")
        record = self._record(endpoint)
        shown, at = record.shown.get(name, (None, 0.0))
        if shown and self._clock() < at + SHOWN_S:
            return shown
        if name in record.known.abilities:
            return record.known.abilities[name]
        guess = hints_for(endpoint.model).get(name)
        return Ability(name, guess, "unknown" if guess is None else "name")

    def rows(self, endpoint: ServedModel, overrides: AbilityOverrides = AbilityOverrides()) -> list[Ability]:
        """Return the abilities to list."""
        return [self.find(endpoint, name, overrides) for name in SHOWN]

    def grammar(self, endpoint: ServedModel) -> TemplateGrammar | None:
        """Return the grammar that the model's template needs beside the table of dialects."""
        return self._record(endpoint).grammar

    def show(self, endpoint: ServedModel, name: str, value: Fact, detail: str) -> None:
        """Record an ability that an answer has shown."""
        self.changes += 1
        self._record(endpoint).shown[name] = Ability(name, value, "answer", detail), self._clock()

    def unshow(self, endpoint: ServedModel, name: str) -> None:
        """Drop a record of `show` that proved wrong."""
        self.changes += 1
        self._record(endpoint).shown.pop(name, None)

    def doubt(self, endpoint: ServedModel) -> None:
        """Probe again soon: the connection was lost, and the server may return with another model."""
        record = self._record(endpoint)
        if record.sure:
            record.probe_at = float("-inf")

    def answered(self) -> None:
        """Probe again soon what failed, once: the server answers now. All records are of one server."""
        for record in self._records.values():
            if record.failed:
                record.failed, record.retried, record.probe_at = False, True, float("-inf")

    async def window(self, endpoint: ServedModel) -> int | None:
        await self._refresh(endpoint)
        window = self.find(endpoint, "window").value
        return window if isinstance(window, int) else None

    async def count(self, endpoint: ServedModel, texts: Sequence[str]) -> list[int] | None:
        await self._refresh(endpoint)
        record = self._record(endpoint)
        form = FORMS.get(str(self.find(endpoint, "counting").value))
        if form is None or not record.counts:
            return None
        try:
            async with asyncio.timeout(self._limit_s):
                return await counted(endpoint, form, texts)
        except NoAnswer as refusal:
            record.counts = not refusal.lasting
        except (TimeoutError, httpx2.HTTPError):
            pass  # busy or down: later texts may be counted again
        return None

    def _record(self, endpoint: ServedModel) -> AbilityRecord:
        name = endpoint.base_url, endpoint.model
        record = self._records.get(name)
        if record is None:
            if len(self._records) >= MOST_MODELS:
                del self._records[next(iter(self._records))]
                self.changes += 1
            record = self._records[name] = AbilityRecord()
        return record

    async def _refresh(self, endpoint: ServedModel) -> None:
        """Probe the server if the last result is outdated."""
        record = self._record(endpoint)
        if self._clock() < record.probe_at:
            return
        async with record.probing:
            if self._clock() < record.probe_at:
                return
            record.update(known := await probe_model(endpoint, self._limit_s))
            record.grammar = await _grammar_for(record.known)
            self.changes += 1
            age = LOCAL_AGE_S if endpoint.local else HOSTED_AGE_S
            again_s = REFUSED_AGAIN_S if known.refused else AGAIN_S
            record.probe_at = self._clock() + (age if known.complete else again_s)


async def _grammar_for(known: ProbeResult) -> TemplateGrammar | None:
    """Return the grammar that the model's template needs beside the table; each template is read once."""
    template = known.abilities.get(TEMPLATE)
    if template is None:
        return None
    reading = await import_in_thread(READING)  # imported lazily: few servers show a template
    grammar: TemplateGrammar | None = (await asyncio.to_thread(reading.read_template, str(template.value))).grammar
    return grammar
