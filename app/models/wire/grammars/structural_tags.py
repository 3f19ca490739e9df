"""Structural tags of XGrammar for calls in the form that the prompt teaches, as vLLM and SGLang take them.

Text is free until a trigger; a tag that begins so is then enforced up to its end.
https://github.com/mlc-ai/xgrammar/blob/main/docs/tutorials/structural_tag.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.core.provider import CallForm
from app.models.wire.grammars.gbnf import CALL_END, FENCE, FENCE_END, OPENER, call_begin
from parsing.fences import text_parameters
from tools.tool import Tool

KIND = "structural_tag"


def structural_tag(form: CallForm, tools: Sequence[Tool], *, required: bool, several: bool) -> Mapping[str, Any]:
    """Return the tag in its present form. `required`: the reply begins with a call. `several`: more may follow."""
    tags = [_tag(form, tool) for tool in tools]
    triggers = [tag["begin"] for tag in tags] if form is CallForm.FENCED else [f"{OPENER}\n"]
    way = {"triggers": triggers, "tags": tags, "at_least_one": required, "stop_after_first": not several}
    return {"type": KIND, "format": {"type": "triggered_tags", **way}}


def older_tag(present: Mapping[str, Any], tools: Sequence[Tool]) -> Mapping[str, Any]:
    """Return the form of earlier versions, which knows JSON only, and can require no call."""
    form = present["format"]
    structures = [
        {"begin": tag["begin"], "schema": tool.parameters, "end": tag["end"]}
        for tag, tool in zip(form["tags"], tools, strict=True)
    ]
    return {"type": KIND, "structures": structures, "triggers": form["triggers"]}


def _tag(form: CallForm, tool: Tool) -> Mapping[str, Any]:
    content = {"type": "json_schema", "json_schema": tool.parameters}
    if form is not CallForm.FENCED:
        return {"type": "tag", "begin": f"{OPENER}{call_begin(tool)}", "content": content, "end": CALL_END}
    plain = bool(text_parameters(tool.parameters))
    content = {"type": "any_text"} if plain else content
    return {"type": "tag", "begin": f"{FENCE}{tool.name}\n", "content": content, "end": FENCE_END}
