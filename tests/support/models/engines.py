"""Model servers that are right, and others with faults that were reported of real ones: a row each.

The model behind them does what each prompt of an examination asks for; a server is what it makes of that.
"""

from __future__ import annotations

import asyncio
import json
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from app.core.provider import CallForm
from app.diagnosis.probes import NATIVE, PROBES, SAMPLES, Probe, Values, filled
from tests.support.models.upstream import CHATS, Upstream, answer, request

WINDOW = 4096
THOUGHT = "The person wants a tool, so I call it."
WORD = re.compile(r"Reply with exactly this word and nothing else: (\S+)")
COUNTED = " ".join(map(str, range(1, 101)))


@dataclass
class Turn:
    """An answer before it is encoded. `calls` have `id`, `index`, `name` and `arguments`."""

    body: dict[str, Any]
    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str | None = "stop"
    prompt_tokens: int = 0
    tokens: int = 0
    usage: bool = True
    refusal: str = ""
    status: int = 400  # of a refusal

    @property
    def streamed(self) -> bool:
        return bool(self.body["stream"])

    @property
    def prompt(self) -> str:
        user = [message for message in self.body["messages"] if message["role"] == "user"][-1]["content"]
        return user if isinstance(user, str) else str(user[0]["text"])

    @property
    def tools(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.body.get("tools", ())]

    @property
    def is_quoted(self) -> bool:
        return "Repeat exactly" in self.prompt


Bend = Callable[[Turn], Turn]


def asked_for(turn: Turn) -> tuple[Probe, Values] | None:
    taught = CallForm.FENCED if "```" in turn.body["messages"][0]["content"] else CallForm.TAGGED
    form = NATIVE if turn.tools else taught if turn.body["messages"][0]["role"] == "system" else None
    result = any(message["role"] == "tool" for message in turn.body["messages"])
    for probe in PROBES:
        for values in SAMPLES:
            if filled(probe.prompt, values) == turn.prompt and probe.form is form and bool(probe.result) == result:
                return probe, values
    return None


def written(name: str, arguments: dict[str, Any], form: CallForm | None) -> str:
    if form is CallForm.TAGGED:
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
    return f"```{name}\n" + "\n".join(map(str, arguments.values())) + "\n```"


def answered(turn: Turn) -> Turn:
    """Return the answer of a model that does as it is asked, from a server that is right."""
    length = len(json.dumps([turn.body["messages"], turn.body.get("tools", [])]))
    turn.prompt_tokens = turn.prompt.count("tree") or length // 4
    if turn.prompt_tokens > WINDOW:
        turn.refusal = f"This model's maximum context length is {WINDOW} tokens. You requested {turn.prompt_tokens}."
        return turn
    if any(not isinstance(message["content"], str) for message in turn.body["messages"]):
        turn.refusal = "This model takes no image input."
        return turn
    found, word = asked_for(turn), WORD.search(turn.prompt)
    choice = turn.body.get("tool_choice", "auto")
    calls: list[tuple[str, dict[str, Any]]] = []
    if word:
        turn.content = word[1]
    elif found:
        probe, values = found
        calls = [(ask.name, filled(dict(ask.arguments), values)) for ask in probe.asks]
        turn.content = text_for(probe, values)
        if probe.name == "cut call":
            calls = [("save_note", {"title": "x", "text": filled(probe.prompt, values).partition("exactly: ")[2]})]
        if probe.name == "choice none":
            calls = [("get_weather", {"city": values["city"]})]
        if choice == "required" or isinstance(choice, dict):
            calls, turn.content = [("get_weather", {"city": values["city"]})], ""
        if probe.form in (CallForm.TAGGED, CallForm.FENCED):
            turn.content, calls = written(*calls[0], form=probe.form), []
    if choice == "none" and calls:
        turn.content, calls = "I may not call it.", []
    turn.calls = [
        {"id": f"call_{at}{len(turn.prompt)}", "index": at, "name": name, "arguments": json.dumps(arguments)}
        for at, (name, arguments) in enumerate(calls)
    ]
    return limited(turn)


