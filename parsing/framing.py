"""Framing that belongs to the wire, not to the message: reasoning marks, stop tokens, wrappers, echoes of results."""

from __future__ import annotations

from dataclasses import dataclass

BAR = "[｜|]{1,4}"
_STARTED = r"<\|start\|>(?:assistant)?"
_START = rf"(?:{_STARTED})?"
_MUSE_ENDS = r"<\|eom\|>|<\|eot\|>|(?=<\|start\|>)"
_WORD = r"(?:\s{0,3}(?:<\|constrain\|>)?\s{0,3}\w{1,20})?"


@dataclass(frozen=True)
class Reasoning:
    """The marks around reasoning. An `answer` is text to the user instead, in which markup is quoted."""

    name: str
    opens: str
    shuts: str
    answer: bool = False


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
    ),
    Reasoning("muse", rf"{_STARTED} ?to=self<\|message\|>", _MUSE_ENDS),
    Reasoning(
        "inkling", r"(?:<\|message_model\|>)?<\|content_thinking\|>", r"<\|end_message\|>|(?=<\|message_model\|>)"
    ),
    Reasoning("kimi_k3", r"<\|open\|>think<\|sep\|>", r"<\|close\|>think<\|sep\|>"),
    Reasoning("kimi_vl", "◁think▷", "◁/think▷"),
    Reasoning("cohere", r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    Reasoning("apertus", r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    Reasoning("solar", r"<\|think\|>", r"<\|end\|>|(?=<\|(?:content|tool_call:begin|begin)\|>)"),
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
    rf"{_START}<\|channel\|>(?:final|commentary){_WORD}<\|message\|>|<\|start\|>assistant",
    r"<\|im_start\|>assistant",
    r"(?:<\|from\|>assistant\s{0,3})?<\|recipient\|>all\s{0,3}<\|content\|>",
    r"<\|begin\|>assistant|<\|begin\|>(?=[^a])",
    r"<tool_calls?>\s{0,100}</tool_calls?>",
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

ANY_CLOSER = "|".join(each.shuts for each in REASONING if "(?=" not in each.shuts)
# A prompt that ends inside reasoning, or inside the header of the message: the reply continues it.
THINKING_PROMPT = r"<(?:seed:|mm:|longcat_|ifm\|)?think[\w:-]*>$|\[THINK\]$|◁think▷$"
PROMPT_ENDS = r"(?:>>>|<\|recipient\|>|<\|im_start\|>assistant)\Z"  # not its line: the text behind that is the answer
