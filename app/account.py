"""What a run has used so far: its terminal event reports it, whatever ends the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from app.events import RoundStarted, RunFinished, ToolRejected, ToolStarted, Usage
from app.messages import AskedCall
from app.provider import Used
from app.store import EventRow

MAX_TEXT = 200_000  # characters of an answer that the terminal event repeats


@dataclass(slots=True)
class Account:
    """Counted in rounds, calls and tokens; `measured` until something had to be estimated."""

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


def account_of(events: Sequence[EventRow], unanswered: Sequence[AskedCall]) -> Account:
    """The account of a run that goes on, from its log; `unanswered` calls are counted when they are answered."""
    account, calls = Account(), set[str]()
    for row in events:
        if row.type in (RoundStarted.type, Usage.type, ToolStarted.type, ToolRejected.type):
            fields = json.loads(row.data)
            match row.type:
                case RoundStarted.type:
                    account.rounds = fields["round"]
                case Usage.type:
                    account.prompt_tokens = fields["total_prompt_tokens"]
                    account.completion_tokens = fields["total_completion_tokens"]
                    account.measured = account.measured and fields["measured"]
                case _:
                    calls.add(fields.get("call", ""))
    account.calls = len(calls - {call.id for call in unanswered})
    return account