def text_for(probe: Probe, values: Values) -> str:
    if probe.name.startswith("quoted"):
        return str(filled(probe.prompt, values).partition("\n\n")[2])
    if probe.name in ("cut text", "stop words"):
        return COUNTED
    texts = {"text before": "Looking up {word}.", "after a result": "It rains.", "tool not offered": "There is none."}
    return str(filled(texts.get(probe.name, ""), values))


def limited(turn: Turn) -> Turn:
    """End the answer at its stop words and its limit, and count it."""
    for word in turn.body.get("stop", ()):
        turn.content = turn.content.partition(word)[0]
    turn.finish = "tool_calls" if turn.calls else "stop"
    room = turn.body["max_tokens"] * 3
    size = len(turn.content) + len(turn.reasoning)
    turn.tokens = 2 + (size + sum(len(call["arguments"]) + 40 for call in turn.calls)) // 3
    if turn.tokens > turn.body["max_tokens"]:
        turn.tokens, turn.finish = turn.body["max_tokens"], "length"
        turn.content = turn.content[:room]
        for call in turn.calls:
            call["arguments"] = call["arguments"][: room - 40]
    return turn


def chunks(turn: Turn) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"reasoning_content": part} for part in parts(turn.reasoning)]
    deltas += [{"content": part} for part in parts(turn.content)]
    for call in turn.calls:
        head = {"index": call["index"], "id": call["id"], "type": "function"}
        deltas.append({"tool_calls": [{**head, "function": {"name": call["name"], "arguments": ""}}]})
        written = call["arguments"]
        pieces = parts(written) if isinstance(written, str) else [written]
        deltas += [{"tool_calls": [{"index": call["index"], "function": {"arguments": one}}]} for one in pieces]
    sent: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    sent.append({"choices": [{"index": 0, "delta": {}, "finish_reason": turn.finish}]})
    return [*sent, {"choices": [], "usage": counted(turn)}] if turn.usage else sent


def parts(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


def counted(turn: Turn) -> dict[str, int]:
    return {"prompt_tokens": turn.prompt_tokens, "completion_tokens": turn.tokens}


def encoded(turn: Turn) -> bytes:
    if turn.streamed:
        return b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in chunks(turn)) + b"data: [DONE]\n\n"
    message: dict[str, Any] = {"role": "assistant", "content": turn.content or None}
    message |= {"reasoning_content": turn.reasoning} if turn.reasoning else {}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in turn.calls
        ]
    body: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": turn.finish}]}
    return json.dumps(body | ({"usage": counted(turn)} if turn.usage else {})).encode()


@asynccontextmanager
async def engine(bend: Bend) -> AsyncGenerator[Upstream, None]:
    """A model server on a real socket that bends each answer."""
    state = Upstream()
    models = answer(json.dumps({"data": [{"id": "m", "max_model_len": WINDOW}]}))

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while asked := await request(reader):
                state.asked.append(asked)
                act = models if asked.path == "/v1/models" else answer('{"error":"not found"}', 404)
                if asked.path.endswith(CHATS):
                    turn = bend(answered(Turn(asked.json)))
                    act = (
                        answer(json.dumps({"error": {"message": turn.refusal}}), turn.status)
                        if turn.refusal
                        else answer(encoded(turn))
                    )
                await act(reader, writer)
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.port = server.sockets[0].getsockname()[1]
    async with server:
        yield state


def right(turn: Turn) -> Turn:
    return turn


def thinking(turn: Turn) -> Turn:
    turn.reasoning = THOUGHT if not turn.refusal else ""
    return limited(turn) if not turn.refusal and turn.finish != "length" else turn


def thinking_in_text(turn: Turn) -> Turn:
    turn.content = f"<think>{THOUGHT}</think>{turn.content}"
    return turn


def only_text(turn: Turn) -> Turn:
    if turn.tools:
        turn.refusal = "tools are not supported by this model"
    return turn


