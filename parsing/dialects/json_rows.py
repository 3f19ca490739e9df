"""Calls written as JSON between marks, or after a header that names the tool."""

from __future__ import annotations

from parsing.dialects.row import Dialect
from parsing.framing import BAR
from parsing.grammar import BLANK, CALL, FENCE_END, JSON, LOOSE_NAME, NAME, OBJECT, STRAY, SUFFIX, S
from parsing.readers import bodies as body

_NEXT_OBJECT = rf"{S}[;,]?{S}(?=\{{)"
_TOOLS = rf"<{BAR}tool{BLANK}calls{BLANK}begin{BAR}>{S}|<{BAR}tool{BLANK}calls{BAR}>{S}"
_ITEM = rf"(?:(?P<wrap>{_TOOLS}){STRAY})?<{BAR}tool{BLANK}call{BLANK}begin{BAR}>{S}"
_TOOLS_END = rf"<{BAR}tool{BLANK}calls{BLANK}end{BAR}>"
_SEP = rf"{S}<{BAR}tool{BLANK}sep{BAR}>{S}"
_FENCE = r"```(?:json)?\s{0,20}"

MARKED: tuple[Dialect, ...] = (
    Dialect(
        "hermes", "json_sentinel", "Hermes, Qwen 2.5/3, QwQ, Granite 3.1-4.1, SmolLM3, EXAONE 4, Falcon-H1, ERNIE",
        rf"(?:(?P<wrap><tool_calls{SUFFIX}>){S}{STRAY})?<tool_call>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
        ("granite31",), wrapper=rf"</tool_calls{SUFFIX}>",
    ),
    Dialect(
        "longcat", "json_sentinel", "LongCat-Flash",
        rf"<longcat_tool_call>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "nemotron_toolcall", "json_sentinel", "Nemotron Nano v2, Llama-Nemotron",
        rf"<TOOLCALL>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "jamba_tool_calls", "json_sentinel", "Jamba, Apriel, Hunyuan A13B, MiniMax-M1",
        rf"<tool_calls>{S}{JSON}", body.json_calls, _NEXT_OBJECT, ("minimax_m1",),
    ),
    Dialect(
        "granite3", "json_sentinel", "Granite 3.0, Phi-4-mini",
        rf"<\|tool_call\|>{S}{JSON}", body.json_calls, _NEXT_OBJECT, ("phi4mini",),
    ),
    Dialect(
        "function_call_tag", "json_sentinel", "Qwen2.5-Coder, Granite-20B-FC, Telechat, dots",
        rf"<(?:function_calls?|function-calls?|tool-calls?|dots_function_call)>{S}{JSON}|<functions?>{S}{CALL}",
        body.json_calls, _NEXT_OBJECT, ("granite20b_fc",),
    ),
    Dialect(
        "internlm2", "json_sentinel", "InternLM 2-3, Intern-S1",
        rf"<\|action_start\|>{S}<\|plugin\|>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "apertus", "json_sentinel", "Apertus",
        rf"<\|tools_prefix\|>{S}{JSON}", body.single_key_calls, _NEXT_OBJECT,
        pseudo=("display_answers",),
    ),
    Dialect(
        "cohere_action", "json_sentinel", "Command R7B, Command A, North",
        rf"<\|START_ACTION\|>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "mistral_array", "json_sentinel", "Mistral v3-v7",
        rf"\[TOOL_CALLS\]{S}{JSON}", body.json_calls,
    ),
    Dialect(
        "llama_python_tag", "json_sentinel", "Llama 3.1-3.3, Watt-Tool",
        rf"<\|python_tag\|>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "pangu_unused", "json_sentinel", "openPangu",
        rf"\[unused11\]{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "lfm2_json", "json_sentinel", "LFM2, openPangu-V2",
        rf"<\|tool_call_start\|>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "gigachat3", "json_sentinel", "GigaChat 3",
        rf"<\|message_sep\|>{S}function call<\|role_sep\|>{S}{JSON}", body.json_calls,
    ),
    Dialect(
        "gigachat31", "json_sentinel", "GigaChat 3.1",
        rf"<\|function_call\|>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "qwen25coder_tools", "json_sentinel", "Qwen2.5-Coder",
        rf"<tools>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "lmstudio_request", "json_sentinel", "LM Studio's prompt",
        rf"\[TOOL_REQUEST\]{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "glaive", "json_sentinel", "Glaive tunes",
        rf"<functioncall>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "k2_horizon_json", "json_sentinel", "K2-Horizon",
        rf"(?:<ifm\|tool_calls>{S})?<ifm\|tool_call>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "tool_use_json", "json_sentinel", "Claude-style prompts",
        rf"<tool_(?:use|call)>{S}<(?:tool_)?name>{S}{LOOSE_NAME}{S}</(?:tool_)?name>{S}<(?:arguments|parameters|args|input)>{S}"
        rf"(?=\{{|</)",
        body.named_json,
    ),
    Dialect(
        "tool_use_json", "json_sentinel", "Cline forks",
        rf"<tool_use>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "deepseek_v3", "header_json", "DeepSeek V3, R1",
        rf"{_ITEM}(?:function)?{_SEP}{LOOSE_NAME}{S}(?:{_FENCE})?{OBJECT}", body.named_json, shuts=FENCE_END,
        wrapper=_TOOLS_END,
    ),
    Dialect(
        "deepseek_v31", "header_json", "DeepSeek V3.1, Cogito v2",
        rf"{_ITEM}{LOOSE_NAME}{_SEP}(?:{_FENCE})?{OBJECT}", body.named_json, shuts=FENCE_END,
        wrapper=_TOOLS_END,
    ),
    Dialect(
        "kimi_k2", "header_json", "Kimi K2, K2 Thinking, K2.5",
        rf"(?:(?P<wrap><\|tool_calls?_section_begin\|>){S}{STRAY})?<\|tool_call_begin\|>{S}(?P<name>[^\s<>|]{{1,200}}){S}"
        rf"<\|tool_call_argument_begin\|>{S}(?=\{{|<\|tool_call_end)",
        body.kimi_json, wrapper=r"<\|tool_calls?_section_end\|>",
    ),
    Dialect(
        "mistral_args", "header_json", "Ministral 3, Magistral 1.2, Devstral 2, Mistral Small 3.x",
        rf"\[TOOL_CALLS\]{S}{NAME}{S}(?:\[CALL_ID\]{S}[\w-]{{1,80}}{S})?(?:\[ARGS\]{S})?{OBJECT}",
        body.named_json, members=("mistral_v11", "mistral_callid"),
    ),
    Dialect(
        "solar_open", "header_json", "Solar Open 100B",
        rf"<\|tool_call:begin\|>[\w-]{{0,80}}<\|tool_call:name\|>{S}{LOOSE_NAME}{S}<\|tool_call:args\|>{S}"
        rf"{OBJECT}",
        body.named_json,
    ),
    Dialect(
        "plamo3", "header_json", "PLaMo 3",
        rf"(?:<\|plamo:begin_tool_requests:plamo\|>{S})?<\|plamo:begin_tool_request:plamo\|>{S}"
        rf"<\|plamo:begin_tool_name:plamo\|>{S}{LOOSE_NAME}{S}<\|plamo:end_tool_name:plamo\|>{S}"
        rf"<\|plamo:begin_tool_arguments:plamo\|>{S}(?:<\|plamo:constrain\|>json{S})?(?:<\|plamo:msg\|>{S})?"
        rf"{OBJECT}",
        body.named_json,
    ),
    Dialect(
        "step_audio2", "header_json", "Step-Audio 2",
        rf"<tool_call>{S}function[ \t]{{0,20}}\r?\n{S}{LOOSE_NAME}[ \t]{{0,20}}\r?\n{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "llama31_function", "header_json", "Llama 3.1 custom format, Functionary v3.1, Groq",
        rf"(?:(?P<wrap><tool_call>){S})?<function={LOOSE_NAME}\s?(?:>|=>?|\[\]>?)?{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "hyperclova14b", "json_sentinel", "HyperCLOVA X SEED 14B Think",
        rf"(?:<\|im_end\|>{S})?<\|im_start\|>assistant\s?-> tool/function_call{S}{JSON}", body.json_calls,
    ),
)  # fmt: skip

# The same, where no other marked row can match.
REST: tuple[Dialect, ...] = (
    Dialect(
        "llama_python_tag", "json_sentinel", "Llama 3.1 code interpreter",
        r"<\|python_tag\|>(?=(?:[ \t]{0,20}\r?\n\s{0,80})?[^\s\[{.,;:!?)])", body.code_to_end,
    ),
    Dialect(
        "internlm2", "json_sentinel", "InternLM 2-3",
        rf"<\|action_start\|>{S}<\|interpreter\|>", body.interpreter,
    ),
)  # fmt: skip
