"""The recorder of one run: asked for by the setting `record` or by the request; without it nothing of this exists.

It records the world that the run begins in, each model request and its answer, and what was decided. Rows go
to the store with the run's events, in the same transactions. Texts of the conversation are not repeated: its messages
are in the store, so that a request is a list of digests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from itertools import takewhile

import msgspec
from msgspec import Struct, field

from app.budget.metered_request import code_of
from app.context.compaction.replay import CompactedHistory
from app.context.view import Fitted
from app.core.data_delimiters import without_codes
from app.core.messages import PICTURES, AskedCall, Message, as_json
from app.core.provider import CallForm, ModelRequest, Provider
from app.models.tokens.counter import TokenCounter
from app.policy.decisions import DECISIONS
from app.policy.grants import Grant
from app.policy.label_limits import NO_LIMITS
from app.policy.permits.permissions import Permission
from app.policy.policy_context import PolicyContext
from app.runs.recording import parts
from app.runs.recording.stand_ins import StandIns
from app.runs.recording.tape import RequestTape
from app.runs.recording.values import grant_fields, model_part, permission_fields
from app.storage.changes import Change
from tools.toolbox import Allow, Decision

MOST_BYTES = 16 << 20  # of one run, compressed; what follows is not recorded
DIGEST = 6  # bytes

HeldMessage = tuple[str, int, str]
"""The role, the characters and a digest of a message."""
Keep = Callable[[str, object], None]
"""Takes a part of the recording, of a kind."""
Describe = Callable[[], Awaitable[parts.Begin]]
"""Describes the world of the run as it begins. Raises StoreFailed."""


class RunRecorder(Struct):
    """`hidden` takes secrets out of texts, `new_id` draws ids of calls."""

    hidden: StandIns
    describe: Describe
    new_id: Callable[[], str]
    _keep: Keep | None = None
    _model: parts.ModelPart | None = None
    _began: float = field(default_factory=time.monotonic)
    _since: parts.Since = field(default_factory=parts.Since)
    _counting: parts.Counting | None = None
    _opening: tuple[Sequence[Message], CallForm, bool] | None = None
    _openings: set[str] = field(default_factory=set)
    _tools: list[str] | None = None
    _messages: list[HeldMessage] = field(default_factory=list)
    _digests: dict[int, tuple[Message, HeldMessage]] = field(default_factory=dict)
    _counted: set[str] = field(default_factory=set)

    def enter(self, keep: Keep) -> None:
        """Begin: parts are given to `keep`."""
        self._keep = keep

    async def begin(self) -> None:
        """Record the world, once its tools are known. Raises StoreFailed."""
        world = await self.describe()
        self._model = world.model
        self._put(parts.BEGIN, self.hidden.hidden_in(msgspec.to_builtins(world)))

    def entered(self, history: CompactedHistory) -> None:
        """Take the history of the session as the run finds it. Without gaps it follows from the messages."""
        if history.lacks_messages:
            self._put(parts.HISTORY, parts.HistoryPart(history.state))

    def draw_id(self) -> str:
        """Return a new id of a call, which is kept."""
        self._since.ids.append(drawn := self.new_id())
        return drawn

    def fitted(
        self,
        fitted: Fitted,
        opening: Sequence[Message],
        form: CallForm,
        *,
        window: int,
        taught: bool,
        removed: Sequence[Message] = (),
    ) -> None:
        """Take the state of the counter that the next request of a round was fitted with, and the prompt's text.

        `removed` are messages that were counted, some of which the request has no more.
        """
        counter = fitted.counter
        whole, texts = counter.scales
        counts = _new_counts(counter, [*opening, *fitted.request.messages, *removed], self._counted)
        described = counter.described(fitted.request.tools)
        self._counting = parts.Counting(window, whole, texts, counts, described)
        self._opening = opening, form, taught

    def decided(self, call: AskedCall, decision: Decision, policy: PolicyContext) -> None:
        limits = None if policy.labels == NO_LIMITS else msgspec.to_builtins(policy.labels, order="sorted")
        by, why = ("", "") if isinstance(decision, Allow) else (decision.by, decision.reason)
        name, why = self.hidden.hidden(call.name), self.hidden.hidden(why)
        decided = parts.Decided(call.id, name, DECISIONS[type(decision)], by=by, why=why, limits=limits)
        self._since.decided.append(decided)

    def granted(self, grants: Sequence[Grant]) -> None:
        self._since.grants.append([grant_fields(one) for one in grants if one.in_force])

    def permitted(self, permissions: Sequence[Permission]) -> None:
        self._since.permissions.append(permission_fields(permissions))

    def finished(self, call: AskedCall, text: str) -> None:
        """Take a result as its tool has given it, if it holds secrets: of others the store has all."""
        if (hidden := self.hidden.hidden(text)) != text:
            self._since.results[call.id] = hidden

    def begin_request(self, request: ModelRequest, provider: Provider, *, in_round: bool) -> RequestTape:
        at, held = round(time.monotonic() - self._began, 3), self._held(request, in_round=in_round)
        part = parts.RequestPart(at, held, [], parts.Since(), side=not in_round)
        if in_round:
            part.counting, self._counting = self._counting, None
            self._add_opening(part)

        def end(tape: RequestTape, error: BaseException | None) -> None:
            part.since, self._since = self._since, parts.Since()
            code = parts.LATE if isinstance(error, TimeoutError) else code_of(error)
            part.items = tape.items(self.hidden, error, code)
            if in_round and (now := model_part(provider)) != self._model:
                part.model = self._model = now
            self._put(parts.REQUEST, part)

        return RequestTape(end)

    def close(self) -> None:
        """Store what was decided since the last request."""
        if self._since != parts.Since():
            since, self._since = self._since, parts.Since()
            self._put(parts.END, since)

    def _held(self, request: ModelRequest, *, in_round: bool) -> parts.Held:
        held = [self._digest(message) for message in request.messages if message.text != PICTURES]
        names = [tool.name for tool in request.tools]
        if not in_round:
            return parts.Held(0, held, names or None, request.max_tokens)
        before_names, self._tools = self._tools, names
        before, self._messages = self._messages, held
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, held, strict=False)))
        return parts.Held(same, held[same:], None if names == before_names else names, request.max_tokens)

    def _digest(self, message: Message) -> HeldMessage:
        """Return the digest of a message, made once: each request has those of the one before again."""
        known = self._digests.get(id(message))
        if known is None:  # a reference to the message keeps its id unique
            known = self._digests[id(message)] = message, digest_of(message)
        return known[1]

    def _add_opening(self, part: parts.RequestPart) -> None:
        if self._opening is None:
            return
        (messages, part.form, part.taught), self._opening = self._opening, None
        written = [self.hidden.hidden_in(as_json(one)) for one in messages]
        if (name := digest(json.dumps([part.form, part.taught, written]))) not in self._openings:
            self._openings.add(name)
            part.opening = written

    def _put(self, kind: str, part: object) -> None:
        if self._keep:
            self._keep(kind, part)


class StoredParts(Struct):
    """Stores the parts of a run's recording with its log, up to MOST_BYTES."""

    run: str
    record: Callable[[Change], None]
    _at: int = 0
    _bytes: int = 0

    def keep(self, kind: str, part: object) -> None:
        if self._bytes > MOST_BYTES:
            return
        self._at = max(self._at + 1, time.time_ns() // 1000)
        row = parts.packed(self.run, self._at, kind, part)
        self._bytes += len(row.data)
        if self._bytes > MOST_BYTES:
            row = parts.packed(self.run, self._at, parts.CUT, {"bytes": self._bytes})
        self.record(row)


def digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST).hexdigest()


def digest_of(message: Message) -> HeldMessage:
    """Return the role, the characters and a digest of what a model gets of a message, without what chance decides."""
    calls = [[call.id, call.name, call.arguments] for call in message.calls]
    text = json.dumps([without_codes(message.text), message.name, message.call, calls])
    return message.role, len(message.text), digest(text)


def _new_counts(counter: TokenCounter, messages: Sequence[Message], known: set[str]) -> dict[str, float]:
    """Return exact counts of messages whose texts the model's server has counted, by digest; of each once."""
    if not counter.counts_exactly:
        return {}
    found = dict[str, float]()
    for message in messages:
        name = digest_of(message)[2]
        if name not in known:
            known.add(name)
            found[name] = counter.unscaled(message)
    return found