def like_openai(turn: Turn) -> Turn:
    if isinstance(turn.body.get("tool_choice"), dict) and turn.finish == "tool_calls":
        turn.finish = "stop"
    return turn


CHANCE = count()


def by_chance(turn: Turn) -> Turn:
    """A model that never writes the same twice."""
    turn.content += f" {next(CHANCE)}" if turn.content and turn.finish == "stop" else ""
    return turn


def weak(turn: Turn) -> Turn:
    """A model that answers in prose, or calls with what is no JSON."""
    if turn.calls and turn.finish == "tool_calls" and "tool_choice" not in turn.body:
        if "weather" in turn.prompt:
            turn.calls, turn.content, turn.finish = (
                [],
                "The weather in the city is <b>nice</b>. {name: weather}",
                "stop",
            )
        else:
            turn.calls[0]["arguments"] = turn.calls[0]["arguments"][:-2]
    turn.content = turn.content.replace("<tool_call>", "<tool_call").replace("```", "``")
    return turn


def hides_thoughts(turn: Turn) -> Turn:
    turn.tokens += 200
    return turn


RIGHT: dict[str, Bend] = {
    "native": right,
    "thinking": thinking,
    "thinking in the text": thinking_in_text,
    "text only": only_text,
    "like OpenAI": like_openai,
    "never the same twice": by_chance,
    "a weak model": weak,
    "hidden thoughts": hides_thoughts,
}


def arguments(change: Callable[[str], Any], *, streamed: bool = True) -> Bend:
    def bend(turn: Turn) -> Turn:
        if turn.streamed or not streamed:
            for call in turn.calls:
                call["arguments"] = change(call["arguments"])
        return turn

    return bend


def index_zero(turn: Turn) -> Turn:
    if turn.streamed and turn.calls:
        turn.calls = [{**call, "index": 0} for call in turn.calls]
        turn.finish = "stop" if turn.finish == "tool_calls" else turn.finish
    return turn


def calls_as_text(turn: Turn) -> Turn:
    if turn.calls and turn.finish == "tool_calls":
        turn.content += "".join(f'{{"name": "{c["name"]}", "arguments": {c["arguments"]}}}' for c in turn.calls)
        turn.calls, turn.finish = [], "stop"
    return turn


def required_as_text(turn: Turn) -> Turn:
    return calls_as_text(turn) if turn.streamed and "tool_choice" in turn.body else turn


def text_beside_lost(turn: Turn) -> Turn:
    if turn.streamed and turn.calls:
        turn.content = turn.content[:8]
    return turn


def thought_leaks(turn: Turn) -> Turn:
    thinking(turn)
    if turn.streamed and turn.content:
        turn.reasoning, turn.content = turn.reasoning[:-4], f"{turn.reasoning[-4:]}\n</think>{turn.content}"
    return turn


def thought_leaks_after_result(turn: Turn) -> Turn:
    return thought_leaks(turn) if turn.body["messages"][-1]["role"] == "tool" else thinking(turn)


def choice_none(turn: Turn) -> Turn:
    if turn.body.get("tool_choice") == "none":
        call = {"id": "call_1", "index": 0, "name": "get_weather", "arguments": '{"city": "Lisbon"}'}
        return replace(turn, content="", calls=[call], finish="tool_calls")
    return turn


def without_ids(turn: Turn) -> Turn:
    turn.calls = [{**call, "id": ""} for call in turn.calls]
    return turn


def stop_at_calls(turn: Turn) -> Turn:
    turn.finish = "stop" if turn.finish == "tool_calls" else turn.finish
    return turn


def without_stop(turn: Turn) -> Turn:
    if "stop" in turn.body:
        turn.content, turn.finish = COUNTED, "stop"
        return limited(replace(turn, body={**turn.body, "stop": []}))
    return turn


def cut_calls_whole(turn: Turn) -> Turn:
    turn.finish = "tool_calls" if turn.calls else turn.finish
    return turn


def quotes_swallowed(turn: Turn) -> Turn:
    if turn.is_quoted and not turn.tools:
        turn.content = turn.content.partition("<tool_call>")[0]
    return turn


