"""Explicit openers with another dialect's body: what models write that mix the forms they have been taught."""

from __future__ import annotations

from parsing.dialects.row import Dialect
from parsing.grammar import (
    BAR_WRAP,
    CALL,
    CALL_ELEMENTS,
    CALL_TAG,
    EXPLICIT,
    LOOSE_NAME,
    M3,
    MIXED_TAGS,
    NAME,
    OBJECT,
    OFFERED,
    SPACE,
    SUFFIX,
    USER_TAGS,
    WRAP,
    P,
    S,
    element,
    quoted,
)
from parsing.readers import bodies as body

_WORD = r"[^\s<>{}\[\]\\\"'()=,;]{1,128}"
_OPEN = rf"<(?:{CALL_TAG}{SUFFIX}|function_calls?|tool_calls|user)>{S}"
_NAMED = (
    rf"(?:{element(CALL_ELEMENTS, 'name|tool|tool_name|function', 'name')}>"
    rf"|<(?:{CALL_ELEMENTS})(?:_name)?\s?=\s?{quoted('name')}\s?>)"
)
_NAMED_OFFERED = _NAMED.replace("<name>", "<offered>")
_NAME_ELEMENTS = "tool_name|name|tool|function|function_name"
_BODIES = "parameters|arguments|args|input|tool_input"
_ENDS = rf"(?:{_BODIES}|(?:{CALL_ELEMENTS})(?:_name)?)"
_CHILD = rf"(?=<(?!(?:{_BODIES}|tool_call_args)>)[a-zA-Z_][\w.-]{{0,127}}>)"
_BARE_INVOKE = (
    rf"<invoke{S}name={quoted('name')}\s?>{S}"
    rf"(?=<(?!(?:{_BODIES}|param|parameter|argument)[\s>])[a-zA-Z_][\w.-]{{0,127}}>)"
)
_TAGS = r"(?=<param|<argument|<arg_key)"

