"""The stories of what comes over the wire from servers of models, and of servers that fail."""

from __future__ import annotations

from tests import ROOT
from tests.support.golden.playing import Story
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, answer, hang_up, stream

PROVIDERS = ROOT / "fixtures" / "providers"


def recorded(name: str) -> Act:
    return stream((PROVIDERS / name).read_bytes())


def whole(text: str) -> Act:
    return stream(says(text), chunk(finish="stop"), DONE)


WIRES: dict[str, Story] = {
    "wire_openai_text": Story(
        "A stream of an OpenAI-compatible server, as it comes over HTTP.",
        acts=[[recorded("openai/text.sse")]],
    ),
    "wire_openai_reasoning_and_call": Story(
        "Reasoning and a native call of an OpenAI-compatible server, and the answer to its result.",
        acts=[[recorded("deepseek/reasoning_and_call.sse"), recorded("deepseek/text.sse")]],
    ),
    "wire_anthropic_thinking_and_tool": Story(
        "Thinking and a tool use of Anthropic's Messages, and the answer to its result.",
        acts=[[recorded("anthropic/thinking_and_tool.sse"), recorded("anthropic/text.sse")]],
        format="anthropic",
    ),
    "wire_error_in_stream": Story(
        "An OpenAI-compatible server that fails in the middle of its stream, and goes on when asked again.",
        acts=[[recorded("openai/error_in_stream.sse"), whole(" And the rest.")]],
    ),
    "retry": Story(
        "A server that is busy before its first token: the request is retried.",
        acts=[[answer('{"error": {"message": "Overloaded."}}', 503), whole("Here I am.")]],
    ),
    "fallback": Story(
        "A model that is gone: another one answers.",
        acts=[[answer('{"error": {"message": "There is no such model."}}', 404)], [whole("I stand in.")]],
    ),
    "fallback_in_answer": Story(
        "A stream that breaks in the middle of an answer and cannot be had again: another model ends it.",
        acts=[
            [stream(says("Half an "), then=hang_up), *[answer('{"error": {"message": "Gone."}}', 404)] * 3],
            [whole("answer.")],
        ],
    ),
}