def quotes_run(turn: Turn) -> Turn:
    if turn.is_quoted and turn.tools and (call := re.search(r"<tool_call>(.*)</tool_call>", turn.content)):
        made = json.loads(call[1])
        turn.calls = [{"id": "call_1", "index": 0, "name": made["name"], "arguments": json.dumps(made["arguments"])}]
        turn.content, turn.finish = turn.content.replace(call[0], ""), "tool_calls"
    return turn


def ignores_tools(turn: Turn) -> Turn:
    if turn.tools:
        turn.prompt_tokens = len(turn.prompt) // 4 + 20
        turn.calls, turn.content, turn.finish = [], "I do not know.", "stop"
        turn.tokens = 6
    return turn


def cuts_prompt(turn: Turn) -> Turn:
    if turn.prompt_tokens > WINDOW:
        turn.refusal, turn.content, turn.prompt_tokens = "", "tree", WINDOW - 8
        return limited(turn)
    return turn


# The report of a fault, the code that names it, and the server.
FAULTY: dict[str, tuple[str, Bend]] = {
    "https://github.com/vllm-project/vllm/issues/51697": ("arguments_doubled", arguments(lambda raw: raw + raw)),
    "https://github.com/vllm-project/vllm/issues/31501": ("arguments_lost", arguments(lambda raw: "{}")),
    "https://github.com/vllm-project/vllm/issues/21046": (
        "arguments_lost",
        arguments(lambda raw: raw.replace('{"trip": {"ci', '{"trip": ')),
    ),
    "https://github.com/vllm-project/vllm/pull/54964": ("arguments_encoded", arguments(json.dumps, streamed=False)),
    "https://github.com/BerriAI/litellm/pull/37792": (
        "arguments_encoded",
        arguments(lambda raw: json.loads(raw) if raw.endswith("}") else raw),
    ),
    "https://github.com/ollama/ollama/issues/16212": ("index_doubled", index_zero),
    "https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1794": ("calls_in_text", calls_as_text),
    "https://github.com/sgl-project/sglang-jax/issues/1275": ("calls_in_text", required_as_text),
    "https://github.com/sgl-project/sglang/issues/34214": ("text_lost", text_beside_lost),
    "https://github.com/tenstorrent/tt-inference-server/issues/4386 (thoughts)": ("thought_in_text", thought_leaks),
    "https://github.com/vllm-project/vllm/issues/39885": ("thought_in_text", thought_leaks_after_result),
    "https://github.com/tenstorrent/tt-inference-server/issues/4386 (none)": ("choice_ignored", choice_none),
    "https://github.com/ggml-org/llama.cpp/issues/12279": ("id_wrong", without_ids),
    "https://github.com/Blaizzy/mlx-vlm/pull/1014": ("finish_wrong", stop_at_calls),
    "https://github.com/Blaizzy/mlx-vlm/issues/1044": ("stop_ignored", without_stop),
    "https://github.com/vllm-project/vllm/issues/58228": ("cut_hidden", cut_calls_whole),
    "https://github.com/raullenchai/Rapid-MLX/pull/1766": ("reply_swallowed", quotes_swallowed),
    "https://github.com/aosama/astronomical/issues/346": ("quote_run", quotes_run),
    "https://github.com/abetlen/llama-cpp-python/issues/1856": ("tools_ignored", ignores_tools),
    "Ollama cuts prompts that are longer than num_ctx": ("prompt_cut", cuts_prompt),
}


def only_streamed(change: Callable[[Turn], None]) -> Bend:
    def bend(turn: Turn) -> Turn:
        if turn.streamed:
            change(turn)
        return turn

    return bend


def changed(**fields: Any) -> Callable[[Turn], None]:
    def change(turn: Turn) -> None:
        for name, value in fields.items():
            setattr(turn, name, value)

    return change


def merges_calls(turn: Turn) -> None:
    if len(turn.calls) > 1:
        turn.calls = [{**turn.calls[0], "arguments": "".join(call["arguments"] for call in turn.calls)}]


