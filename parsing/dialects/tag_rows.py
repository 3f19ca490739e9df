"""Calls between marks whose arguments are tags, literals, Python or a channel's message."""

from __future__ import annotations

from parsing.dialects.row import Dialect
from parsing.framing import BAR, CHANNEL, NO_TOOLS, START, STARTED, TYPE
from parsing.grammar import (
    BAR_OPEN,
    BAR_WRAP,
    BEAM_TAGS,
    BLANK,
    CALL_TAG,
    CORTEX_TAGS,
    FUNCTION_TAGS,
    INVOKE,
    INVOKE_OFFERED,
    INVOKE_TAGS,
    JSON,
    K3_TAGS,
    LOOSE_NAME,
    M3,
    MARKED_INVOKE,
    NAME,
    OBJECT,
    OFFERED,
    PACK,
    PAIR_TAGS,
    SOLAR_TAGS,
    SPACE,
    STRAY,
    SUFFIX,
    TAG,
    WRAP,
    WRAP_END,
    S,
    quoted,
)
from parsing.readers import bodies as body

_PAIRED = rf"{SPACE}(?:<tool_sep{SUFFIX}>{SPACE})?"
_TOOLS = rf"<{BAR}tool{BLANK}calls{BLANK}begin{BAR}>{S}|<{BAR}tool{BLANK}calls{BAR}>{S}"
_ITEM = rf"(?:(?P<wrap>{_TOOLS}){STRAY})?<{BAR}tool{BLANK}call{BLANK}begin{BAR}>{S}"
_TOOLS_END = rf"<{BAR}tool{BLANK}calls{BLANK}end{BAR}>"
_SEP = rf"{S}<{BAR}tool{BLANK}sep{BAR}>{S}"
_TAG_END = rf"(?:\s?>{S}|\s{{0,20}})(?=<param|</function)"  # the end of a tag that names the tool: models forget it
_TOOL = "(?!(?:self|user)<)"  # a recipient that is no channel of reasoning or of the answer


def _addressed(start: str) -> tuple[Dialect, ...]:
    """Headers that begin with `start` and name the recipient."""
    return (
        Dialect(
            "beam", "channel", "Beam",
            rf"{start} ?to={_TOOL}(?P<name>[\w.:-]{{1,128}})<\|channel\|>\w{{1,20}}\s{{0,3}}<\|constrain\|>xml"
            r"<\|message\|>",
            body.tagged(BEAM_TAGS),
        ),
        Dialect(
            "muse_glimmer", "channel", "Muse Spark, Muse Glimmer",
            rf"{start} ?to={_TOOL}[\w.:-]{{1,128}}<\|message\|>{S}(?:{WRAP}){INVOKE}",
            body.tagged(INVOKE_TAGS), rf"{S}{INVOKE}",
        ),
        Dialect(
            "muse_glimmer", "channel", "Muse Spark, Muse Glimmer",
            rf"{start} ?to={_TOOL}{OFFERED}<\|message\|>{S}{OBJECT}", body.named_json,
        ),
    )  # fmt: skip


