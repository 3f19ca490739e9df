"""The calls of a model, as its template writes them: known calls are rendered, and a grammar is derived from them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any

from msgspec import Struct

from app.models.templates.renderer import Renderer, TemplateProcess, TemplateRefused
from parsing.framing import PROMPT_ENDS
from parsing.templates.derive import TemplateGrammar, Underivable, derive, dialect_of
from parsing.templates.probes import HARD, PARALLEL, SINGLE, TOOLS, Calls, Probe
from parsing.templates.response_template import response_probe

_QUESTION = {"role": "user", "content": "zv question"}
_EDGE = "\u03a9"  # on both sides of an answer without calls
_SUFFIX = 200  # characters of the prompt's end that are kept
_TOOLS = [
    {"type": "function", "function": {"name": name, "description": "zv", "parameters": schema}}
    for name, schema in TOOLS.items()
]
_BOUNDARY = re.compile(r".*[>\]\n]", re.DOTALL)
Write = Callable[[Calls], Probe]


class TemplateReading(Struct, frozen=True):
    """A template, read. `known` is the dialect of the table that reads its calls, "" if none does.

    `grammar` is derived where none does, or where it was asked for; else `reason` says why there is none.
    """

    known: str = ""
    grammar: TemplateGrammar | None = None
    reason: str = ""
    prompt_suffix: str = ""


@lru_cache(maxsize=64)
def read_template(template: str, response_template: str = "", *, always: bool = False) -> TemplateReading:
    """Read a chat template, or a response template as JSON, which goes first. Never raises.

    `always`: derive a grammar although a dialect of the table reads the calls.
    """
    reasons = []
    suffix = known = ""
    try:
        with TemplateProcess(template) if template else nullcontext() as renderer:
            for write, suffix in writers(renderer, response_template):
                try:
                    probes = probes_of(write)
                    known = dialect_of([probe for probe in probes if probe.calls is not HARD])
                    grammar = None if known and not always else derive(probes)
                except Underivable as refusal:
                    reasons.append(str(refusal))
                    if known:
                        break
                else:
                    return TemplateReading(known, grammar, prompt_suffix=suffix)
    except TemplateRefused as refusal:
        reasons.append(f"the template {refusal}")
    return TemplateReading(known, reason=reasons[0] if reasons else "there is no template", prompt_suffix=suffix)


def probes_of(write: Write) -> list[Probe]:
    """One call, two where as many are written, and one with values that a wrong form would garble.

    Raises Underivable.
    """
    single = write(SINGLE)
    if SINGLE[0][0] not in single.text and not any(each in single.text for each in single.ids):
        raise Underivable("the template does not write the calls of a reply")
    return [single, *_more(write, PARALLEL), *_more(write, HARD)]


def _more(write: Write, calls: Calls) -> list[Probe]:
    """The text of further calls; none if the template refuses them, or leaves one of them out."""
    try:
        probe = write(calls)
    except Underivable:
        return []
    by_name = all(name in probe.text for name, _ in calls)
    return [probe] if by_name or (probe.ids and all(call_id in probe.text for call_id in probe.ids)) else []


def writers(renderer: Renderer | None, response_template: str) -> Iterator[tuple[Write, str]]:
    """The ways to write calls, and the end of the prompt. Raises TemplateRefused."""
    if response_template:
        yield partial(response_probe, json.loads(response_template)), ""
    if renderer is None:
        return
    prompt = renderer.render(messages=[_QUESTION], tools=_TOOLS, add_generation_prompt=True)
    answer = {"role": "assistant", "content": f"{_EDGE}zv answer{_EDGE}"}
    control = renderer.render(messages=[_QUESTION, answer], tools=_TOOLS, add_generation_prompt=False)
    suffix = prompt.rpartition(_QUESTION["content"])[2]
    for packed in (False, True):
        for id_of in (_plain_id, _named_id):
            yield partial(_rendered, renderer, (prompt, control), id_of, packed), suffix[-_SUFFIX:]


def _plain_id(name: str, at: int) -> str:
    return f"zvid{at:05}"  # some templates want nine letters and digits


def _named_id(name: str, at: int) -> str:
    return f"functions.{name}:{at}"  # others write the id in place of the name


def _rendered(
    renderer: Renderer, around: tuple[str, str], id_of: Callable[[str, int], str], packed: bool, calls: Calls
) -> Probe:
    """The text of these calls, as the model writes it. Raises Underivable."""
    ids = tuple(id_of(name, at) for at, (name, _) in enumerate(calls))
    called = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": _arguments(arguments, packed)}}
        for call_id, (name, arguments) in zip(ids, calls, strict=True)
    ]
    message = {"role": "assistant", "content": "", "tool_calls": called}
    try:
        whole = renderer.render(messages=[_QUESTION, message], tools=_TOOLS, add_generation_prompt=False)
    except TemplateRefused as refusal:
        raise Underivable(f"the template {refusal}") from refusal
    return Probe(calls, _reply_in(whole, *around), ids)


def _arguments(arguments: dict[str, Any], packed: bool) -> Any:
    return json.dumps(arguments, ensure_ascii=False) if packed else arguments


def _reply_in(whole: str, prompt: str, control: str) -> str:
    """Return the model's part of a conversation, by its prompt, and by the same one with an answer in its place."""
    if whole.startswith(prompt):
        text = whole[len(prompt) :]
    else:
        alike = next((at for at, (one, other) in enumerate(zip(whole, control, strict=False)) if one != other), 0)
        same = _BOUNDARY.match(whole, 0, alike)
        text = whole[same.end() if same else 0 :]
    begun = re.search(PROMPT_ENDS, prompt)
    end = control.rpartition(_EDGE)[2]
    text = text.removesuffix(end)
    return (begun.group() if begun else "") + (text.rstrip().removesuffix(end.strip()) if end.strip() else text)
