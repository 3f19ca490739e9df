"""Framing that belongs to the wire, not to the message: reasoning marks, stop tokens, wrappers, echoes of results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

BAR = "[｜|]{1,4}"
_STARTED = r"<\|start\|>(?:assistant)?"
_START = rf"(?:{_STARTED})?"
_MUSE_ENDS = r"<\|eom\|>|<\|eot\|>|(?=<\|start\|>)"
_WORD = r"(?:\s{0,3}(?:<\|constrain\|>)?\s{0,3}\w{1,20})?"


@dataclass(frozen=True)
class Reasoning:
    """The marks around reasoning. An `answer` is text to the user instead, in which markup is quoted.

    `alone` is the closer where the opener stood in the prompt, for marks whose usual closer ends other messages too.
    """

    name: str
    opens: str
    shuts: str
    answer: bool = False
    alone: str = ""

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
    Reasoning("gemma4", r"<\|channel>thought", r"<channel\|>"),
    Reasoning(
        "harmony",
        rf"{_START}<\|channel\|>analysis{_WORD}<\|message\|>(?=[^{{])|{_START}<\|channel\|>analysis<\|message\|>",
        r"<\|end\|>|<\|return\|>|(?=<\|start\|>|<\|channel\|>)",
        alone=rf"<\|end\|>(?={_START}(?: to=[^<]{{1,128}})?<\|channel\|>[^<]{{1,160}}(?:<\|constrain\|>\w{{1,20}})?"
        r"<\|message)",
    ),
    Reasoning(
        "muse",
        rf"{_STARTED} ?to=self<\|message\|>",
        _MUSE_ENDS,
        alone=r"<\|eom\|>(?=<\|start\|>(?:assistant)? ?to=[\w.:-]{1,128}<\|message)",
    ),
    Reasoning(
        "inkling",
        r"(?:<\|message_model\|>)?<\|content_thinking\|>",
        r"<\|end_message\|>|(?=<\|message_model\|>)",
        alone=r"<\|end_message\|>(?=<\|message_model\|>)",
    ),
    Reasoning("kimi_k3", r"<\|open\|>think<\|sep\|>", r"<\|close\|>think<\|sep\|>"),
    Reasoning("kimi_vl", "◁think▷", "◁/think▷"),
    Reasoning("cohere", r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    Reasoning("apertus", r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    Reasoning(
        "solar",
        r"<\|think\|>",
        r"<\|end\|>|(?=<\|(?:content|tool_call:begin|begin)\|>)",
        alone=r"<\|end\|>(?=<\|begin\|>)",
    ),
    Reasoning("plamo3", r"<\|plamo:begin_think:plamo\|>", r"<\|plamo:end_think:plamo\|>"),
    Reasoning("minicpm", r"<\|thought_start\|>", r"<\|thought_end\|>"),
    Reasoning("pangu", r"\[unused16\]", r"\[unused17\]"),
    Reasoning("hyperclova", r"<\|im_start\|>assistant/think", r"<\|im_end\|>|(?=<\|im_start\|>)"),
    Reasoning("muse", rf"{_STARTED} ?to=user<\|message\|>", _MUSE_ENDS, answer=True),
)
# The rest of a header whose beginning stood in the prompt.
HEADERS: tuple[Reasoning, ...] = (
    Reasoning("muse", r" ?to=self<\|message\|>", _MUSE_ENDS),
    Reasoning("muse", r" ?to=user<\|message\|>", _MUSE_ENDS, answer=True),
)
# Only at the beginning of the message.
FIRST_REASONING: tuple[Reasoning, ...] = (
    Reasoning(
        "thinking",
        r"<(?P<tag>thinking|thought|scratch_pad|reflection)[^<>]{0,80}>",
        r"</(?:thinking|thought|scratch_pad|reflection)>",
    ),
    Reasoning("granite32", r"Here is my thought process:", r"Here is my response:"),
    Reasoning("cohere_plan", r"(?:Plan|Reflection):(?=[^\n]{0,600}\n{1,2}(?:Action|Reflection):)", r"(?=Action:)"),
    Reasoning("react", r"Thought:", r"(?=Action:)|Final Answer:"),
    Reasoning("harmony_text", r"analysis(?=[^\W\d_])", r"assistantfinal|(?=assistantcommentary)"),
)

# Whole tokens that are never shown.
STOPS = (
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|END_OF_TURN_TOKEN|return|call|calls|end|eom|eot|role_end|observation|"
    r"user|tool_response|message_sep|stop|end_message|message_model|content_text|content|flush|START_RESPONSE|END_RESPONSE|"
    r"START_TEXT|END_TEXT|START_ACTION|END_ACTION|CHATBOT_TOKEN|START_OF_TURN_TOKEN|end_of_role|assistant)\|>"
)
TOKENS: tuple[str, ...] = (
    STOPS,
    r"<｜(?:end▁of▁sentence|Assistant|User)｜>|<\|tool_response>",
    rf"<{BAR}tool(?:▁|_| )(?:calls|outputs)(?:▁|_| )(?:begin|end){BAR}>",
    r"</s>(?=\s{0,20}[<\[])|<end_of_turn>|<start_of_turn>model\n|<start_function_response>|\[e~\[|</assistant>|<bot_end>|<eos>",
    r"</?(?:answer|response)>",
    r"<co>|</co(?::[^<>]{0,80})?>",
    r"<\|(?:open|close)\|>(?:response|message|tools)[^<]{0,80}<\|sep\|>",
    r"<\|tool_calls?_section_(?:begin|end)\|>",
    r"<\|start\|>assistant",
    r"<\|im_start\|>assistant",
    r"(?:<\|from\|>assistant\s{0,3})?<\|recipient\|>all\s{0,3}<\|content\|>",
    r"<\|begin\|>assistant|<\|begin\|>(?=[^a])",
    r"<tool_calls?>\s{0,100}</tool_calls?>",
)
# Tokens behind which the answer stands: what is shown is no thought.
ANSWERS: tuple[str, ...] = (
    rf"{_START}<\|channel\|>(?:final|commentary){_WORD}<\|message\|>",
    r"<\|(?:content_text|content|START_RESPONSE|START_TEXT)\|>",
)
LINE_TOKENS: tuple[str, ...] = (r">>>all[ \t]{0,5}\r?\n",)
# A result that the model invents after a call: the message ends there.
ECHOES: tuple[str, ...] = (
    r"<(?:tool_response|tool_result|function_results?|function_response|TOOL_RESPONSE|tool_output)>",
    rf"<{BAR}tool(?:▁|_| )outputs(?:▁|_| )begin{BAR}>",
    r"✿(?:RESULT|RETURN)✿",
    r"\[TOOL_RESULTS\]",
)
ECHO_LINES: tuple[str, ...] = (r"Observation:", r"```tool_outputs?[ \t]{0,20}\n", r"Thought:")

ORPHANS: tuple[str, ...] = tuple(each.orphan for each in REASONING if each.orphan)
ANY_CLOSER = "|".join(ORPHANS)
# A prompt that ends inside reasoning, or inside the header of the message: the reply continues it.
THINKING_PROMPT = "|".join(rf"(?:{each.opens})\Z" for each in REASONING if not each.answer)
PROMPT_ENDS = r"(?:>>>|<\|recipient\|>|<\|im_start\|>assistant)\Z"  # not its line: the text behind that is the answer


@lru_cache(maxsize=64)  # a template ends its prompts in one of a few ways
def reasoning_open_in(prompt: str) -> Reasoning | None:
    """The marks of the reasoning, or of the answer, that this prompt ends in."""
    end = prompt.rstrip()
    return next((each for each in REASONING if re.search(rf"(?:{each.opens})\Z", end)), None)