MARKED: tuple[Dialect, ...] = (
    Dialect(
        "laguna_json", "header_json", "Laguna, GLM and small models that write JSON behind the name",
        rf"<{CALL_TAG}{SUFFIX}>{S}(?P<name>{_WORD})[ \t]{{0,20}}\r?\n{S}{OBJECT}"
        rf"|{_OPEN}(?P<offered>{_WORD}){S}{OBJECT}",
        body.named_json, shuts=r"\s{0,100}</user>",
    ),
    Dialect(
        "gemma4", "object_literal", "small Gemma 4",
        rf"<call>{S}(?:call:{S})?{OFFERED}\s?(?P<bracket>\{{)", body.literal,
    ),
    Dialect(
        "hermes", "json_sentinel", "Laguna",
        rf"<user>{S}{CALL}", body.json_calls, shuts=r"\s{0,100}</user>",
    ),
    Dialect(
        "glm53_flash", "header_json", "GLM 5.3 Flash",
        rf"<!\[(?:[\w .-]{{1,60}}/)?{OFFERED}>{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "poolside", "arg_pairs", "Laguna",
        rf"<user>{S}{OFFERED}{SPACE}(?=<arg_key)", body.tagged(USER_TAGS),
    ),
    Dialect(
        "harmony", "channel", "gpt-oss, GPT-5, K2-V3",
        rf"<tool_call>{S}(?:assistant\s{{1,20}})?to=(?:functions\.)?{NAME}\s{{1,20}}(?:json\s{{0,20}})?{OBJECT}",
        body.named_json,
    ),
    Dialect(
        "name_assignments", "adhoc_tag", "GLM and small models that write attributes behind the name",
        rf"{_OPEN}(?P<offered>{_WORD})\s{{1,20}}(?=[\w.-]{{1,64}}[ \t]{{0,5}}=)", body.assignments,
    ),
    Dialect(
        "olmo3", "pythonic", "models that write a Python call in the tag",
        rf"<(?:tool_calls?|function_call)>(?={S}\[?{S}(?:default_api\.)?(?P<offered>[^\W\d][\w.:-]{{0,127}})\()",
        body.python_calls,
    ),
    Dialect(
        "tool_attr_json", "adhoc_tag", "models that write the name as an attribute",
        rf"{_NAMED}{S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "tool_attr_json", "adhoc_tag", "models that write the name as an attribute",
        rf"{_NAMED}{S}{_TAGS}", body.tagged(MIXED_TAGS),
    ),
    Dialect(
        "tool_attr_json", "adhoc_tag", "models that write the name as an attribute",
        rf"{_NAMED_OFFERED}{S}(?:<(?:{_BODIES})>{S})?{_CHILD}", body.children_until(_ENDS),
    ),
    Dialect(
        "tool_use_json", "json_sentinel", "models that mix the names of the elements",
        rf"<(?:{CALL_ELEMENTS})>{S}<(?:{_NAME_ELEMENTS})>{S}{LOOSE_NAME}{S}</(?:{_NAME_ELEMENTS})>{S}"
        rf"<(?:{_BODIES})>{S}(?=\{{|</)",
        body.named_json,
    ),
    Dialect(
        "tool_use_json", "json_sentinel", "models that mix the names of the elements",
        rf"<(?:{CALL_ELEMENTS})>{S}<(?:{_NAME_ELEMENTS})>{S}[\"']?{OFFERED}[\"']?{S}</(?:{_NAME_ELEMENTS})>{S}"
        rf"(?:<(?:{_BODIES})>{S})?{_CHILD}",
        body.children_until(_ENDS),
    ),
    Dialect(
        "cwm_tool", "adhoc_tag", "Meta CWM",
        rf"<tool:\s?{OFFERED}(?:\s?>|\s){S}{OBJECT}", body.named_json,
    ),
    Dialect(
        "use_mcp_tool", "adhoc_tag", "Cline, Roo, MiroThinker",
        rf"<use_mcp_tool>{S}<server_name>{S}(?P<server>[^\s<>]{{1,128}}(?: [^\s<>]{{1,64}}){{0,3}}){S}</server_name>{S}"
        rf"<tool_name>{S}{LOOSE_NAME}{S}</tool_name>{S}<(?:{_BODIES})>{S}(?=\{{|</)",
        body.mcp_json,
    ),
    Dialect(
        "minimax_m3", "invoke_param", "MiniMax M3",
        rf"(?:{M3}{S})?(?P<wrap><tool_call>){S}(?:{M3}{S})?{_BARE_INVOKE}", body.children_until("invoke"),
        rf"{S}(?:{M3}{S})?{_BARE_INVOKE}", wrapper=rf"(?:{M3}{S})?</tool_call>",
    ),
)  # fmt: skip
REST: tuple[Dialect, ...] = (
    Dialect(
        "cwm_tool", "adhoc_tag", "Meta CWM",
        rf"<tool:\s?{OFFERED}(?:\s{S}(?=[^\s>{{])|\s?>{S}(?=[\"'=(\[,;:|<]))", body.words_until(r"</tool>"),
    ),
)  # fmt: skip
# A wrapper round values without a call.
NAMELESS = Dialect(
    "nameless", "adhoc_tag", "any model", rf"(?:{BAR_WRAP}{S}|{WRAP})(?=<{P}(?:parameter|param)[\s=])", body.untaught
)
# An explicit opener round the name of an offered tool in a form that no row knows: answered, and never shown.
UNTAUGHT = Dialect(
    "untaught", "adhoc_tag", "any model",
    rf"{EXPLICIT}{S}(?:(?:<(?![\w:|]{{0,20}}(?:tool_?call|function_?call))"
    rf"[\w:|-]{{1,40}}+(?:\s?[\w-]{{0,20}}\s?=\s?)?+>?+|[\[{{(]|[\"'`*]{{1,3}}){S}){{0,3}}"
    rf"(?P<offered>\w(?:[\w.:/-]{{0,126}}?\w)?)(?::\d{{1,9}})?(?=[.:/-]{{0,8}}[^\w.:/-])",
    body.untaught,
)  # fmt: skip
