"""The discipline of one run: asked before each round, told of each reply and its results.

           +---- calls, a nudge, a message of the person ----+
           v                                                 |
plan ---> round with tools -------------------------------> saw ---> answered
           |   a limit is near, or the model goes in circles
           +-> last round, without tools ------------------> saw ---> that limit's reason
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from app.core.events import Notice
from app.core.messages import AskedCall, Message
from app.core.provider import FallbackUsed, ProviderFailed
from app.runs.discipline.limits import ROUND_LIMIT, TOKEN_LIMIT, Limits
from app.runs.discipline.loop_detector import LoopDetector
from app.runs.discipline.reminders import (
    AGAIN,
    GO_ON,
    LAST,
    LOOPING,
    MOST_BREAKS,
    MOST_NUDGES,
    NUDGED,
    failing,
    goes_on,
    nearly_over,
    times_sent,
)
from app.transcript.reply import Reply
from app.transcript.round_plan import RoundPlan
from app.transcript.run_totals import RunTotals
from tools.base.rights import CLIENT_TOOLS

ANSWERED, LOOP_BROKEN, NO_ANSWER = "answered", "loop_broken", "no_answer"
LEAST_KEPT_S = 5.0  # in less time no model answers
LEAST_TOOL_S = 1.0
MORE_ROUNDS = 2  # that a run gets whose work was found wanting
NOT_RUN = "This call was not run: no tools can be used any more. Answer from what you know."
BROKEN_OFF = "This call was not run: the answer that it stands in broke off. Make it again if it is still needed."
TOO_MANY = "This call was not run: this run may make {limit} calls, and they are made. Answer from what you know."


class LimitEnforcer:
    """One per run. `verify`: what it did is to be checked before it ends."""

    def __init__(self, limits: Limits, *, verify: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.verify = verify
        self._clock = clock
        self._ends_at: float | None = None
        self._waiting_since: float | None = None  # for a person
        self._waiters = 0  # calls that do
        self._loop_detector: LoopDetector | None = None  # made with the first calls
        self._loops = False
        self._nudge = ""
        self._breaks = 0  # answers in a row that broke off
        self._broken = False  # the last one did
        self.successor: FallbackUsed | None = None  # the model that goes on with it, and with the run
        self.resumes = False  # from its last word: no call of it is to be made again
        self.so_far = ""  # what was said in them
        self._answered = ""  # as far as it is surely no reasoning
        self._unsure = ""  # the rest of it, before redaction
        self.wanting = ""  # what a check found
        self.over: str | None = None  # why the run has ended
        self._most_rounds = limits.rounds
        self._offers = True
        self._hands_over = False

    def wait_for_client(self) -> None:
        """End the run after this round: calls have been handed to the client."""
        self._hands_over = True

    def enter(self, left_s: float) -> None:
        """The run begins, or goes on after a restart, and will be stopped in `left_s`."""
        self._ends_at = self._clock() + left_s

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the run waits for a person its time stands still; several of its calls may wait at the same time."""
        self._waiting_since = self._clock() if self._waiting_since is None else self._waiting_since
        self._waiters += 1
        try:
            yield
        finally:
            self._waiters -= 1
            if not self._waiters:
                if self._ends_at is not None:
                    self._ends_at += self._clock() - self._waiting_since
                self._waiting_since = None

    @property
    def stands_still(self) -> bool:
        """Return True while the run, or a helper of it, waits for a person."""
        return self._waiting_since is not None

    def plan(self, totals: RunTotals, *, offers: bool = True) -> RoundPlan:
        """The next round. `offers`: there are tools that could be used in it."""
        self._offers = offers
        continues = self.has_broken_off()
        begins_anew = self.successor is not None and not self.so_far.strip()  # nothing is there to go on with
        go_on = GO_ON if continues and not begins_anew else ""
        resumed = go_on if go_on and self.successor else None
        if not continues:
            self._breaks = 0
            self.resumes = False
            self.so_far = ""
            self._answered = ""
            self._unsure = ""
        if ends := self._last(totals):
            broken = (Notice(LOOP_BROKEN, LOOPING),) if ends == LOOP_BROKEN else ()
            last = filter(None, (go_on, self.wanting, LAST if offers else ""))  # behind its reply
            return RoundPlan(tools=False, notes=tuple(last), notices=broken, ends=ends, go_on=resumed)
        notes, notices = nearly_over(self.limits.nearly(totals, self._elapsed_s()), totals)
        failed, failures = failing(totals)
        nudge, self._nudge = self._nudge, ""
        nudged = (Notice("nudge", NUDGED),) if nudge else ()
        sentences = filter(None, (go_on, self.wanting, nudge, *failed, *notes))
        return RoundPlan(notes=tuple(sentences), notices=(*nudged, *failures, *notices), go_on=resumed)

    def go_on(self, plan: RoundPlan, reply: Reply, failure: ProviderFailed, totals: RunTotals) -> Notice | None:
        """After an answer that broke off: what to tell, if the run goes on with another round, twice in a row.

        Where another model goes on with the answer, that is the same round: it may be the last.
        """
        self.successor = failure.successor
        may = self.successor or (failure.retryable and not plan.ends)
        if not may or not reply.has_started or not self.may_go_on(totals):
            return None
        totals.rounds -= 1 if self.successor else 0
        self.resumes = bool(self.successor and totals.text.strip()) and not reply.calls
        self._breaks = self._breaks + 1
        self._broken = True
        self.so_far = totals.text
        if reply.may_be_thought:
            self._unsure += reply.shown
        else:
            self._answered = totals.text
            self._unsure = ""
        return goes_on(failure, self.so_far)

    def may_go_on(self, totals: RunTotals) -> bool:
        """Return True if the run has room for another part of an answer."""
        return self._breaks < MOST_BREAKS and not self.limits.spent(totals)

    def has_broken_off(self) -> bool:
        """Return True, once, after an answer that broke off and goes on."""
        broken, self._broken = self._broken, False
        return broken

    def break_off(self, so_far: str) -> None:
        """The last answers, with these words, broke off with their server: the next request goes on from there."""
        self._broken = True
        self.resumes = False
        self.so_far = so_far
        self._answered = so_far
        self._unsure = ""

    def take_up(self, earlier: Sequence[Message], before: RunTotals) -> RoundPlan:
        """Return the plan of a round that an earlier server began, after these messages and totals of the run."""
        for made, texts, prose in rounds_of(earlier):
            self._loop_detector = self._loop_detector or LoopDetector()
            self._loops = self._loop_detector.detects(made, texts, prose=prose)
        ends = self._last(before)
        return RoundPlan(tools=ends is None, ends=ends)

    def take_back(self) -> str:
        """Return what was shown of a thought that broke off: the reply that goes on from there has ended it."""
        thought, self._unsure, self.so_far = self._unsure, "", self._answered
        return thought

    def refusals(self, plan: RoundPlan, reply: Reply, totals: RunTotals) -> Mapping[str, str]:
        """The calls of a reply that are not run, and why; those that were not understood are refused already."""
        calls = [call.id for call in reply.calls]
        why = BROKEN_OFF if self._broken else NOT_RUN
        if not self._broken and plan.tools and not self.limits.spent(totals):
            may = self.limits.calls - totals.calls if self.limits.calls else len(calls)
            calls, why = calls[max(0, may) :], TOO_MANY.format(limit=self.limits.calls)
        return {call: why for call in calls if call not in reply.refused}

    def reason_to_end(
        self,
        plan: RoundPlan,
        reply: Reply,
        results: Sequence[Message],
        totals: RunTotals,
        *,
        steered: bool = False,
        announces: bool = False,
    ) -> str | None:
        """Return why the run ends after a round, or None if it continues.

        `steered`: a new message came. `announces`: the reply only announces a call.
        """
        if self._hands_over:
            return CLIENT_TOOLS
        if self._broken:
            return None
        if plan.ends:
            untouched = totals.calls == 0 and not steered  # then nothing was cut short
            return ANSWERED if untouched else self.ends(plan.ends, totals, steered=steered)
        if self.limits.spent(totals) and (reply.calls or steered):
            return TOKEN_LIMIT
        if steered:
            self._begin_again()
            return None
        if reply.calls:
            texts = {message.call: message.text for message in results if message.call}
            self._loop_detector = self._loop_detector or LoopDetector()
            self._loops = self._loop_detector.detects(reply.calls, texts, prose=bool(reply.prose.strip()))
            return None
        if announces:
            self._nudge = AGAIN
            return None
        return ANSWERED

    def ends(self, reason: str, totals: RunTotals, *, steered: bool) -> str | None:
        """The same reason, unless the person said something more that can still be answered."""
        if not steered or reason not in (ANSWERED, LOOP_BROKEN, NO_ANSWER):
            return reason
        self._begin_again()
        if self.limits.spent(totals):
            return TOKEN_LIMIT
        return ROUND_LIMIT if totals.rounds >= self.limits.rounds else None

    def checks(self, reason: str, totals: RunTotals) -> bool:
        """Return True if the verifier should check the run now: once, unless a limit has cut the run short."""
        checked = any(code == "verifier" for code, _ in totals.notices)
        return self.verify and reason == ANSWERED and not checked and self._last(totals) is None

    def found_wanting(self, why: str, totals: RunTotals) -> None:
        """A check has failed: the run gets a few rounds more."""
        self.wanting = why
        self._most_rounds = min(self._most_rounds, totals.rounds + MORE_ROUNDS)

    def _last(self, totals: RunTotals) -> str | None:
        """The reason why the next round is the last; None if it is not."""
        if self._loops:
            return LOOP_BROKEN
        if over := self.limits.over(totals, self._elapsed_s()):
            return over
        return ANSWERED if totals.rounds + 1 >= self._most_rounds else None

    def _begin_again(self) -> None:
        """The person's words may change everything."""
        self._loop_detector = None
        self._loops = False
        self._nudge = ""
        self.wanting = ""
        self._most_rounds = self.limits.rounds

    def may_nudge(self, reply: Reply, totals: RunTotals) -> bool:
        """Return True if the model can be asked to make the calls that a reply without calls may announce."""
        if reply.calls or self._broken or self._hands_over or not self._offers:
            return False
        return times_sent(Notice("nudge", NUDGED), totals) < MOST_NUDGES and self._last(totals) is None

    def left_s(self) -> float | None:
        """Until the run is stopped, if it has a time limit; as much as there was when it began to wait for a person."""
        now = self._clock() if self._waiting_since is None else self._waiting_since
        return self._ends_at - now if self._ends_at is not None else None

    def tool_left_s(self) -> float:
        """Return the seconds a tool may take so that enough is left for a last round."""
        kept_s = self.limits.kept_s
        if self._ends_at is None or kept_s < LEAST_KEPT_S:
            return math.inf
        return max(LEAST_TOOL_S, self._ends_at - self._clock() - kept_s)

    def _elapsed_s(self) -> float:
        return self.limits.seconds - (self._ends_at - self._clock()) if self._ends_at is not None else 0.0


def rounds_of(messages: Sequence[Message]) -> Iterator[tuple[Sequence[AskedCall], dict[str, str], bool]]:
    """Yield the calls of each reply with their results, and if there was prose beside them."""
    texts = {message.call: message.text for message in messages if message.call}
    for message in messages:
        if message.calls:
            results = {call.id: texts[call.id] for call in message.calls if call.id in texts}
            yield message.calls, results, bool((message.shown or "").strip())
