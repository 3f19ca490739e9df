"""Framing that belongs to the wire, not to the message: reasoning marks, stop tokens, wrappers, echoes of results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

BAR = "[｜|]{1,4}"
_BLANK = "(?:▁|_| )"
_SPACE = r"\s{0,3}"
STARTED = rf"<\|start\|>{_SPACE}(?:assistant)?"
START = rf"(?:{STARTED})?"
_TO = r"(?: ?to=[\w.:-]{1,128})"
_ADDRESSED = rf"(?:{STARTED}{_TO}?)?"
_MUSE_ENDS = r"<\|eom\|>|<\|eot\|>|(?=<\|start\|>)|(?= to=[\w.:-]{1,128}<\|message\|>)"
TYPE = r"(?:\s{0,3}(?:<\|constrain\|>)?\s{0,3}\w{1,20})?"
CHANNEL = rf"<\|channel\|>{_SPACE}"
NO_TOOLS = "assistant|user|all|self|commentary|analysis|final"  # recipients that are no tools
_TO_NO_TOOL = rf"(?: to=(?:{NO_TOOLS}))"
_CHANNEL_HEADER = rf"{CHANNEL}\w{{1,20}}{_TO}{{0,2}}{TYPE}{_SPACE}<\|message\|>"
_HEADER = rf"{STARTED}{_TO}?{_SPACE}(?:{CHANNEL})?|{_CHANNEL_HEADER}"
# A message of harmony may quote these tokens: they end it where a header follows, or at the end of the stream.
_HARMONY_END = r"<\|(?:end|return|call)\|>"
_HARMONY_SHUTS = rf"{_HARMONY_END}(?=\s{{0,20}}(?:<\|start\|>|{CHANNEL}\w))|(?=<\|start\|>|{_CHANNEL_HEADER})"
_HARMONY_LAST = rf"{_HARMONY_END}\s*(?:{_HEADER})?|{_HEADER}"

_K3_SHUTS = r"<\|close\|>think(?:<\|sep\|>|(?=<\|(?:open|close)\|>))"


@dataclass(frozen=True)
class Reasoning:
    """The marks around reasoning. An `answer` is text to the user instead, in which markup is quoted.

    `last` is what ends it at the end of the message only: the header of another one may be cut there. `alone` is the
    closer where the opener stood in the prompt, for marks whose usual closer ends other messages too.
    """

    name: str
    opens: str
    shuts: str
    answer: bool = False
    alone: str = ""
    last: str = ""

    @property
    def orphan(self) -> str:
        """The closer that proves reasoning although nothing opened it. Empty if none does."""
        return self.alone or ("" if "(?=" in self.shuts else self.shuts)


# Wherever they stand, outside code. A closer alone is dropped.
REASONING: tuple[Reasoning, ...] = (
    Reasoning("think", r"<(?:seed:|mm:)?think(?::[\w-]{1,40})?>", r"</(?:seed:|mm:)?think(?::[\w-]{1,40})?>"),
    Reasoning("longcat", r"<longcat_think>", r"</longcat_think>"),
    Reasoning("k2_horizon", r"<ifm\|think(?:_fast|_faster)?>", r"</ifm\|think(?:_fast|_faster)?>"),
    Reasoning("magistral", r"\[THINK\]", r"\[/THINK\]"),
    Reasoning("gemma4", r"(?:<\|channel>\s{0,3}){1,3}thought", r"<channel\|>"),
    Reasoning("gemma4", r"(?:<\|channel>\s{0,3}){1,3}(?=[^\s<])", r"<channel\|>"),
    Reasoning(
        "harmony",
        rf"{START}{CHANNEL}analysis{_TO_NO_TOOL}?{TYPE}{_SPACE}<\|message\|>(?=[^{{])|"
        rf"{START}{CHANNEL}analysis{_SPACE}<\|message\|>",
        _HARMONY_SHUTS,
        last=_HARMONY_LAST,
        alone=rf"<\|end\|>(?={START}(?: to=[^<]{{1,128}})?<\|channel\|>[^<]{{1,160}}(?:<\|constrain\|>\w{{1,20}})?"
        r"<\|message)",
    ),
    Reasoning(
        "muse",
        rf"{STARTED} ?to=self<\|message\|>",
        _MUSE_ENDS,
        alone=r"<\|eom\|>(?=<\|start\|>(?:assistant)? ?to=[\w.:-]{1,128}<\|message)",
    ),
    Reasoning(
        "inkling",
        r"(?:<\|message_model\|>)?<\|content_thinking\|>",
        r"<\|end_message\|>|(?=<\|message_model\|>)",
        alone=r"<\|end_message\|>(?=<\|message_model\|>)",
    ),
    Reasoning(
        "kimi_k3",
        r"<\|open\|>think<\|sep\|>",
        rf"{_K3_SHUTS}|(?=<\|open\|>response<\|sep\|>)",
        alone=_K3_SHUTS,
    ),
    Reasoning("kimi_vl", "◁think▷", "◁/think▷"),
    Reasoning("cohere", r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    Reasoning("apertus", r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    Reasoning(
        "solar",
        r"<\|think\|>",
        r"<\|end\|>|(?=<\|(?:content|tool_call:begin|begin)\|>)",
        alone=r"<\|end\|>(?=<\|begin\|>)",
    ),
    Reasoning("solar_open2", r"<\|think:start\|>", r"<\|think:end\|>"),
    Reasoning("plamo3", r"<\|plamo:begin_think:plamo\|>", r"<\|plamo:end_think:plamo\|>"),
    Reasoning("minicpm", r"<\|thought_start\|>", r"<\|thought_end\|>"),
    Reasoning("pangu", r"\[unused16\]", r"\[unused17\]"),
    Reasoning("hyperclova", r"<\|im_start\|>assistant/think", r"<\|im_end\|>|(?=<\|im_start\|>)"),
    Reasoning("muse", rf"{STARTED} ?to=user<\|message\|>", _MUSE_ENDS, answer=True),
    Reasoning(
        "harmony",
        rf"{_ADDRESSED}{CHANNEL}final{_TO}?{TYPE}{_SPACE}<\|message\|>",
        _HARMONY_SHUTS,
        answer=True,
        last=_HARMONY_LAST,
    ),
)
# The rest of a header whose beginning stood in the prompt.
HEADERS: tuple[Reasoning, ...] = (
    Reasoning("muse", r" ?to=self<\|message\|>", _MUSE_ENDS),
    Reasoning("muse", r" ?to=user<\|message\|>", _MUSE_ENDS, answer=True),
)
# Its opener usually stands in the prompt.
APRIEL = Reasoning("apriel", r"Here are my reasoning steps:", r"\[BEGIN FINAL RESPONSE\]")
# Only at the beginning of the message.
FIRST_REASONING: tuple[Reasoning, ...] = (
    Reasoning(
        "thinking",
        r"<(?P<tag>thinking|thought|scratch_pad|reflection)[^<>]{0,80}>",
        r"</(?:thinking|thought|scratch_pad|reflection)>",
    ),
    APRIEL,
    Reasoning("granite32", r"Here is my thought process:", r"Here is my response:"),
    Reasoning("cohere_plan", r"(?:Plan|Reflection):(?=[^\n]{0,600}\n{1,2}(?:Action|Reflection):)", r"(?=Action:)"),
    Reasoning("react", r"Thought:", r"(?=Action:)|Final Answer:"),
    Reasoning("harmony_text", r"analysis(?=[^\W\d_])", r"assistantfinal|(?=assistantcommentary)"),
)

# Whole tokens that are never shown. Those of a known family are known by their shape.
_FAMILIES = (
    "begin|end|start|stop|eot|eom|eos|bos|im|fim|pad|sep|file|turn|role|message|channel|recipient|constrain|content|from|"
    "header|system|user|assistant|developer|observation|reserved_special_token|unk|refusal|audio|image|video|vision|media"
)
SHAPED = rf"<\|/?(?:(?:{_FAMILIES})(?:[_:./-][\w:./-]{{0,60}})?|[A-Z][A-Z_]{{2,60}})\|>"
STOPS = (
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|END_OF_TURN_TOKEN|return|call|calls|end|eom|eot|role_end|observation|iquest_end|"
    r"user|tool_response|message_sep|stop|end_message|message_model|content_text|content|flush|START_RESPONSE|END_RESPONSE|"
    r"START_TEXT|END_TEXT|START_ACTION|END_ACTION|CHATBOT_TOKEN|START_OF_TURN_TOKEN|end_of_role|assistant)\|>"
)
# Those that end a message, in a line behind a fence that closes too.
# Tokens that no other language has: a message that ends behind one ends there, in a fence too.
FINAL_STOPS = rf"{STOPS}|<｜end▁of▁sentence｜>"
ENDS = rf"{FINAL_STOPS}|</s>|<end_of_turn>|<eos>|<turn\|>|\[e~\[|</assistant>"
_MARKED_NAMES = "tool_calls|toolcalls|function_calls|calls|tools?|invoke|parameter"
_MARKED_TAG = rf"{BAR}[A-Z]{{1,12}}{BAR}\s?(?:{_MARKED_NAMES})[^<>]{{0,200}}>"
# An opener that holds no call: where the message ends behind it, one was cut.
WRAPPERS: tuple[str, ...] = (rf"<{_MARKED_TAG}", r"<dots_function_call\s?>")
# The opener of one call: where the message ends in the header behind it, that is not shown.
ITEMS: tuple[str, ...] = (rf"<｜{{1,4}}tool{_BLANK}call{_BLANK}begin｜{{1,4}}>",)
TOKENS: tuple[str, ...] = (
    rf"{_ADDRESSED}{CHANNEL}\w{{1,20}}{_TO}{{0,2}}{TYPE}{_SPACE}(?=<\|(?:start|channel|end|call|return)\|>)",
    rf"{STARTED}{_TO}?{_SPACE}(?=<\|)",
    r"<\|channel\|>(?:final|commentary|analysis)(?=\W)",
    r"<\|message_model\|>[^<\n]{0,128}(?=<\|content_)",
    STOPS,
    r"<｜[^｜<>\n]{1,60}｜>|<\|?reserved_1[2-5]\|?>|<(?:turn|tool|tool_call|image|audio)\|>|<\|(?:think|tool|image|audio)>",
    r"<\|turn>(?:model|user|assistant|system)\s",
    r"<\|turn>",
    rf"</{_MARKED_TAG}",
    r"\[END FINAL RESPONSE\]",
    r"<｜(?:end▁of▁sentence|Assistant|User)｜>|<\|tool_response>",
    rf"<{BAR}tool{_BLANK}(?:calls|outputs){_BLANK}(?:begin|end){BAR}>",
    r"</s>(?=\s{0,20}[<\[])|<end_of_turn>|<start_of_turn>model\n|<start_function_response>|\[e~\[|</assistant>|<bot_end>|<eos>",
    r"</?(?:answer|response)>",
    r"<co>|</co(?::[^<>]{0,80})?>",
    r"<\|(?:open|close)\|>(?:message|tools)[^<]{0,80}<\|sep\|>|<\|close\|>response[^<]{0,80}<\|sep\|>",
    r"<\|tool_call(?:s?_section_(?:begin|end)|_end)\|>",
    r"<\|im_start\|>assistant",
    r"(?:<\|from\|>assistant\s{0,3})?<\|recipient\|>all\s{0,3}<\|content\|>",
    r"<\|begin\|>assistant|<\|begin\|>(?=[^a])",
    r"<tool_calls?>\s{0,100}</tool_calls?>|<\|tool_call>\s{0,100}<tool_call\|>",
    r"<start_function_call>\s{0,100}<end_function_call>",
    r"<(?:seed:)?tool_call>(?=\s{0,100}<(?:seed:)?tool_call>)",
    r"<\|tool_call(?:[:_](?:start|begin))?\|>(?=\s{0,20}<\|tool_call(?:[:_](?:start|begin))?\|>)",
    r"<\|(?:tool_call_end|tool_call:end|action_end|python_end|tools_suffix|/tool_call)\|>",
    r"</(?:(?:minimax|seed|atem|antml):(?:tool_calls?|function_calls)|ifm\|tool_calls?|TOOLCALL|"
    r"(?:longcat_|iquest_|iquestcoder_)tool_call|dots_function_call)\s?>",
    SHAPED,
)
# Tokens behind which the answer stands: what is shown is no thought.
ANSWERS: tuple[str, ...] = (
    rf"{_ADDRESSED}{_CHANNEL_HEADER}|{STARTED}{_TO}?{_SPACE}<\|message\|>",
    r"<\|(?:content_text|content|START_RESPONSE|START_TEXT)\|>|<\|open\|>response[^<]{0,80}<\|sep\|>",
)
LINE_TOKENS: tuple[str, ...] = (
    r">>>all[ \t]{0,5}\r?\n",
    r"(?:commentary|analysis|final)(?=<\|(?:channel|start)\|>)",
)
# The rest of a header whose beginning stood in the prompt, or was left out.
LINE_ANSWERS: tuple[str, ...] = (
    rf" ?to=[\w.:-]{{1,128}}(?:{CHANNEL}\w{{1,20}}{TYPE})?{_SPACE}<\|message\|>",
    r" ?<\|message\|>",
)
# Lines of nothing but what is shaped like tokens, or of the closers of calls, where nothing has begun.
SHAPES: tuple[str, ...] = (
    r"(?:<\|[^\s<>|]{1,60}\|>[ \t]{0,5}){1,10}\r?\n",
    r"(?:</(?:tool_calls?|function_calls?|tool_use)>[ \t]{0,5}){1,10}\r?\n",
)
# A header that the end of the message cuts.
CUT_HEADER = rf"(?:{STARTED}{_TO}?{_SPACE})?(?:{CHANNEL}\w{{0,20}}{_TO}{{0,2}}{TYPE})?"
# The header of another role's message, or of a tool's results: invented as well, and not the answer.
FOREIGN = (
    rf"<\|start\|>{_SPACE}(?:functions\.[\w.:-]{{1,128}}|tool|user|developer|system)(?=[ <])[^<\n]{{0,100}}"
    rf"(?:{CHANNEL}[^<\n]{{0,60}})?<\|message\|>|<{BAR}tool{_BLANK}outputs{_BLANK}begin{BAR}>(?=\s{{0,20}}<{BAR}tool)"
)
FOREIGN_SHUTS = rf"<\|(?:end|eom|eot)\|>|(?=<\|start\|>)|<{BAR}tool{_BLANK}outputs{_BLANK}end{BAR}>"
# A result that the model invents after a call: the message ends there.
ECHOES: tuple[str, ...] = (
    r"<(?:tool_response|tool_result|function_results?|function_response|TOOL_RESPONSE|tool_output)>",
    rf"<{BAR}tool{_BLANK}outputs{_BLANK}begin{BAR}>",
    r"✿(?:RESULT|RETURN)✿",
    r"\[TOOL_RESULTS\]",
)
ECHO_LINES: tuple[str, ...] = (r"Observation:", r"```tool_outputs?[ \t]{0,20}\n", r"Thought:")

ORPHANS: tuple[str, ...] = tuple(dict.fromkeys(each.orphan for each in (*REASONING, APRIEL) if each.orphan))
ANY_CLOSER = "|".join(ORPHANS)
# A prompt that ends inside reasoning, or inside the header of the message: the reply continues it.
PROMPT_ENDS = r"(?:>>>|<\|recipient\|>|<\|im_start\|>assistant)\Z"  # not its line: the text behind that is the answer


@lru_cache(maxsize=64)  # a template ends its prompts in one of a few ways
def reasoning_open_in(prompt: str) -> Reasoning | None:
    """The marks of the reasoning, or of the answer, that this prompt ends in."""
    end = prompt.rstrip()
    return next((each for each in REASONING if re.search(rf"(?:{each.opens})\Z", end)), None)
