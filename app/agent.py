"""The agent: model, calls, results, again, as one async generator of events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from secrets import token_hex

from app.conversation import Conversation
from app.events import (
    AgentEvent,
    MessageAdded,
    Notice,
    RoundStarted,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolProgress,
    ToolRejected,
    ToolStarted,
    Usage,
)
from app.inbox import Inbox
from app.messages import AskedCall, Message
from app.provider import ModelRequest, Provider, ProviderFailed, Used
from app.reply import Reply
from tools.tool import Context, Progress, Result
from tools.toolbox import Toolbox

MAX_TEXT = 200_000  # characters of an answer that the terminal event repeats
CHARACTERS_PER_TOKEN = 4  # a rough estimate, for servers that report no usage


def new_call_id() -> str:
    """Nine letters and digits: the strictest form a chat template asks for (Mistral's)."""
    return f"c{token_hex(4)}"


def estimate(request: ModelRequest, reply: Reply) -> Used:
    asked = sum(len(message.text) for message in request.whole())
    return Used(asked // CHARACTERS_PER_TOKEN, reply.characters // CHARACTERS_PER_TOKEN)


@dataclass(slots=True)
class Account:
    """What a run has used so far; its terminal event reports it, whatever ends the run."""

    rounds: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    measured: bool = True
    text: str = ""

    def add(self, used: Used, *, measured: bool) -> Usage:
        self.prompt_tokens += used.prompt_tokens
        self.completion_tokens += used.completion_tokens
        self.measured = self.measured and measured
        return Usage(used.prompt_tokens, used.completion_tokens, self.prompt_tokens, self.completion_tokens, measured)

    def finished(self, reason: str) -> RunFinished:
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "measured": self.measured,
        }
        return RunFinished(reason, self.text[:MAX_TEXT], self.rounds, self.calls, usage)


@dataclass(slots=True)
class Agent:
    """Everything one run works with. `opening` gives the messages in front of the conversation, each round the same."""

    provider: Provider
    toolbox: Toolbox
    context: Context
    opening: Callable[[], Sequence[Message]]
    max_rounds: int
    may_go_on: Callable[[], None]  # raises Paused; asked before each model request and each tool
    inactivity_s: float | None = None
    new_id: Callable[[], str] = new_call_id
    account: Account = field(default_factory=Account)

    async def run(self, run: str, conversation: Conversation, inbox: Inbox) -> AsyncGenerator[AgentEvent, None]:
        """All events of a run; the last one is RunFinished. Raises ProviderFailed, Paused, StoreFailed."""
        tools = [tool.name for tool in self.toolbox.offered]
        limits = {"max_rounds": self.max_rounds, "tool_time_limit_s": self.context.time_limit_s}
        yield RunStarted(run, conversation.session, self.provider.model, tools, limits)
        for number in range(1, self.max_rounds + 1):
            self.account.rounds = number
            yield RoundStarted(number)
            reply = Reply(self.toolbox.schemas, fences=lambda: self.provider.teach_fences, new_id=self.new_id)
            async with aclosing(self._listen(reply, conversation)) as heard:
                async for event in heard:
                    yield event
            async with aclosing(self._answer(reply, conversation)) as answered:
                async for event in answered:
                    yield event
            steered = inbox.take() if reply.calls else inbox.take_or_close()
            for text in steered:
                conversation.append(Message("user", text))
                yield MessageAdded(text)
            if not reply.calls and not steered:
                yield self.account.finished("answered")
                return
        yield self.account.finished("round_limit")

    async def _listen(self, reply: Reply, conversation: Conversation) -> AsyncGenerator[AgentEvent, None]:
        """The model's stream as events; what it said is in the history afterwards, however the stream ends."""
        self.may_go_on()
        tools, limit_s = self.toolbox.offered, self.inactivity_s
        request = ModelRequest(conversation.messages, tools, opening=self.opening, inactivity_s=limit_s)
        try:
            async with aclosing(self.provider.stream(request)) as pieces:
                async for piece in pieces:
                    for event in reply.add(piece):
                        yield event
        except ProviderFailed:
            for event in reply.end():  # what it had said is still shown
                yield event
            raise
        else:
            for event in reply.end():
                yield event
        finally:
            self.account.text = reply.shown
            if reply.characters or reply.calls:
                conversation.append(reply.message(cut=reply.stopped is None))
            # Here, because a request that is cut off has cost tokens too.
            usage = self.account.add(reply.used or estimate(request, reply), measured=reply.used is not None)
        yield usage
        if reply.stopped == "length":
            yield Notice("cut", "The model reached its token limit in the middle of this answer.")

    async def _answer(self, reply: Reply, conversation: Conversation) -> AsyncGenerator[AgentEvent, None]:
        """Every call gets exactly one result under its own id, in the order called."""
        for call in reply.calls:
            self.account.calls += 1
            if call.id in reply.refused:
                conversation.answer(call, reply.refused[call.id])
                continue
            if objection := self.toolbox.objection(call.name, call.arguments):
                yield ToolRejected(objection, call.id, call.name)
                conversation.answer(call, objection)
                continue
            async with aclosing(self._run_tool(call, conversation)) as events:
                async for event in events:
                    yield event

    async def _run_tool(self, call: AskedCall, conversation: Conversation) -> AsyncGenerator[AgentEvent, None]:
        await conversation.stored()  # a tool may begin only when the store knows of its call
        self.may_go_on()
        conversation.begin(call)
        started = time.monotonic()
        yield ToolStarted(call.id, call.name, call.arguments, call.dialect)
        context = replace(self.context, session=conversation.session)
        async with aclosing(self.toolbox.run(call.name, call.arguments, context)) as seen:
            async for step in seen:
                match step:
                    case Progress(elapsed_s, tail, lines, size):
                        yield ToolProgress(call.id, round(elapsed_s, 2), list(tail), lines, size)
                    case Result(ok, text, exit_code):
                        conversation.answer(call, text)
                        duration = round(time.monotonic() - started, 3)
                        yield ToolFinished(call.id, call.name, ok, text, duration, exit_code)