def loses_second_call(turn: Turn) -> None:
    turn.calls = turn.calls[:1]


def loses_names(turn: Turn) -> None:
    turn.calls = [{**call, "name": ""} for call in turn.calls]


def no_limit(turn: Turn) -> Turn:
    if turn.body["max_tokens"] > 24:
        return turn
    return limited(replace(turn, content="" if turn.calls else COUNTED, body={**turn.body, "max_tokens": 9999}))


def answers_as_reasoning(turn: Turn) -> Turn:
    return replace(turn, reasoning=turn.content, content="")


def calls_as_reasoning(turn: Turn) -> Turn:
    if turn.calls and turn.finish == "tool_calls":
        written = [
            f'<tool_call>{{"name": "{c["name"]}", "arguments": {c["arguments"]}}}</tool_call>' for c in turn.calls
        ]
        return replace(turn, reasoning="\n".join(["I call it.", *written]), calls=[], finish="stop")
    return turn


def no_calls_required(turn: Turn) -> Turn:
    if turn.body.get("tool_choice", "none") != "none":
        return replace(turn, calls=[], content="Hello!", finish="stop")
    return turn


def calls_unasked(turn: Turn) -> Turn:
    call = re.search(r"<tool_call>\s*(.*?)\s*</tool_call>", turn.content, re.DOTALL)
    if not call or turn.tools or turn.is_quoted:
        return turn
    made = json.loads(call[1])
    calls = [{"id": "call_1", "index": 0, "name": made["name"], "arguments": json.dumps(made["arguments"])}]
    return replace(turn, content="", calls=calls, finish="tool_calls")


def blind(turn: Turn) -> Turn:
    if "colour" in turn.prompt:
        return limited(replace(turn, refusal="", content="Red", prompt_tokens=40))
    return turn


def marks_left(turn: Turn) -> Turn:
    turn.content += "</tool_call>" if turn.calls else ""
    return turn


def mixing() -> Bend:
    seen: list[str] = []

    def bend(turn: Turn) -> Turn:
        if word := WORD.search(turn.prompt):
            seen.append(word[1])
            turn.content = seen[-2:][0]
        return turn

    return bend


def failing(turn: Turn) -> Turn:
    return replace(turn, refusal="Failed to parse it.", status=500) if turn.calls and turn.streamed else turn


def crowded() -> Bend:
    taken = count()

    def bend(turn: Turn) -> Turn:
        at_once = bool(re.search(r"kestrel4711\d$", turn.prompt))
        return replace(turn, refusal="Too many.", status=429) if at_once and next(taken) > 3 else turn

    return bend


# The same for faults without a report, and for what is not a matter of calls: each defect has a server.
OTHERS: dict[str, tuple[str, Bend]] = {
    "merges calls": ("arguments_doubled", only_streamed(merges_calls)),
    "loses the second call": ("calls_lost", only_streamed(loses_second_call)),
    "loses names": ("name_lost", only_streamed(loses_names)),
    "escapes twice": ("arguments_changed", arguments(lambda raw: raw.replace("\\u", "\\\\u"))),
    "loses the last brace": ("arguments_lost", arguments(lambda raw: raw[:-1])),
    "knows no limit": ("limit_ignored", no_limit),
    "answers as reasoning": ("answer_in_thought", answers_as_reasoning),
    "calls as reasoning": ("calls_in_thought", calls_as_reasoning),
    "requires no call": ("choice_ignored", no_calls_required),
    "calls unasked": ("call_unasked", calls_unasked),
    "blind": ("picture_ignored", blind),
    "leaves marks": ("markup_left", marks_left),
    "mixes answers": ("replies_mixed", mixing()),
    "counts nothing": ("usage_missing", only_streamed(changed(usage=False))),
    "fails at calls": ("broken", failing),
    "takes four at a time": ("busy", crowded()),
    "streams less": ("stream_differs", only_streamed(changed(content="..."))),
}
