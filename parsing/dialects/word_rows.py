"""Calls marked by a word at the beginning of a line, or by nothing but being the whole message."""

from __future__ import annotations

from parsing.dialects.row import Dialect
from parsing.grammar import ARG_LINES, FENCE_END, JSON, LOOSE_NAME, OBJECT, OFFERED, S
from parsing.readers import bodies as body

_NEXT_OBJECT = rf"{S}[;,]?{S}(?=\{{)"

LINES: tuple[Dialect, ...] = (
    Dialect(
        "functools", "json_sentinel", "FireFunction v2, Phi-4-mini, Phi-3.5",
        rf"functools{S}{JSON}", body.json_calls,
    ),
    Dialect(
        "gigachat3", "json_sentinel", "GigaChat 3",
        rf"function call<\|role_sep\|>{S}{JSON}", body.json_calls,
    ),
    Dialect(
        "hyperclova14b", "json_sentinel", "HyperCLOVA X SEED 14B Think",
        rf" ?-> tool/function_call{S}{JSON}", body.json_calls,
    ),
    Dialect(
        "functionary_v32", "header_json", "Functionary v3.2",
        rf">>>[ ]?{OFFERED}[ \t]{{0,5}}\r?\n{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "functionary_v32", "header_json", "Functionary v3.2",
        r">>>(?P<offered>python)[ \t]{0,5}\n(?=[^\s{])", body.text_until(r"(?=\n>>>)", whole_at_end=True),
    ),
    Dialect(
        "react", "adhoc_tag", "ReAct prompts",
        rf"Action:[ \t]{{0,20}}{OFFERED}[ \t]{{0,20}}(?:\r?\n){{1,2}}Action Input:{S}(?:```(?:json)?{S})?{OBJECT}",
        body.named_json, shuts=FENCE_END,
    ),
    Dialect(
        "react", "adhoc_tag", "ReAct prompts",
        rf"Action:[ \t]{{0,20}}{OFFERED}[ \t]{{0,20}}(?:\r?\n){{1,2}}Action Input:[ \t]{{0,20}}(?=[^\s{{`])",
        body.text_until(r"(?=\n\s{0,20}(?:Observation|Thought|Action|Final Answer):)", whole_at_end=True),
    ),
    Dialect(
        "rwkv_tool_call", "fenced", "RWKV-7 G1",
        rf"\*\*Tool Call:\*\*{S}```(?:json)?{S}{JSON}", body.json_calls, shuts=FENCE_END,
    ),
    Dialect(
        "cohere_r_action", "fenced", "Command R, R+",
        rf"Action:{S}```(?:json)?{S}{JSON}", body.json_calls, shuts=FENCE_END,
        pseudo=("directly_answer", "directly-answer"),
    ),
    Dialect(
        "fence_tool_call", "fenced", "CortexPrism, Gemma 3, LangChain",
        rf"(?:`{{3,20}}|~{{3,20}})(?:tool_calls?|tool-calls?|tool|function_call)[ \t]{{0,20}}\r?\n{S}{JSON}",
        body.json_calls, _NEXT_OBJECT, shuts=FENCE_END,
    ),
    Dialect(
        "gemini_tool_code", "pythonic", "Gemini text mode, Gemma 3",
        rf"(?=```tool_code{S}(?:print\s?\(|(?:default_api\.)?[^\W\d][\w.:-]{{0,127}}\())", body.python_calls,
    ),
    Dialect(
        "continue_codeblock", "fenced", "Continue.dev",
        rf"(?:(?:`{{3,20}}|~{{3,20}})tool[ \t]{{0,20}}\r?\n)TOOL_NAME:[ \t]{{0,20}}{LOOSE_NAME}[ \t]{{0,20}}\r?\n",
        body.tagged(ARG_LINES),
    ),
    Dialect(
        "continue_codeblock", "fenced", "Continue.dev",
        rf"TOOL_NAME:[ \t]{{0,20}}{OFFERED}[ \t]{{0,20}}\r?\n(?=BEGIN_ARG)", body.arg_lines(ARG_LINES),
    ),
    Dialect(
        "bracket_name", "adhoc_tag", "LM Studio, openclaw",
        rf"\[(?:tool:{S})?{OFFERED}\]{S}{OBJECT}", body.named_json, shuts=rf"{S}\[/[^\]\n]{{1,128}}\]",
    ),
    Dialect(
        "harmony", "channel", "gpt-oss without its special tokens",
        rf"(?:analysis|commentary|assistantcommentary) to=(?:functions\.)?{OFFERED}\s{{0,3}}"
        rf"(?:json|code)?\s{{0,3}}{OBJECT}",
        body.named_json,
    ),
    Dialect(
        "functionary_v2", "channel", "Functionary v1",
        rf"(?:assistant:\s?)?to=functions\.{OFFERED}:{S}{OBJECT}", body.named_json,
    ),
)  # fmt: skip

# Calls only if they are all that the message shows, name offered tools and are whole.
WHOLE: tuple[Dialect, ...] = (
    Dialect(
        "bare_json", "bare_json", "Llama 3, Hammer, xLAM, JSON mode",
        OBJECT, body.bare_json, rf"{S}[;,]?{S}(?=\{{)", ("openai_envelope",),
    ),
    Dialect(
        "bare_array", "bare_json", "xLAM, Hammer, Phi",
        rf"(?=\[{S}\{{)", body.bare_json,
    ),
    Dialect(
        "llama4_pythonic", "pythonic", "Llama 4, Llama 3.2 1B/3B, ToolACE",
        rf"(?=\[{S}(?P<offered>[^\W\d][\w.:-]{{0,127}}){S}\()", body.bare_python,
    ),
    Dialect(
        "granite_pythonic", "pythonic", "Granite 3.3/4 prompts, small models",
        rf"(?=(?P<offered>[^\W\d][\w.:-]{{0,127}}){S}\()", body.bare_python,
    ),
    Dialect(
        "nexusraven", "pythonic", "NexusRaven",
        rf"Call:{S}(?=(?P<offered>[^\W\d][\w.:-]{{0,127}}){S}\()", body.bare_python, shuts=r"\s{0,20}<bot_end>",
    ),
    Dialect(
        "gemma4", "object_literal", "Gemma 4 without its special tokens",
        rf"call:{S}{OFFERED}\s?(?P<bracket>\{{)", body.literal,
        rf"{S}[;,]?{S}call:{S}{OFFERED}\s?(?P<bracket>\{{)",
    ),
    Dialect(
        "glm4_name_json", "header_json", "GLM-4-9B, GLM-Z1, CodeGeeX4",
        rf"(?P<offered>[\w.:-]{{1,128}})[ \t]{{0,5}}\r?\n{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "fence_json", "fenced", "Qwen2.5-Coder, Hammer 2, xLAM",
        rf"```(?:json)?[ \t]{{0,20}}\r?\n{S}{JSON}", body.bare_json, shuts=FENCE_END,
    ),
)  # fmt: skip
