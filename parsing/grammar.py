"""The pieces that openers are made of, and the tags of each text-valued grammar."""

from __future__ import annotations

from dataclasses import replace

from parsing.framing import BAR
from parsing.readers.markup import Framing, Markup

S = r"\s{0,100}"
BLANK = r"(?:▁|_| |\\_)"
# A tag's prefix: an XML namespace, or a word between bars, or the bars alone.
P = rf"(?:[\w.-]{{1,40}}:|{BAR}(?:[A-Z]{{1,12}}{BAR})?\s?)?"
# A call's JSON: an object, an array of objects or an empty one.
JSON = rf"(?=\{{|\[{S}[\{{\]])"
OBJECT = r"(?=\{)"
# An object whose first key may be a call's: for tags that are words of other languages too.
_FIRST_KEYS = "name|tool|tool_name|function|function_call|type|id|arguments|parameters|action"
CALL = rf"(?=\[?{S}\{{{S}[\"']?(?:{_FIRST_KEYS})[\"']?{S}:)"
NAME = r"(?P<name>[^\s<>\"'=(){}\[\],;:|｜]{1,128})"
LOOSE_NAME = r"[\"']?(?P<name>[^\s<>\"'`=(){}\[\],;|｜]{1,128})[\"']?"
OFFERED = r"(?P<offered>[^\s<>\"'=(){}\[\],;]{1,128})"
WRAP_NAMES = "tool_calls?|toolcalls?|function_calls?|calls?|tools?|tool_use|tool"
WRAP = rf"<(?:[\w.-]{{1,40}}[:|])?(?:{WRAP_NAMES}|dots_function_call)(?::[\w-]{{1,40}})?\s?>{S}"
WRAP_END = rf"</(?:[\w.-]{{1,40}}[:|])?(?:{WRAP_NAMES}|dots_function_call)(?::[\w-]{{1,40}})?\s?>"
# Words between a wrapper's opener and its first call.
STRAY = r"(?:[^<>{}\[\]`]{1,200}+(?=<))?"
BAR_OPEN = rf"<{BAR}(?:[A-Z]{{1,12}}{BAR})?\s?(?:{WRAP_NAMES})\s?>{S}"
BAR_WRAP = rf"</?{BAR}(?:[A-Z]{{1,12}}{BAR})?\s?(?:{WRAP_NAMES})\s?>"


M3 = r"\]<\]minimax\[>\["  # in front of each tag of MiniMax M3

# The fence that closes the one in a row's opener.
FENCE_END = rf"{S}(?:`{{3,20}}(?=[^`])|~{{3,20}}(?=[^~]))"


def quoted(group: str) -> str:
    """An attribute's value, in either quote or in none."""
    return rf"(?:\"(?P<{group}>[^\"]{{0,200}})\"|'(?P<{group}>[^']{{0,200}})'|(?P<{group}>[^\s\"'<>/]{{1,200}}))"


ATTRIBUTE = (
    r"\s{1,20}(?:string\s?=\s?[\"']?(?P<string>true|false)[\"']?|type\s?=\s?[\"']?(?P<kind>[\w-]{1,40})[\"']?"
    r"|[\w:-]{1,40}\s?=\s?(?:\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s\"'<>]{1,200}))"
)


def element(names: str, attribute: str, group: str, prefix: str = P) -> str:
    """The opening tag of `<names attribute="group">`; a tokenizer may have lost the first space."""
    named = rf"{S}(?:{attribute})\s?=\s?{quoted(group)}"
    return rf"<{prefix}(?:{names})(?:{ATTRIBUTE}){{0,4}}?{named}(?:{ATTRIBUTE}){{0,4}}{S}"


INVOKE = element("invoke|call|function", "name|tool", "name") + "(?P<void>/)?>"
INVOKE_OFFERED = element("invoke", "name|tool", "offered") + "(?P<void>/)?>"
MARKED_INVOKE = (
    element("invoke|call|function", "name|tool", "name", rf"{BAR}(?:[A-Z]{{1,12}}{BAR})?\s?") + "(?P<void>/)?>"
)
PARAMETER = element("parameter|param|argument", "name|key", "key") + ">"
PACK = "arguments|parameters"  # an element that some models write round all parameters

