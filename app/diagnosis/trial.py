"""One request of a diagnosis and its answer, read twice from the same bytes: strictly, and as a run would read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from msgspec import Struct, field

from app.core.messages import AskedCall
from app.core.provider import CallForm, ProviderFailed
from app.diagnosis.probes import NATIVE, OFFERED, Probe, Values, filled
from app.diagnosis.wire import Wire, read_wire
from app.models.wire.openai.answer import ChatAnswer
from app.transcript.reply import Reply
from parsing import Call, parse
from tools.catalogue import TOOLS

SCHEMAS = {name: parameters for name, (_, parameters) in OFFERED.items()}
EVIDENCE = 160  # characters of it that are shown
TAUGHT = [tool for tool in TOOLS if tool.name in ("bash", "write_file")]
TAUGHT_SCHEMAS = {tool.name: tool.parameters for tool in TAUGHT}


class Trial(Struct, kw_only=True):
    """`dropped` are parameters that the server has refused; `calls` and `thought` are what a run would have read."""

    probe: Probe
    values: Values
    streamed: bool
    status: int = 0
    error: str = ""
    seconds: float = 0.0
    dropped: frozenset[str] = frozenset()
    wire: Wire = field(default_factory=Wire)
    calls: Sequence[AskedCall] = ()
    refused: Sequence[str] = ()
    thought: str = ""

    @property
    def is_answered(self) -> bool:
        return self.status == 200 and not self.wire.broken

    @property
    def is_native(self) -> bool:
        return self.probe.form is NATIVE and "tools" not in self.dropped

    @property
    def is_whole(self) -> bool:
        """True if nothing has cut the answer."""
        return self.is_answered and self.wire.finish != "length"

    @property
    def expected(self) -> list[tuple[str, Any]]:
        return [(ask.name, filled(dict(ask.arguments), self.values)) for ask in self.probe.asks]

    @property
    def is_right(self) -> bool:
        """True if a run would have got the calls that serve the prompt."""
        return sorted_calls((call.name, call.arguments) for call in self.calls) == sorted_calls(self.expected)

    @property
    def signature(self) -> object:
        """All that two answers to the same request have in common, however they were sent."""
        calls = [(call.name, comparable(call.raw)) for call in self.wire.calls]
        return self.status, self.wire.content.strip(), self.wire.reasoning.strip(), calls, self.wire.finish

    def read(self, url: str, data: bytes) -> None:
        """Read the answer in both ways."""
        self.wire = read_wire(data, streamed=self.streamed)
        numbers = count()
        reply = Reply(
            {**SCHEMAS, **TAUGHT_SCHEMAS},
            fences=lambda: self.probe.form is CallForm.FENCED,
            new_id=lambda: str(next(numbers)),
        )
        reader = ChatAnswer(url)
        try:
            for piece in [*reader.feed(data), *reader.close()]:
                for _ in reply.add(piece):
                    pass
            for _ in reply.end():
                pass
        except ProviderFailed as failure:
            self.wire.broken = self.wire.broken or failure.message
        self.refused = [*reply.refused.values()]
        self.calls = [call for call in reply.calls if call.id not in reply.refused]
        self.thought = reply.message().reasoning


def sorted_calls(calls: Any) -> list[str] | None:
    """Return calls in a form to compare; None, which equals no others, for arguments that are nested too deeply."""
    try:
        return sorted(json.dumps([name, trimmed(arguments)], sort_keys=True) for name, arguments in calls)
    except RecursionError:
        return None


def trimmed(value: Any) -> Any:
    """Return the value without blanks around its texts: small models add some."""
    match value:
        case str():
            return value.strip()
        case Mapping():
            return {name: trimmed(one) for name, one in value.items()}
        case list():
            return [trimmed(one) for one in value]
    return value


def comparable(raw: str) -> str:
    """Return arguments in one form: how a server spaces its JSON does not matter, and none are an empty object."""
    try:
        return json.dumps(json.loads(raw or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return raw


def whole_calls(text: str) -> list[Call]:
    """Return the calls of offered tools in a text that are written without a fault: their server should have seen them.

    A block of code is none: only a model that is taught so calls with one.
    """
    found = parse(text, SCHEMAS, fences=False)
    needed = {name: schema.get("required", ()) for name, schema in SCHEMAS.items()}
    if found.rejected:
        return []
    return [
        call
        for call in found.calls
        if not call.repairs and call.name in needed and all(name in call.arguments for name in needed[call.name])
    ]