_CHANNEL = rf"{CHANNEL}\w{{1,20}}"
_A_TOOL = rf"(?!(?:{NO_TOOLS})(?:<|\s))"
_HARMONY = rf" to={_A_TOOL}(?P<name>[\w.:-]{{1,128}})(?:\s{{1,3}}\w{{1,20}})?{_CHANNEL}"
_HARMONY_CHANNEL = rf"{_CHANNEL} to={_A_TOOL}(?P<name>[\w.:-]{{1,128}})(?:{_CHANNEL})?"
_HARMONY_HEADER = rf"(?:{STARTED}{_HARMONY}|{START}{_HARMONY_CHANNEL}){TYPE}\s{{0,3}}<\|message\|>"
_OFFERED_HEADER = _HARMONY_HEADER.replace("<name>", "<offered>")
_EMPTY = rf"{S}(?P<void><\|(?:call|end|return)\|>)"
# The rest of a header whose beginning stood in the prompt.
LINES = _addressed("")
HEADERS: tuple[Dialect, ...] = (
    Dialect(
        "harmony", "channel", "gpt-oss, GPT-5",
        rf"{_HARMONY}{TYPE}\s{{0,3}}<\|message\|>{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "harmony", "channel", "gpt-oss, GPT-5",
        rf"{_HARMONY.replace('<name>', '<offered>')}{TYPE}\s{{0,3}}<\|message\|>{_EMPTY}", body.empty_call,
    ),
    *LINES,
)  # fmt: skip
MARKED: tuple[Dialect, ...] = (
    Dialect(
        "qwen3_coder", "func_param", "Qwen3-Coder, Qwen3.5-3.8, MiMo-V2, Seed-OSS, Step-3.5, Nemotron 3, Granite 4.2",
        rf"(?P<wrap><(?:seed:)?tool_call>){S}<function\s?=\s?{LOOSE_NAME}{_TAG_END}"
        rf"|<function\s?=\s?[\"']?{OFFERED}[\"']?{_TAG_END}"
        rf"|(?P<wrap><(?:seed:)?tool_call>){S}<function\s?=\s?(?P<name>)>(?={S}(?:<param|</function))",
        body.tagged(FUNCTION_TAGS),
        rf"{S}<function\s?=\s?{LOOSE_NAME}{_TAG_END}",
        ("mimo", "seed_oss"), wrapper=r"</(?:seed:)?tool_call>",
    ),
    Dialect(
        "dsml_v4", "invoke_param", "DeepSeek V3.2, V4, V4.1, GigaChat 3.5",
        rf"(?:(?P<wrap>(?:{BAR_OPEN}){{1,2}}){STRAY})?{MARKED_INVOKE}",
        body.tagged(INVOKE_TAGS), rf"{S}{MARKED_INVOKE}", ("dsml_v32", "dsml_v41", "dsml_doubled", "gcml"),
        wrapper=BAR_WRAP,
    ),
    Dialect(
        "step3", "invoke_param", "Step3",
        rf"{_ITEM}(?:(?:function)?{_SEP}(?:{NAME}\s{{1,20}})?)?{INVOKE}", body.tagged(INVOKE_TAGS), wrapper=_TOOLS_END,
    ),
    Dialect(
        "minimax_m3", "invoke_param", "MiniMax M3",
        rf"(?:(?:{M3}{S})?<tool_call>{S})?{M3}{S}<invoke{S}name={quoted('name')}\s?>"
        rf"|(?:{M3}{S})?<tool_call>{S}<invoke{S}name={quoted('name')}\s?>(?={S}{M3})",
        body.nested_tags,
    ),
    Dialect(
        "anthropic_xml", "invoke_param", "Claude text prompts, MiniMax M2, dots, MiMo; many agents",
        rf"(?P<wrap>(?:{WRAP}){{1,2}}){STRAY}{INVOKE}|{INVOKE_OFFERED}",
        body.tagged(INVOKE_TAGS), rf"{S}{INVOKE}", ("anthropic_ns", "minimax_m2", "toolcall_invoke", "dots"),
        wrapper=WRAP_END,
    ),
    Dialect(
        "anthropic_xml", "invoke_param", "Claude 2.1 prompts",
        rf"(?:{WRAP})?<invoke>{S}<tool_name>{S}{LOOSE_NAME}{S}</tool_name>{S}<parameters>", body.named_children,
    ),
    Dialect(
        "minicpm5", "invoke_param", "MiniCPM5",
        rf"<function{S}name\s?=\s?{quoted('offered')}\s?(?P<void>/)?>"
        rf"(?={S}(?:<param|<(?:{PACK})>|</function|\{{))",
        body.tagged(INVOKE_TAGS),
    ),
    Dialect(
        "kimi_k3", "invoke_param", "Kimi K3",
        rf"(?:(?P<wrap><\|open\|>tools<\|sep\|>){S}{STRAY})?<\|open\|>call(?:\s+index=\"?\d{{1,9}}\"?)?\s+tool={quoted('name')}"
        rf"(?:\s+index=\"?\d{{1,9}}\"?)?\s?<\|sep\|>",
        body.tagged(K3_TAGS), wrapper=r"<\|close\|>tools<\|sep\|>",
    ),
    Dialect(
        "glm45", "arg_pairs", "GLM-4.5 to 5.3, Ling 3, Spark 2.5, Laguna, Hunyuan 3/4, iQuest, LongCat-2, HyperCLOVA X",
        rf"(?:(?P<wrap><(?:ifm\|)?tool_calls{SUFFIX}>){S}{STRAY})?<{CALL_TAG}{SUFFIX}>{SPACE}"
        rf"(?:(?P<name>[^\s<>{{}}\[\]\\]{{1,128}}){_PAIRED}(?=<{TAG}arg_key)|(?P<name>[^\s<>{{}}\[\]\\]{{1,128}})"
        rf"{SPACE}<tool_sep{SUFFIX}>{SPACE}(?=</)|(?P<offered>[^\s<>{{}}\[\]\\]{{1,128}}){SPACE}(?=</{CALL_TAG}))",
        body.tagged(PAIR_TAGS),
        members=(
            "glm47", "ling3", "spark25", "poolside", "hy_v3", "hy_v3_suffixed", "hy_v4", "iquest_q1",
            "iquestcoder", "longcat2", "k2_horizon_xml", "k2_horizon_typed", "hyperclovax_think",
        ),
        wrapper=rf"</(?:ifm\|)?tool_calls{SUFFIX}>",
    ),
    Dialect(
        "cortex_name_args", "adhoc_tag", "DeepSeek V4 Flash through CortexPrism",
        rf"<tool_call>{SPACE}(?=<arg_key>)", body.all_pairs,
    ),
    Dialect(
        "solar_open2", "arg_pairs", "Solar Open 2",
        rf"<\|tool_call:start\|>{S}{LOOSE_NAME}{S}(?=<\|tool_(?:arg:start|call:end)\|>)", body.tagged(SOLAR_TAGS),
    ),
    Dialect(
        "gemma4", "object_literal", "Gemma 4, FunctionGemma",
        rf"<(?:\|tool_call\|?|start_function_call)>{S}(?::?(?:call)?:{S})?(?P<name>[^\s<>{{}}()\[\]:]{{1,128}})\s?"
        rf"(?:(?P<bracket>[\{{(])|(?P<void>(?=<tool_call\|>|<end_function_call>)))"
        rf"|<(?:\|tool_call|start_function_call)>{S}call:{S}(?P<name>)(?P<bracket>\{{)",
        body.literal, rf"{S}[;,]?{S}(?:call)?:{S}(?P<name>[^\s<>{{}}()\[\]:]{{1,128}})\s?(?P<bracket>[\{{(])",
        ("functiongemma",),
    ),
    Dialect(
        "lfm2", "pythonic", "LFM2, LFM2.5, MiniCPM 3-4.1",
        rf"<\|tool_call_start\|>(?={S}(?:```|\[?{S}[^\W\d][\w.:-]{{0,127}}{S}\())",
        body.python_calls, members=("minicpm4",),
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
    Dialect(
        "gorilla", "pythonic", "Gorilla OpenFunctions",
        rf"<<function>>(?={S}[^\W\d][\w.:-]{{0,127}}{S}\()", body.python_calls,
    ),
    Dialect(
        "cortex_name_args", "adhoc_tag", "DeepSeek V4 Flash through CortexPrism",
        rf"(?:<tool_call>{S})?<tool_call_name(?:\s?=\s?{quoted('name')}\s?>|>{S}{LOOSE_NAME}{S}</tool_call_name>)"
        rf"{S}<tool_call_args>{S}{OBJECT}",
        body.named_json,
    ),
    Dialect(
        "tool_attr_json", "adhoc_tag", "CortexPrism, small models",
        rf"<tool{S}name\s?=\s?{quoted('name')}\s?>{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "function_model", "adhoc_tag", "some Granite and Qwen distils",
        rf"<function_model>{S}<function_call>{S}{LOOSE_NAME}{S}</function_call>{S}<parameters>{S}(?=\{{|</)",
        body.named_json,
    ),
    Dialect(
        "calling_tool", "adhoc_tag", "omlx, Rapid-MLX prompts",
        rf"\[Calling tool:{S}{NAME}\({S}{OBJECT}", body.named_json, shuts=rf"{S}\){S}\]",
    ),
    Dialect(
        "qwen_fn", "adhoc_tag", "Qwen-Agent",
        rf"✿FUNCTION✿:{S}{NAME}{S}✿ARGS✿:{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "tool_arrow", "adhoc_tag", "Odysseus models, Manus clones",
        rf"\[TOOL_CALL\]{S}{OBJECT}", body.bracket_arrow,
    ),
    Dialect(
        "tool_code_arrow", "adhoc_tag", "MiniMax clones",
        rf"<tool_code>{S}{OBJECT}", body.tag_arrow,
    ),
    Dialect(
        "tool_code_arrow", "adhoc_tag", "Gemini distils",
        rf"<tool_code>(?={S}[^\W\d][\w.:-]{{0,127}}{S}\()", body.python_calls,
    ),
    Dialect(
        "cwm_tool", "adhoc_tag", "Meta CWM",
        rf"<tool: [\w-]{{1,40}}>{S}{NAME}{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "langchain_xml", "adhoc_tag", "LangChain XML agent",
        rf"<tool>{S}{LOOSE_NAME}{S}</tool>{S}<tool_input>{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "harmony", "channel", "gpt-oss, GPT-5",
        rf"{_HARMONY_HEADER}{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "harmony", "channel", "gpt-oss, GPT-5",
        rf"{_OFFERED_HEADER}{_EMPTY}", body.empty_call,
    ),
    *_addressed(STARTED),
    Dialect(
        "inkling", "channel", "Inkling",
        rf"(?:<\|message_model\|>[^<]{{0,128}})?<\|content_invoke_tool_json\|>{S}{JSON}", body.json_calls,
    ),
    Dialect(
        "functionary_v2", "channel", "Functionary v2.2-v2.5",
        rf"(?:<\|from\|>assistant\s{{0,3}})?<\|recipient\|>{S}{NAME}{S}<\|content\|>{S}{OBJECT}", body.named_json,
    ),
)  # fmt: skip

# The same, where no other marked row can match.
REST: tuple[Dialect, ...] = (
    Dialect(
        "cwm_tool", "adhoc_tag", "Meta CWM",
        rf"<tool: (?P<label>[\w-]{{1,40}})>{S}(?P<lead>{NAME}[ \t]{{0,20}}\n?)(?=[^\s{{])",
        body.words_until(r"</tool>"),
    ),
    Dialect(
        "langchain_xml", "adhoc_tag", "LangChain XML agent",
        rf"<tool>{S}{LOOSE_NAME}{S}</tool>{S}<tool_input>(?={S}[^\s{{])", body.text_until(r"</tool_input>"),
    ),
    Dialect(
        "harmony", "channel", "gpt-oss",
        rf"{_HARMONY_HEADER}(?={S}[^\s{{<])",
        body.text_until(r"<\|(?:call|end|start|return)\|>", whole_at_end=True),
    ),
    Dialect(
        "cortex_name_args", "adhoc_tag", "DeepSeek V4 Flash through CortexPrism",
        rf"<tool_call_name(?:\s?=\s?{quoted('name')}\s?>|>{S}{LOOSE_NAME}{S}</tool_call_name>){S}<tool_call_args>"
        rf"(?={SPACE}(?:<arg_key|<param|</))",
        body.tagged(CORTEX_TAGS),
    ),
)  # fmt: skip