INVOKE_TAGS = Markup(
    opens=rf"(?:<(?:{PACK})>{S})?{PARAMETER}",
    shuts=rf"</{P}(?:parameter|param|argument)\s?>",
    ends=rf"(?:(?:<(?:{PACK})>{S})?</(?:{PACK})>{S})?</{P}(?:invoke|call|function)\s?>",
    after=rf"</{P}(?:{WRAP_NAMES}|dots_function_call)\s?>|<{P}(?:invoke|tool_calls?|function_calls?|function)[\s>]"
    rf"|<{BAR}tool{BLANK}call",
    nests=rf"<{P}invoke\s[^<>]{{1,200}}>(?=\s{{0,100}}(?:<{P}param|</{P}invoke))",
)
FUNCTION_TAGS = Markup(
    opens=r"<param(?:eter)?\s?=\s?[\"']?(?P<key>[^>\"']{1,200})[\"']?\s?>",
    shuts=r"</param(?:eter)?\s?>",
    ends=r"</function\s?>",
    after=r"</?(?:seed:)?tool_call>|<function=",
    framing=Framing.EACH,
    nests=r"<function=[^<>\s]{1,128}>(?=\s{0,100}(?:<param|</function))",
)
K3_TAGS = Markup(
    opens=rf"<\|open\|>argument(?:{ATTRIBUTE}){{0,3}}?\s{{1,20}}key={quoted('key')}(?:{ATTRIBUTE}){{0,3}}\s?<\|sep\|>",
    shuts=r"<\|close\|>argument<\|sep\|>",
    ends=r"<\|close\|>call<\|sep\|>",
    after=r"<\|open\|>call|<\|(?:open|close)\|>tools",
)
SPACE = r"(?:\s|\\n){0,100}+"  # never given back: next to other space each way to share it would be tried
TAG = r"(?:longcat_|ifm\|)?"
CALL_TAG = r"(?:longcat_|ifm\||iquest_|iquestcoder_)?tool_call"
SUFFIX = r"(?::[\w-]{1,40})?"
_KEY = rf"<{TAG}arg_key{SUFFIX}>"
_KEY_END = rf"</{TAG}arg_key{SUFFIX}>{SPACE}"
PAIR_TAGS = Markup(
    opens=rf"{SPACE}(?:{_KEY}[^<]{{0,200}}{_KEY_END}){{0,3}}?{_KEY}(?P<key>[^<]{{1,200}}){_KEY_END}"
    rf"(?:<{TAG}arg_type{SUFFIX}>(?P<kind>[^<]{{1,40}})</{TAG}arg_type{SUFFIX}>{SPACE})?<{TAG}arg_value{SUFFIX}>",
    shuts=rf"</{TAG}arg_value{SUFFIX}>(?:\\n)?",
    ends=rf"{SPACE}</{CALL_TAG}{SUFFIX}>",
    after=rf"</?{CALL_TAG}s?{SUFFIX}>",
)
SOLAR_TAGS = Markup(
    opens=r"<\|tool_arg:start\|>(?P<key>[^<]{1,200})<\|tool_arg:value\|>",
    shuts=r"<\|tool_arg:end\|>",
    ends=r"<\|tool_call:end\|>",
    after=r"<\|tool_call:start\|>",
)
BEAM_TAGS = Markup(
    opens=rf"<rfl:parameter name={quoted('key')}\s?>",
    shuts=r"</rfl:parameter>",
    ends=r"<\|(?:call|end)\|>",
    after=r"<\|start\|>",
)
ARG_LINES = Markup(
    opens=r"BEGIN_ARG:[ \t]{0,20}(?P<key>[^\r\n]{1,200})(?=\r?\n)",
    shuts=r"END_ARG[ \t]{0,20}",
    ends=r"`{3,20}+(?=[^`])|~{3,20}+(?=[^~])|(?=TOOL_NAME:)",
    after=r"`{3,20}+(?=[^`])|~{3,20}+(?=[^~])",
    lead="\n",
    framing=Framing.EACH,
)
CORTEX_TAGS = Markup(
    opens=rf"{PAIR_TAGS.opens}|{FUNCTION_TAGS.opens}|{PARAMETER}",
    shuts=rf"{PAIR_TAGS.shuts}|</(?:param|parameter)\s?>",
    ends=rf"{SPACE}</tool_call_args>",
    after=r"<tool_call_name|</tool_call>",
)
# Tags of different dialects in one call.
CALL_ELEMENTS = "tool_call|function_call|tool_use|use_tool|use_mcp_tool|call_tool|invoke_tool"
MIXED_TAGS = Markup(
    opens=CORTEX_TAGS.opens,
    shuts=rf"{PAIR_TAGS.shuts}|</(?:param|parameter|argument)\s?>",
    ends=rf"{SPACE}</(?:{CALL_ELEMENTS})(?:_name)?\s?>",
    after=rf"</?(?:{CALL_ELEMENTS})s?[\s>]",
)
USER_TAGS = replace(PAIR_TAGS, ends=rf"{SPACE}</(?:{CALL_TAG}|user){SUFFIX}>", after=rf"{PAIR_TAGS.after}|</?user>")
# Openers that do not occur in prose: what stands behind one is meant as a call.
EXPLICIT = (
    rf"(?:<{P}(?P<label>tool_?calls?|tool-calls?|function_?calls?|function-calls?|TOOLCALL|{CALL_TAG}|{CALL_ELEMENTS})"
    rf"(?:_name)?{SUFFIX}(?:>|\s?=\s?|\s{{1,20}}[\w-]{{1,20}}\s?=\s?)|<(?P<label>tool)>|<(?P<label>user)>(?=[\w.:-]{{1,128}}\s{{0,20}}<arg)"
    rf"|<\|(?:tool_call\|?|tool_call_start\||tool_call:(?:begin|start)\||tool_call_begin\||function_call\||"
    rf"tools_prefix\||START_ACTION\||python_start\||action_start\|>\s{{0,20}}<\|plugin\|)>|<start_function_call>"
    rf"|\[TOOL_(?:CALLS?|REQUEST)\]|<{BAR}tool{BLANK}call{BLANK}begin{BAR}>(?:function<{BAR}tool{BLANK}sep{BAR}>|(?!function<))"
    rf"|✿FUNCTION✿:)"
)
