"""The fields of a request that make its server enforce the calls which the prompt teaches: ENGINES, a row each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from app.core.provider import CallForm
from app.models.http.prompt_too_long import is_too_long
from app.models.wire.grammars.gbnf import gbnf_of
from app.models.wire.grammars.structural_tags import older_tag, structural_tag
from app.models.wire.parameters import FORMAT, REFUSALS
from app.models.wire.tool_choice import NONE, tool_choice
from tools.tool import Tool, ToolList

NAME = "tool_grammar"
LLAMA_CPP, VLLM, SGLANG = "llama.cpp", "vLLM", "SGLang"
# A client that sends one of these has a grammar of its own.
CONSTRAINTS = frozenset(
    {FORMAT, "grammar", "json_schema", "structured_outputs", "regex", "ebnf"}
    | {f"guided_{kind}" for kind in ("json", "regex", "choice", "grammar")}  # older vLLM
)
UNCONSTRAINED = (None, {"type": "text"})
KEPT = 64  # grammars, the last used
OPENS_THOUGHT, CLOSES_THOUGHT = "<think>", "</think>"

Fields = Mapping[str, Any]


class GrammarRequest(Struct, frozen=True):
    """A reply that a grammar is for: it may call these tools in this form; `required`: it begins with a call."""

    form: CallForm
    tools: ToolList
    required: bool = False
    several: bool = True
    in_thought: bool = False

    def tag(self) -> Fields:
        return structural_tag(self.form, self.tools, required=self.required, several=self.several)


def gbnf(reply: GrammarRequest) -> Fields:
    closes = CLOSES_THOUGHT if reply.in_thought else ""
    text = gbnf_of(reply.form, reply.tools, required=reply.required, several=reply.several, closes_thought=closes)
    return {"grammar": text} if text else {}


def tag_as_format(reply: GrammarRequest) -> Fields:
    return {FORMAT: reply.tag()}


def tag_as_outputs(reply: GrammarRequest) -> Fields:
    return {"structured_outputs": {"structural_tag": json.dumps(reply.tag())}}


def earlier_tag(reply: GrammarRequest) -> Fields:
    return {FORMAT: older_tag(reply.tag(), reply.tools)}


# The ways of each kind of server, the best first. A format that a server does not know it refuses, whereas it ignores
# `structured_outputs` (older vLLM): so that comes second.
ENGINES: Mapping[str, tuple[Callable[[GrammarRequest], Fields], ...]] = {
    LLAMA_CPP: (gbnf,),
    VLLM: (tag_as_format, tag_as_outputs, earlier_tag),
    SGLANG: (tag_as_format, earlier_tag),
}

# With `strict`, these enforce native calls of their own accord, which llama.cpp does in any case.
STRICT = (VLLM, SGLANG)


def taught_calls(
    engine: object, form: CallForm, tools: Sequence[Tool], parameters: Mapping[str, Any], prompt_suffix: str
) -> Sequence[Fields]:
    """Return the fields to try for calls that the prompt teaches, one after the other.

    None if the server is of another kind, or if its client wants no calls, or has a grammar of its own.
    """
    choice = tool_choice(parameters)
    constrained = any(parameters[name] not in UNCONSTRAINED for name in CONSTRAINTS & parameters.keys())
    if engine not in ENGINES or choice.mode == NONE or constrained:
        return ()
    offered = choice.offered(tools)
    reply = GrammarRequest(
        form,
        offered if isinstance(offered, ToolList) else ToolList(offered),
        choice.requires_call(tools),
        parameters.get("parallel_tool_calls") is not False,
        prompt_suffix.rstrip().endswith(OPENS_THOUGHT),
    )
    return _fields(str(engine), reply)


@lru_cache(KEPT)
def _fields(engine: str, reply: GrammarRequest) -> Sequence[Fields]:
    return [fields for way in ENGINES[engine] if (fields := way(reply))]


def strict_tools(engine: object, wired: Sequence[Mapping[str, Any]]) -> Sequence[Fields]:
    """Return the fields to try for native calls."""
    if engine not in STRICT:
        return ()
    return ({"tools": [{**one, "function": {**one["function"], "strict": True}} for one in wired]},)


def is_about_grammar(text: str) -> bool:
    """Return whether an error of any kind names the grammar."""
    return "grammar" in text.lower()


class GrammarTrial:
    """The ways to send one grammar: where one is refused, the next, and at last none. A request without has no ways."""

    def __init__(self, ways: Sequence[Fields] = (), begin: int = 0) -> None:
        self.ways = ways
        self.at = begin if begin < len(ways) else 0

    @property
    def fields(self) -> Fields:
        return self.ways[self.at] if self.at < len(self.ways) else {}

    def refuse(self, status: int, text: str) -> bool:
        """Return whether to send the request again, because its grammar may be what was refused."""
        about = status in REFUSALS or is_about_grammar(text)
        if not self.fields or not about or is_too_long(text):
            return False
        self.at += 1
        return True


NO_GRAMMAR = GrammarTrial()
