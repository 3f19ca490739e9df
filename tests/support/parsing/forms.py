"""A writer for every dialect, and what each of them needs."""

from __future__ import annotations

from tests.support.parsing.writers import (
    Writer,
    apertus,
    array,
    arrow,
    assignments,
    beam,
    code_arrow,
    dsml,
    each,
    elements,
    headed,
    invoke,
    lines,
    literals,
    minimax_m3,
    muse,
    openai,
    pairs,
    plamo,
    python,
    pythonic,
    tagged,
)

FUNCTION = ("<function=%N>\n", "<parameter=%K>\n%V\n</parameter>\n", "</function>\n")
INLINE = ("<function=%N>\n", "<parameter=%K>%V</parameter>\n", "</function>\n")
DS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
ITEM = "<｜tool▁call▁begin｜>"
SEP = "<｜tool▁sep｜>"
DONE = "<｜tool▁call▁end｜>"
FENCE = "```json\n%J\n```"

WRITERS: dict[str, Writer] = {
    "hermes": each("<tool_call>\n", "\n</tool_call>"),
    "longcat": each("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
    "nemotron_toolcall": array("<TOOLCALL>", "</TOOLCALL>"),
    "jamba_tool_calls": array("<tool_calls>", "</tool_calls>"),
    "minimax_m1": lines("<tool_calls>\n", "\n</tool_calls>"),
    "granite3": array("<|tool_call|>", ""),
    "granite31": array("<tool_call>", ""),
    "granite20b_fc": each("<function_call> ", "", " "),
    "phi4mini": array("<|tool_call|>", "<|/tool_call|>"),
    "functools": array("functools", ""),
    "internlm2": each("<|action_start|> <|plugin|>\n", "<|action_end|>", arguments="parameters"),
    "apertus": apertus,
    "cohere_action": array("<|START_ACTION|>", "<|END_ACTION|>", "parameters", "tool_name"),
    "mistral_array": array("[TOOL_CALLS] ", ""),
    "llama_python_tag": lines("<|python_tag|>", "", "; "),
    "pangu_unused": array("[unused11]", "[unused12]"),
    "lfm2_json": array("<|tool_call_start|>", "<|tool_call_end|>"),
    "gigachat3": each("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""),
    "gigachat31": each("<|function_call|>", ""),
    "qwen25coder_tools": lines("<tools>\n", "\n</tools>"),
    "hyperclova14b": array("<|im_end|>\n<|im_start|>assistant -> tool/function_call\n", ""),
    "lmstudio_request": each("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
    "function_call_tag": each("<function_call>", "</function_call>"),
    "tool_use_json": headed("<tool_use>\n  <name>%N</name>\n  <arguments>%J</arguments>\n</tool_use>", between="\n"),
    "k2_horizon_json": each("<ifm|tool_call>", "</ifm|tool_call>"),
    "glaive": each("<functioncall> ", ""),
    "deepseek_v3": headed(f"{ITEM}function{SEP}%N\n{FENCE}{DONE}", *DS, "\n"),
    "deepseek_v31": headed(f"{ITEM}%N{SEP}%J{DONE}", *DS),
    "kimi_k2": headed(
        "<|tool_call_begin|>functions.%N:%I<|tool_call_argument_begin|>%J<|tool_call_end|>",
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
    ),
    "mistral_args": headed("[TOOL_CALLS]%N[ARGS]%J"),
    "mistral_v11": headed("[TOOL_CALLS]%N%J"),
    "mistral_callid": headed("[TOOL_CALLS]%N[CALL_ID]aB3dE5gH%I[ARGS]%J"),
    "solar_open": headed("<|tool_call:begin|>q%I<|tool_call:name|>%N<|tool_call:args|>%J<|tool_call:end|>"),
    "plamo3": headed(
        f"{plamo('begin_tool_request')}{plamo('begin_tool_name')}%N{plamo('end_tool_name')}"
        f"{plamo('begin_tool_arguments')}<|plamo:constrain|>json<|plamo:msg|>%J{plamo('end_tool_arguments')}"
        f"{plamo('end_tool_request')}",
        plamo("begin_tool_requests"),
        plamo("end_tool_requests"),
    ),
    "step_audio2": headed("<tool_call>function\n%N\n%J</tool_call>"),
    "laguna_json": headed("<tool_call>%N\n%J\n</tool_call>", between="\n"),
    "glm53_flash": headed("<![%N>%J"),
    "functionary_v32": headed(">>>%N\n%J", between="\n"),
    "llama31_function": headed("<function=%N>%J</function>", between="\n"),
    "glm4_name_json": headed("%N\n%J"),
    "qwen3_coder": tagged(
        *FUNCTION[:2], "</function>\n</tool_call>", between="\n<tool_call>\n", before="<tool_call>\n"
    ),
    "mimo": tagged(*INLINE[:2], "</function>\n</tool_call>", between="\n<tool_call>\n", before="<tool_call>\n"),
    "seed_oss": tagged(
        *INLINE[:2], "</function>\n</seed:tool_call>", between="\n<seed:tool_call>\n", before="<seed:tool_call>\n"
    ),
    "dsml_v32": dsml("｜DSML｜", "function_calls"),
    "dsml_v4": dsml("｜DSML｜", "tool_calls"),
    "dsml_v41": dsml("｜DSML｜ ", "calls"),
    "dsml_doubled": dsml("｜｜DSML｜｜", "tool_calls"),
    "gcml": dsml("｜GCML｜", "tool_calls"),
    "minimax_m2": invoke("minimax:tool_call"),
    "minimax_m3": minimax_m3,
    "step3": tagged(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="%N">\n',
        '<steptml:parameter name="%K">%V</steptml:parameter>\n',
        "</steptml:invoke><｜tool_call_end｜>",
        "<｜tool_calls_begin｜>\n",
        "\n<｜tool_calls_end｜>",
    ),
    "dots": invoke("dots_function_call"),
    "anthropic_xml": invoke("function_calls"),
    "anthropic_ns": invoke("x:function_calls", "x:"),
    "toolcall_invoke": invoke("tool_call"),
    "minicpm5": tagged('<function name="%N">', '<param name="%K">%V</param>', "</function>"),
    "kimi_k3": tagged(
        '<|open|>call tool="%N" index="1"<|sep|>',
        '<|open|>argument key="%K" type="%T"<|sep|>%V<|close|>argument<|sep|>',
        "<|close|>call<|sep|>",
        "<|open|>tools<|sep|>",
        "<|close|>tools<|sep|>",
        "",
    ),
    "glm45": pairs(),
    "glm47": pairs(newline="", inner=""),
    "ling3": pairs(inner=""),
    "spark25": pairs(inner=""),
    "poolside": pairs(newline="", inner=""),
    "hy_v3": tagged(
        "<tool_call>%N<tool_sep>\n", "<arg_key>%K</arg_key>\n<arg_value>%V</arg_value>\n", "</tool_call>",
        "<tool_calls>\n", "\n</tool_calls>",
    ),
    "hy_v3_suffixed": tagged(
        "<tool_call:o>%N<tool_sep:o>\n", "<arg_key:o>%K</arg_key:o>\n<arg_value:o>%V</arg_value:o>\n",
        "</tool_call:o>", "<tool_calls:o>\n", "\n</tool_calls:o>",
    ),
    "hy_v4": tagged(
        "<tool_call>%N", "<arg_key>%K</arg_key><arg_value>%V</arg_value>", "</tool_call>", "<tool_calls>",
        "</tool_calls>", "",
    ),
    "iquest_q1": pairs("iquest_tool_call"),
    "iquestcoder": pairs("iquestcoder_tool_call"),
    "longcat2": pairs("longcat_tool_call", "longcat_"),
    "k2_horizon_xml": tagged(
        "<ifm|tool_call>%N", "<ifm|arg_key>%K</ifm|arg_key><ifm|arg_value>%V</ifm|arg_value>", "</ifm|tool_call>",
        "<ifm|tool_calls>\n", "\n</ifm|tool_calls>",
    ),
    "k2_horizon_typed": tagged(
        "<ifm|tool_call>%N",
        "<ifm|arg_key>%K</ifm|arg_key><ifm|arg_type>%T</ifm|arg_type><ifm|arg_value>%V</ifm|arg_value>",
        "</ifm|tool_call>", "<ifm|tool_calls>\n", "\n</ifm|tool_calls>",
    ),
    "solar_open2": tagged(
        "<|tool_call:start|>%N\n", "<|tool_arg:start|>%K<|tool_arg:value|>%V<|tool_arg:end|>\n", "<|tool_call:end|>"
    ),
    "hyperclovax_think": pairs(),
    "gemma4": literals("<|tool_call>", "<tool_call|>", '<|"|>'),
    "functiongemma": literals("<start_function_call>", "<end_function_call>", "<escape>"),
    "llama4_pythonic": python("[", "]"),
    "llama4_python_start": python("<|python_start|>[", "]<|python_end|>"),
    "lfm2": python("<|tool_call_start|>[", "]<|tool_call_end|>"),
    "olmo3": python("<function_calls>\n", "\n</function_calls>", "\n"),
    "granite_pythonic": python("", "", "\n"),
    "llama31_builtin": lambda calls: "<|python_tag|>" + pythonic(calls[0]).replace("(", ".call(", 1),
    "gemini_tool_code": python("```tool_code\n", "\n```", "\n", "print(default_api.%C)"),
    "minicpm4": python("<|tool_call_start|>\n```python\n", "\n```\n<|tool_call_end|>", "\n"),
    "gorilla": python("", "", " ", "<<function>>%C"),
    "nexusraven": python("Call: ", "", "; "),
    "harmony": headed(
        "<|channel|>commentary to=functions.%N <|constrain|>json<|message|>%J<|call|>", between="<|start|>assistant"
    ),
    "muse_glimmer": muse,
    "inkling": headed(
        '<|message_model|>%N<|content_invoke_tool_json|>{"name": "%N", "args": %J}<|end_message|>'
    ),
    "beam": beam,
    "functionary_v2": headed("<|from|>assistant\n<|recipient|>%N\n<|content|>%J", between="\n"),
    "fence_tool_call": each("```tool_call\n", "\n```"),
    "fence_json": array("```json\n", "\n```"),
    "rwkv_tool_call": each("**Tool Call:**\n```json\n", "\n```"),
    "cohere_r_action": array("Action:\n```json\n", "\n```", "parameters", "tool_name"),
    "continue_codeblock": tagged(
        "```tool\nTOOL_NAME: %N\n", "BEGIN_ARG: %K\n%V\nEND_ARG\n", "```"
    ),
    "bare_json": lines("", "", "; "),
    "bare_array": array("", ""),
    "openai_envelope": openai,
    "tool_name_tag": elements,
    "cortex_name_args": headed(
        "<tool_call_name>%N</tool_call_name><tool_call_args>%J</tool_call_args>", between="\n"
    ),
    "tool_attr_json": headed('<tool name="%N">\n%J\n</tool>', between="\n"),
    "function_model": headed(
        "<function_model>\n<function_call>%N</function_call>\n<parameters>%J</parameters>\n</function_model>",
        between="\n",
    ),
    "calling_tool": headed("[Calling tool: %N(%J)]", between="\n"),
    "react": headed("Action: %N\nAction Input: %J"),
    "qwen_fn": headed("✿FUNCTION✿: %N\n✿ARGS✿: %J", between="\n"),
    "name_assignments": assignments,
    "use_mcp_tool": headed(
        "<use_mcp_tool>\n<server_name>own</server_name>\n<tool_name>%N</tool_name>\n<arguments>\n%J\n</arguments>\n"
        "</use_mcp_tool>",
        between="\n",
    ),
    "tool_arrow": arrow,
    "tool_code_arrow": code_arrow,
    "cwm_tool": headed("<tool: function>\n%N %J\n</tool>", between="\n"),
    "bracket_name": headed("[%N]\n%J\n[/%N]", between="\n"),
    "langchain_xml": headed("<tool>%N</tool><tool_input>%J</tool_input>", between="\n"),
}  # fmt: skip
# Calls only when the whole message is one.
WEAK = frozenset(
    {
        "llama4_pythonic", "granite_pythonic", "nexusraven", "glm4_name_json", "fence_json", "bare_json", "bare_array",
        "openai_envelope",
    }
)  # fmt: skip
# One call in a message, by their grammar.
SINGLE = frozenset({"gigachat3", "gigachat31", "glm4_name_json", "llama31_builtin", "react"})
