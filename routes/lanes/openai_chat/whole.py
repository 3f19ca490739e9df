"""An answer of Chat Completions that is not streamed."""

from __future__ import annotations

from typing import Any

from routes.lanes.answer import Answer, HandedCall, OwnCall, Words
from routes.lanes.event_text import arguments_text
from routes.lanes.lane import Turn
from routes.lanes.openai_chat.answer import EMPTY_LINE, RunningText, completion_id, finish_reason, usage_body


def whole_chat(answer: Answer, turn: Turn) -> dict[str, Any]:
    echo, handed = turn.request.echo, answer.handed
    legacy = echo.get("legacy", False)
    reason = finish_reason(answer.reason, calls=len(handed), cut=answer.cut, declined=answer.declined, legacy=legacy)
    message: dict[str, Any] = {"role": "assistant", "content": _content(answer)}
    if reasoning := _reasoning(answer):
        message |= {"reasoning_content": reasoning, "reasoning": reasoning}
    if handed:
        message |= {"function_call": _function(handed[0])} if legacy else {"tool_calls": [*map(_call, handed)]}
    body: dict[str, Any] = {
        "id": completion_id(turn),
        "object": "chat.completion",
        "created": turn.created,
        "model": turn.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": usage_body(answer.usage, answer.used.cached),
    }
    return body | {"dragoman": _own_work(answer, turn)} if echo.get("events") else body


def _content(answer: Answer) -> str | None:
    """The text, as a stream sends it; None beside calls, if there is none."""
    text, pieces, last = RunningText(), list[str](), 1
    for item in answer.items:
        if isinstance(item, Words) and item.round != last:
            text.part()
            last = item.round
        match item:
            case Words(thought=True):
                text.think()
            case Words():
                pieces.append(text.add(item.text))
            case HandedCall():
                text.part()
    if answer.round != last:
        text.part()
    calls = bool(answer.handed)
    pieces.append(text.end(calls=calls))
    return "".join(pieces) or (None if calls else "")


def _reasoning(answer: Answer) -> str:
    """The thoughts, as a stream sends them: an empty line where a round, text or a call stands between."""
    pieces, last = list[str](), None
    for item in answer.items:
        match item:
            case Words(thought=True, round=number):
                pieces += [EMPTY_LINE] if pieces and last != number else []
                pieces.append(item.text)
                last = number
            case Words() | HandedCall():
                last = None
    return "".join(pieces)


def _call(call: HandedCall) -> dict[str, Any]:
    return {"id": call.call, "type": "function", "function": _function(call)}


def _function(call: HandedCall) -> dict[str, str]:
    return {"name": call.name, "arguments": call.written or arguments_text(call.arguments)}


def _own_work(answer: Answer, turn: Turn) -> dict[str, Any]:
    calls = [
        {"call": one.call, "name": one.name, "arguments": one.arguments, "ok": one.ok, "result": one.result}
        for one in answer.items
        if isinstance(one, OwnCall)
    ]
    return {"run": turn.run, "session": turn.session, "calls": calls}
