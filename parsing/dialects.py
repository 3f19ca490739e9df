# ruff: noqa: E501
"""The dialects: a row each. To add one, add a row next to its relatives and a fixture.

A row's `opens` is a pattern that ends where the call's body begins; look-aheads let the body decide between rows that
share an opener. A group `name` is the tool; a group `offered` too, but it must be the name of an offered tool, for
forms that have no marker of their own. `more` begins a further call of the same block. Where a row may open depends on
the table it stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parsing.grammar import (
    ARG_LINES,
    BAR,
    BAR_WRAP,
    BEAM_TAGS,
    BLANK,
    CALL,
    CALL_TAG,
    CORTEX_TAGS,
    FENCE_END,
    FUNCTION_TAGS,
    INVOKE,
    INVOKE_OFFERED,
    INVOKE_TAGS,
    JSON,
    K3_TAGS,
    LOOSE_NAME,
    MARKED_INVOKE,
    NAME,
    OBJECT,
    OFFERED,
    PAIR_TAGS,
    SOLAR_TAGS,
    SPACE,
    SUFFIX,
    TAG,
    WRAP,
    S,
    quoted,
)
from parsing.readers import bodies as body
from parsing.sink import Reader, Sink

Groups = dict[str, str | None]
Body = Callable[[Sink, Groups], Reader]


@dataclass(frozen=True)
class Dialect:
    """One way to write a call. `members` are further names for the same grammar, with the same opener."""

    name: str
    family: str
    models: str
    opens: str
    body: Body
    more: str = ""
    members: tuple[str, ...] = ()
    shuts: str = ""  # what ends this row's call besides the closers that all rows share


_NEXT_OBJECT = rf"{S}[;,]?{S}(?=\{{)"
_KEY_TAG = rf"<{TAG}arg_key{SUFFIX}>"
_PAIRED = rf"{SPACE}(?:<tool_sep{SUFFIX}>{SPACE})?"
_TOOLS = rf"<{BAR}tool{BLANK}calls{BLANK}begin{BAR}>{S}|<{BAR}tool{BLANK}calls{BAR}>{S}"
_ITEM = rf"(?:{_TOOLS})?<{BAR}tool{BLANK}call{BLANK}begin{BAR}>{S}"
_SEP = rf"{S}<{BAR}tool{BLANK}sep{BAR}>{S}"
_START = r"(?:<\|start\|>(?:assistant)?)?"
_TYPE = r"(?:\s{0,3}(?:<\|constrain\|>)?\s{0,3}\w{1,20})?"
_FENCE = r"```(?:json)?\s{0,20}"

# Marked by a sentinel: calls wherever they stand, whatever they name.
MARKED: tuple[Dialect, ...] = (
    Dialect(
        "hermes", "json_sentinel", "Hermes, Qwen 2.5/3, QwQ, Granite 3.1-4.1, SmolLM3, EXAONE 4, Falcon-H1, ERNIE",
        rf"(?:<tool_calls{SUFFIX}>{S})?<tool_call>{S}{JSON}", body.json_calls, _NEXT_OBJECT, ("granite31",),
    ),
    Dialect("longcat", "json_sentinel", "LongCat-Flash", rf"<longcat_tool_call>{S}{JSON}", body.json_calls, _NEXT_OBJECT),
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
        rf"<\|action_start\|>{S}<\|plugin\|>{S}{JSON}", body.json_calls,
    ),
    Dialect("apertus", "json_sentinel", "Apertus", rf"<\|tools_prefix\|>{S}{JSON}", body.single_key_calls),
    Dialect(
        "cohere_action", "json_sentinel", "Command R7B, Command A, North",
        rf"<\|START_ACTION\|>{S}{JSON}", body.json_calls,
    ),
    Dialect("mistral_array", "json_sentinel", "Mistral v3-v7", rf"\[TOOL_CALLS\]{S}{JSON}", body.json_calls),
    Dialect(
        "llama_python_tag", "json_sentinel", "Llama 3.1-3.3, Watt-Tool",
        rf"<\|python_tag\|>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect("pangu_unused", "json_sentinel", "openPangu", rf"\[unused11\]{S}{JSON}", body.json_calls),
    Dialect("lfm2_json", "json_sentinel", "LFM2, openPangu-V2", rf"<\|tool_call_start\|>{S}{JSON}", body.json_calls),
    Dialect(
        "gigachat3", "json_sentinel", "GigaChat 3",
        rf"<\|message_sep\|>{S}function call<\|role_sep\|>{S}{JSON}", body.json_calls,
    ),
    Dialect("gigachat31", "json_sentinel", "GigaChat 3.1", rf"<\|function_call\|>{S}{JSON}", body.json_calls),
    Dialect("qwen25coder_tools", "json_sentinel", "Qwen2.5-Coder", rf"<tools>{S}{JSON}", body.json_calls, _NEXT_OBJECT),
    Dialect(
        "lmstudio_request", "json_sentinel", "LM Studio's prompt",
        rf"\[TOOL_REQUEST\]{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect("glaive", "json_sentinel", "Glaive tunes", rf"<functioncall>{S}{JSON}", body.json_calls, _NEXT_OBJECT),
    Dialect(
        "k2_horizon_json", "json_sentinel", "K2-Horizon",
        rf"(?:<ifm\|tool_calls>{S})?<ifm\|tool_call>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "tool_use_json", "json_sentinel", "Claude-style prompts",
        rf"<tool_use>{S}<(?:tool_)?name>{S}{LOOSE_NAME}{S}</(?:tool_)?name>{S}<(?:arguments|parameters|input)>{S}"
        rf"(?=\{{|</)", body.named_json,
    ),
    Dialect(
        "tool_use_calls", "json_sentinel", "Cline forks", rf"<tool_use>{S}{JSON}", body.json_calls, _NEXT_OBJECT,
    ),
    Dialect(
        "deepseek_v3", "header_json", "DeepSeek V3, R1",
        rf"{_ITEM}function{_SEP}{LOOSE_NAME}{S}{_FENCE}{OBJECT}", body.named_json, shuts=FENCE_END,
    ),
    Dialect(
        "deepseek_v31", "header_json", "DeepSeek V3.1, Cogito v2",
        rf"{_ITEM}{LOOSE_NAME}{_SEP}(?:{_FENCE})?{OBJECT}", body.named_json, shuts=FENCE_END,
    ),
    Dialect(
        "kimi_k2", "header_json", "Kimi K2, K2 Thinking, K2.5",
        rf"(?:<\|tool_calls?_section_begin\|>{S})?<\|tool_call_begin\|>{S}(?P<name>[^\s<>|]{{1,200}}){S}"
        rf"<\|tool_call_argument_begin\|>{S}(?=\{{|<\|tool_call_end)", body.kimi_json,
    ),
    Dialect(
        "mistral_args", "header_json", "Ministral 3, Magistral 1.2, Devstral 2, Mistral Small 3.x",
        rf"\[TOOL_CALLS\]{S}{NAME}{S}(?:\[CALL_ID\]{S}[\w-]{{1,80}}{S})?(?:\[ARGS\]{S})?{OBJECT}", body.named_json,
        members=("mistral_v11", "mistral_callid"),
    ),
    Dialect(
        "solar_open", "header_json", "Solar Open 100B",
        rf"<\|tool_call:begin\|>[\w-]{{0,80}}<\|tool_call:name\|>{S}{LOOSE_NAME}{S}<\|tool_call:args\|>{S}{OBJECT}",
        body.named_json,
    ),
    Dialect(
        "plamo3", "header_json", "PLaMo 3",
        rf"(?:<\|plamo:begin_tool_requests:plamo\|>{S})?<\|plamo:begin_tool_request:plamo\|>{S}"
        rf"<\|plamo:begin_tool_name:plamo\|>{S}{LOOSE_NAME}{S}<\|plamo:end_tool_name:plamo\|>{S}"
        rf"<\|plamo:begin_tool_arguments:plamo\|>{S}(?:<\|plamo:constrain\|>json{S})?(?:<\|plamo:msg\|>{S})?{OBJECT}",
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
        "qwen3_coder", "func_param", "Qwen3-Coder, Qwen3.5-3.8, MiMo-V2, Seed-OSS, Step-3.5, Nemotron 3, Granite 4.2",
        rf"<(?:seed:)?tool_call>{S}<function\s?=\s?{LOOSE_NAME}\s?>(?={S}(?:<param|</function))"
        rf"|<function\s?=\s?[\"']?{OFFERED}[\"']?\s?>(?={S}(?:<param|</function))",
        body.tagged(FUNCTION_TAGS), rf"{S}<function\s?=\s?{LOOSE_NAME}\s?>(?={S}(?:<param|</function))",
        ("mimo", "seed_oss"),
    ),
    Dialect(
        "dsml", "invoke_param", "DeepSeek V3.2, V4, V4.1, GigaChat 3.5",
        rf"(?:{BAR_WRAP}){{0,2}}{MARKED_INVOKE}", body.tagged(INVOKE_TAGS), rf"{S}{MARKED_INVOKE}",
        ("dsml_v32", "dsml_v4", "dsml_v41", "dsml_doubled", "gcml"),
    ),
    Dialect(
        "step3", "invoke_param", "Step3",
        rf"{_ITEM}(?:function)?{_SEP}{INVOKE}", body.tagged(INVOKE_TAGS),
    ),
    Dialect(
        "anthropic_xml", "invoke_param", "Claude text prompts, MiniMax M2, dots, MiMo; many agents",
        rf"(?:{WRAP}){{1,2}}{INVOKE}|{INVOKE_OFFERED}",
        body.tagged(INVOKE_TAGS), rf"{S}{INVOKE}", ("anthropic_ns", "minimax_m2", "toolcall_invoke", "dots"),
    ),
    Dialect(
        "claude2", "invoke_param", "Claude 2.1 prompts",
        rf"(?:{WRAP})?<invoke>{S}<tool_name>{S}{LOOSE_NAME}{S}</tool_name>{S}<parameters>", body.named_children,
    ),
    Dialect(
        "minicpm5", "invoke_param", "MiniCPM5",
        rf"<function{S}name\s?=\s?{quoted('offered')}\s?(?P<void>/)?>(?={S}(?:<param|</function|\{{))",
        body.tagged(INVOKE_TAGS),
    ),
    Dialect(
        "kimi_k3", "invoke_param", "Kimi K3",
        rf"(?:<\|open\|>tools<\|sep\|>{S})?<\|open\|>call(?:\s+index=\"?\d{{1,9}}\"?)?\s+tool={quoted('name')}"
        rf"(?:\s+index=\"?\d{{1,9}}\"?)?\s?<\|sep\|>", body.tagged(K3_TAGS),
    ),
    Dialect(
        "minimax_m3", "invoke_param", "MiniMax M3",
        rf"(?:\]<\]minimax\[>\[{S}<tool_call>{S})?\]<\]minimax\[>\[{S}<invoke{S}name={quoted('name')}\s?>",
        body.nested_tags,
    ),
    Dialect(
        "glm45", "arg_pairs", "GLM-4.5 to 5.3, Ling 3, Spark 2.5, Laguna, Hunyuan 3/4, iQuest, LongCat-2, HyperCLOVA X",
        rf"(?:<(?:ifm\|)?tool_calls{SUFFIX}>{S})?<{CALL_TAG}{SUFFIX}>{SPACE}"
        rf"(?:(?P<name>[^\s<>{{}}\[\]\\]{{1,128}}){_PAIRED}(?=<{TAG}arg_key)|(?P<name>[^\s<>{{}}\[\]\\]{{1,128}})"
        rf"{SPACE}<tool_sep{SUFFIX}>{SPACE}(?=</)|(?P<offered>[^\s<>{{}}\[\]\\]{{1,128}}){SPACE}(?=</{CALL_TAG}))",
        body.tagged(PAIR_TAGS),
        members=(
            "glm47", "ling3", "spark25", "poolside", "hy_v3", "hy_v3_suffixed", "hy_v4", "iquest_q1", "iquestcoder",
            "longcat2", "k2_horizon_xml", "k2_horizon_typed", "hyperclovax_think",
        ),
    ),
    Dialect(
        "solar_open2", "arg_pairs", "Solar Open 2",
        rf"<\|tool_call:start\|>{S}{LOOSE_NAME}{S}(?=<\|tool_(?:arg:start|call:end)\|>)", body.tagged(SOLAR_TAGS),
    ),
    Dialect(
        "gemma4", "object_literal", "Gemma 4, FunctionGemma",
        rf"<(?:\|tool_call\|?|start_function_call)>{S}(?:call)?:{S}(?P<name>[^\s<>{{}}()]{{1,128}}?)\s?(?P<bracket>[\{{(])",
        body.literal, members=("functiongemma",),
    ),
    Dialect(
        "lfm2", "pythonic", "LFM2, LFM2.5, MiniCPM 3-4.1",
        rf"<\|tool_call_start\|>(?={S}(?:```|\[?{S}[^\W\d][\w.:-]{{0,127}}{S}\())", body.python_calls,
        members=("minicpm4",),
    ),
    Dialect(
        "llama4_python_start", "pythonic", "Llama 4",
        rf"<\|python_start\|>(?={S}\[?{S}[^\W\d][\w.:-]{{0,127}}{S}\()", body.python_calls,
    ),
    Dialect(
        "olmo3", "pythonic", "OLMo 3",
        rf"<function_calls>(?={S}\[?{S}[^\W\d][\w.:-]{{0,127}}{S}\()", body.python_calls,
    ),
    Dialect(
        "llama31_builtin", "pythonic", "Llama 3.1 builtin tools",
        rf"<\|python_tag\|>(?={S}[^\W\d][\w.:-]{{0,127}}\.call{S}\()", body.python_calls,
    ),
    Dialect("gorilla", "pythonic", "Gorilla OpenFunctions", rf"<<function>>(?={S}[^\W\d][\w.:-]{{0,127}}{S}\()", body.python_calls),
    Dialect(
        "cortex_name_args", "adhoc_tag", "DeepSeek V4 Flash through CortexPrism",
        rf"<tool_call_name(?:\s?=\s?{quoted('name')}\s?>|>{S}{LOOSE_NAME}{S}</tool_call_name>){S}<tool_call_args>{S}{OBJECT}",
        body.named_json,
    ),
    Dialect(
        "tool_attr_json", "adhoc_tag", "CortexPrism, small models",
        rf"<tool{S}name\s?=\s?{quoted('name')}\s?>{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "function_model", "adhoc_tag", "some Granite and Qwen distils",
        rf"<function_model>{S}<function_call>{S}{LOOSE_NAME}{S}</function_call>{S}<parameters>{S}(?=\{{|</)", body.named_json,
    ),
    Dialect("calling_tool", "adhoc_tag", "omlx, Rapid-MLX prompts", rf"\[Calling tool:{S}{NAME}\({S}{OBJECT}",
        body.named_json, shuts=rf"{S}\){S}\]"),
    Dialect("qwen_fn", "adhoc_tag", "Qwen-Agent", rf"✿FUNCTION✿:{S}{NAME}{S}✿ARGS✿:{S}{OBJECT}", body.named_json),
    Dialect("tool_arrow", "adhoc_tag", "Odysseus models, Manus clones", rf"\[TOOL_CALL\]{S}{OBJECT}", body.bracket_arrow),
    Dialect("tool_code_arrow", "adhoc_tag", "MiniMax clones", rf"<tool_code>{S}{OBJECT}", body.tag_arrow),
    Dialect("tool_code_python", "adhoc_tag", "Gemini distils",
        rf"<tool_code>(?={S}[^\W\d][\w.:-]{{0,127}}{S}\()", body.python_calls),
    Dialect("cwm_tool", "adhoc_tag", "Meta CWM", rf"<tool: [\w-]{{1,40}}>{S}{NAME}{S}{OBJECT}", body.named_json),
    Dialect("langchain_xml", "adhoc_tag", "LangChain XML agent",
        rf"<tool>{S}{LOOSE_NAME}{S}</tool>{S}<tool_input>{S}{OBJECT}", body.named_json),
    Dialect("hyperclova14b", "json_sentinel", "HyperCLOVA X SEED 14B Think",
        rf"(?:<\|im_end\|>{S})?<\|im_start\|>assistant\s?-> tool/function_call{S}{JSON}", body.json_calls),
    Dialect("harmony", "channel", "gpt-oss, GPT-5",
        rf"{_START}(?: to=(?P<name>[\w.:-]{{1,128}}))?<\|channel\|>\w{{1,20}}(?: to=(?P<name>[\w.:-]{{1,128}}))?"
        rf"{_TYPE}<\|message\|>{S}{OBJECT}", body.recipient_json),
    Dialect("beam", "channel", "Beam",
        rf"{_START} ?to=(?P<name>[\w.:-]{{1,128}})<\|channel\|>\w{{1,20}}\s{{0,3}}<\|constrain\|>xml<\|message\|>",
        body.tagged(BEAM_TAGS)),
    Dialect("muse_glimmer", "channel", "Muse Spark, Muse Glimmer",
        rf"{_START} ?to=[\w.:-]{{1,128}}<\|message\|>{S}(?:{WRAP}){INVOKE}", body.tagged(INVOKE_TAGS), rf"{S}{INVOKE}"),
    Dialect("inkling", "channel", "Inkling",
        rf"(?:<\|message_model\|>[^<]{{0,128}})?<\|content_invoke_tool_json\|>{S}{JSON}", body.json_calls),
    Dialect("functionary_v2", "channel", "Functionary v2.2-v2.5",
        rf"(?:<\|from\|>assistant\s{{0,3}})?<\|recipient\|>{S}{NAME}{S}<\|content\|>{S}{OBJECT}", body.named_json),
)  # fmt: skip

# The same, where no row above can match.
REST: tuple[Dialect, ...] = (
    Dialect("llama_code", "json_sentinel", "Llama 3.1 code interpreter", rf"<\|python_tag\|>(?={S}[^\s\[{{])", body.interpreter),
    Dialect("cwm_raw", "adhoc_tag", "Meta CWM", rf"<tool: [\w-]{{1,40}}>{S}{NAME}[ \t]{{0,20}}\n?(?=[^\s{{])",
        body.text_until(r"</tool>", "<")),
    Dialect("langchain_text", "adhoc_tag", "LangChain XML agent",
        rf"<tool>{S}{LOOSE_NAME}{S}</tool>{S}<tool_input>(?={S}[^\s{{])", body.text_until(r"</tool_input>", "<")),
    Dialect("harmony_code", "channel", "gpt-oss",
        rf"{_START}(?: to=(?P<name>[\w.:-]{{1,128}})<\|channel\|>\w{{1,20}}|<\|channel\|>\w{{1,20}} to=(?P<name>[\w.:-]{{1,128}}))"
        rf"{_TYPE}<\|message\|>(?={S}[^\s{{<])", body.text_until(r"<\|(?:call|end|start|return)\|>", "<", whole_at_end=True)),
    Dialect(
        "internlm2_interpreter", "json_sentinel", "InternLM 2-3",
        rf"<\|action_start\|>{S}<\|interpreter\|>{S}", body.interpreter,
    ),
    Dialect(
        "cortex_pairs", "adhoc_tag", "DeepSeek V4 Flash through CortexPrism",
        rf"<tool_call_name(?:\s?=\s?{quoted('name')}\s?>|>{S}{LOOSE_NAME}{S}</tool_call_name>){S}<tool_call_args>"
        rf"(?={SPACE}(?:<arg_key|<param|</))", body.tagged(CORTEX_TAGS),
    ),
)  # fmt: skip

# Marked by a word, so only at the beginning of a line.
LINES: tuple[Dialect, ...] = (
    Dialect("functools", "json_sentinel", "FireFunction v2, Phi-4-mini, Phi-3.5", rf"functools{S}{JSON}", body.json_calls),
    Dialect("gigachat3_bare", "json_sentinel", "GigaChat 3", rf"function call<\|role_sep\|>{S}{JSON}", body.json_calls),
    Dialect("hyperclova14b_direct", "json_sentinel", "HyperCLOVA X SEED 14B Think", rf" ?-> tool/function_call{S}{JSON}", body.json_calls),
    Dialect("functionary_v32", "header_json", "Functionary v3.2", rf">>>[ ]?{OFFERED}[ \t]{{0,5}}\r?\n{S}{OBJECT}", body.named_json),
    Dialect("functionary_code", "header_json", "Functionary v3.2", r">>>(?P<offered>python)[ \t]{0,5}\n(?=[^\s{])",
        body.text_until(r"(?=\n>>>)", "\n", whole_at_end=True)),
    Dialect("react", "adhoc_tag", "ReAct prompts", rf"Action:[ \t]{{0,20}}{OFFERED}[ \t]{{0,20}}(?:\r?\n){{1,2}}Action Input:{S}(?:```(?:json)?{S})?{OBJECT}",
        body.named_json, shuts=FENCE_END),
    Dialect("react_text", "adhoc_tag", "ReAct prompts", rf"Action:[ \t]{{0,20}}{OFFERED}[ \t]{{0,20}}(?:\r?\n){{1,2}}Action Input:[ \t]{{0,20}}(?=[^\s{{`])",
        body.text_until(r"(?=\n\s{0,20}(?:Observation|Thought|Action|Final Answer):)", "\n", whole_at_end=True)),
    Dialect("rwkv_tool_call", "fenced", "RWKV-7 G1", rf"\*\*Tool Call:\*\*{S}```(?:json)?{S}{JSON}", body.json_calls, shuts=FENCE_END),
    Dialect("cohere_r_action", "fenced", "Command R, R+", rf"Action:{S}```(?:json)?{S}{JSON}", body.json_calls, shuts=FENCE_END),
    Dialect("fence_tool_call", "fenced", "CortexPrism, Gemma 3, LangChain",
        rf"(?:`{{3,20}}|~{{3,20}})(?:tool_calls?|tool-calls?|tool|function_call)[ \t]{{0,20}}\r?\n{S}{JSON}", body.json_calls, _NEXT_OBJECT, shuts=FENCE_END),
    Dialect("gemini_tool_code", "pythonic", "Gemini text mode, Gemma 3", rf"(?=```tool_code{S}(?:print\s?\(|(?:default_api\.)?[^\W\d][\w.:-]{{0,127}}\())", body.python_calls),
    Dialect("continue_codeblock", "fenced", "Continue.dev",
        rf"(?:(?:`{{3,20}}|~{{3,20}})tool[ \t]{{0,20}}\n)TOOL_NAME:[ \t]{{0,20}}{LOOSE_NAME}[ \t]{{0,20}}\r?\n", body.tagged(ARG_LINES)),
    Dialect("continue_bare", "fenced", "Continue.dev", rf"TOOL_NAME:[ \t]{{0,20}}{OFFERED}[ \t]{{0,20}}\n(?=BEGIN_ARG)", body.arg_lines(ARG_LINES)),
    Dialect("bracket_name", "adhoc_tag", "LM Studio, openclaw",
        rf"\[(?:tool:{S})?{OFFERED}\]{S}{OBJECT}", body.named_json, shuts=rf"{S}\[/[^\]\n]{{1,128}}\]"),
    Dialect("harmony_text", "channel", "gpt-oss without its special tokens",
        rf"(?:analysis|commentary|assistantcommentary) to=(?:functions\.)?{OFFERED}\s{{0,3}}(?:json|code)?\s{{0,3}}{OBJECT}", body.named_json),
    Dialect("functionary_v1", "channel", "Functionary v1", rf"(?:assistant:\s?)?to=functions\.{OFFERED}:{S}{OBJECT}", body.named_json),
)  # fmt: skip

# Marked by nothing: calls only if they are all that the message shows, name offered tools and are whole.
WHOLE: tuple[Dialect, ...] = (
    Dialect("bare_json", "bare_json", "Llama 3, Hammer, xLAM, JSON mode", OBJECT, body.bare_json,
        rf"{S}[;,]?{S}(?=\{{)", ("openai_envelope",)),
    Dialect("bare_array", "bare_json", "xLAM, Hammer, Phi", rf"(?=\[{S}\{{)", body.bare_json),
    Dialect("llama4_pythonic", "pythonic", "Llama 4, Llama 3.2 1B/3B, ToolACE", rf"(?=\[{S}(?P<offered>[^\W\d][\w.:-]{{0,127}}){S}\()", body.bare_python),
    Dialect("granite_pythonic", "pythonic", "Granite 3.3/4 prompts, small models", rf"(?=(?P<offered>[^\W\d][\w.:-]{{0,127}}){S}\()", body.bare_python),
    Dialect("nexusraven", "pythonic", "NexusRaven", rf"Call:{S}(?=(?P<offered>[^\W\d][\w.:-]{{0,127}}){S}\()", body.bare_python, shuts=r"\s{0,20}<bot_end>"),
    Dialect("glm4_name_json", "header_json", "GLM-4-9B, GLM-Z1, CodeGeeX4", rf"(?P<offered>[\w.:-]{{1,128}})[ \t]{{0,5}}\r?\n{S}{OBJECT}", body.named_json),
    Dialect("fence_json", "fenced", "Qwen2.5-Coder, Hammer 2, xLAM", rf"```(?:json)?[ \t]{{0,20}}\r?\n{S}{JSON}", body.bare_json, shuts=FENCE_END),
)  # fmt: skip

# Their tags are the tools' own names.
TOOL_ELEMENT = Dialect("tool_name_tag", "adhoc_tag", "Cline, Roo, Kilo prompts", "", body.tool_element)
FENCED = Dialect(
    "fence_tool_tag", "fenced", "any model that is taught it: our own prompt teaches it", "", body.tool_element
)

DIALECTS = (*MARKED, *REST, TOOL_ELEMENT, *LINES, FENCED, *WHOLE)
