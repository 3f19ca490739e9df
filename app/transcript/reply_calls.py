"""The calls of a reply: those in its text and native ones meet here.

Both kinds have an index of their own, and each call gets one id of ours, or of a native one's server. A call that is
made in both ways (a server has left it in the text, or the model says it twice) is one, the native one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec.structs import replace

from app.core.events import AgentEvent, ToolRejected
from app.core.messages import AskedCall, OpaqueMetadata
from app.core.provider import CallId
from app.models.wire.native_calls import NATIVE, as_written
from app.transcript.reply_text import ReplyText
from parsing import Arguments, BadCall, Parser
from parsing.sink import RAW_LIMIT
from tools.base.outcome import advice_of
from tools.base.permit import canonical

TWICE = "The same call came twice, natively and in the text: it is made once."
THOUGHT = "This call stood in the model's thoughts: it was not run."
UNREADABLE = "unreadable"  # the code of a call that could not be understood
TEXT = "text"  # the source of calls that are no native ones
Unpaired = dict[str, list[AskedCall]]


def rejection(reason: str, call: str, name: str | None, code: str | None = None, advice: str = "") -> ToolRejected:
    """Return the event of a call that does not run; `advice`: the end of the reason, if it is not a usual one."""
    return ToolRejected(reason, call, name or None, code, advice or advice_of(reason) or None)


class ReplyCalls:
    """`id_for_client` returns the id of a native call, by that of its server, if clients know it by one."""

    def __init__(self, text: ReplyText, new_id: Callable[[], str], id_for_client: Callable[[str], str]) -> None:
        self.made: dict[str, AskedCall] = {}  # by their ids: one that turns out to be made twice is taken out again
        self.refused: dict[str, str] = {}  # call id -> why it could not be understood
        self.places: dict[str, int] = {}  # call in the text -> where it stood, in what is shown
        self.ids: dict[tuple[str, int], tuple[str, str]] = {}  # (native or text, index) -> (id, name)
        self.given: dict[int, CallId] = {}  # the server's own ids of native calls
        self.sealed: dict[int | None, OpaqueMetadata] = {}  # of a native call, or of all
        self.written: dict[int, list[str]] = {}  # the arguments of native calls, as they came
        self._open: dict[str, str] = {}  # calls that have begun and not ended, with their names
        self.encoded_anew: frozenset[str] = frozenset()  # calls whose arguments cannot go back so
        self._text = text
        self._new_id = new_id
        self._id_for_client = id_for_client
        self._raw: dict[str, str] = {}  # call in the text -> the block that it stands in
        self._closers: dict[str, str] = {}  # the last call of a block -> what stands behind that
        # Native calls (True) and those in the text that have not been made in the other way.
        self._unpaired: tuple[Unpaired, Unpaired] = {}, {}
        self._written: list[AskedCall] = []  # the calls in the text, rejected ones included
        self._twins: dict[str, AskedCall] = {}  # of those, by id: the native call that is made in its place

    def id_of(self, source: str, index: int, name: str = "") -> str:
        if (source, index) not in self.ids:
            given = self.given.get(index) if source == NATIVE else None
            id = (self._id_for_client(given.id) if given else "") or self._new_id()
            self.ids[source, index] = (id, name)
            self._open[id] = name
            if source != NATIVE:
                self.places[id] = self._text.shown.tell()
        return self.ids[source, index][0]

    @property
    def has_native(self) -> bool:
        return any(source == NATIVE for source, _ in self.ids)

    @property
    def in_text(self) -> list[AskedCall]:
        """Return the calls in the text, those included that could not be understood."""
        return [call for call in self.made.values() if call.dialect != NATIVE]

    def asked(self, id: str, name: str, arguments: Arguments, dialect: str, index: int) -> AskedCall:
        """Return the call, a native one with what its server wants back."""
        if dialect != NATIVE:
            return AskedCall(id, name, arguments, dialect)
        came = "".join(self.written.pop(index, ()))
        written = as_written(came, arguments)
        if came and written is None:
            self.encoded_anew |= {id}
        call = AskedCall(id, name, arguments, dialect, self.sealed.get(index), written=written or "")
        given = self.given.get(index)
        return replace(call, given=given.id, giver=given.origin) if given else call

    def take(self, call: AskedCall) -> Iterator[AgentEvent]:
        """One more call, unless it is there already, made in the other way."""
        self._open.pop(call.id, None)
        native = call.dialect == NATIVE
        if not native:
            self._written.append(call)
        same = canonical({call.name: call.arguments})
        others = self._unpaired[not native].get(same)
        if not others:
            self._unpaired[native].setdefault(same, []).append(call)
            self.made[call.id] = call
            return
        twin = others.pop(0)
        if native:
            del self.made[twin.id]
            self.made[call.id] = call
        written = twin if native else call
        self._twins[written.id] = call if native else twin
        yield ToolRejected(TWICE, written.id, written.name)

    def reject(self, bad: BadCall, source: str) -> ToolRejected:
        """Take a call that could not be understood, for the model to correct."""
        call = self.id_of(source, bad.index)
        self._open.pop(call, None)
        name = self.ids[source, bad.index][1]
        self.made[call] = rejected = self.asked(call, name, {}, source, bad.index)
        if source != NATIVE:
            self._written.append(rejected)
            self._raw[call] = bad.raw
        self.refused[call] = bad.reason
        return rejection(bad.reason, call, name, UNREADABLE)

    def drop_open(self, why: str) -> Iterator[AgentEvent]:
        """Reject the calls that have not ended: they were never made."""
        for call, name in self._open.items():
            yield ToolRejected(why, call, name or None)

    def last_in_text(self, count: int) -> list[AskedCall]:
        """Return the last calls in the text, as many as there are of these."""
        return self._written[max(0, len(self._written) - count) :]

    def take_back(self, drafts: Sequence[AskedCall]) -> Iterator[AgentEvent]:
        """Take the last calls in the text out of the reply, as if they had never been made."""
        del self._written[len(self._written) - len(drafts) :]
        for draft in reversed(drafts):
            same = canonical({draft.name: draft.arguments})
            unpaired = self._unpaired[False].get(same)
            if unpaired and unpaired[-1] is draft:
                unpaired.pop()
            elif twin := self._twins.pop(draft.id, None):
                self._unpaired[True].setdefault(same, []).append(twin)
        for draft in drafts:
            self.refused.pop(draft.id, None)
            self.places.pop(draft.id, None)
            if self.made.pop(draft.id, None):  # else a native call is made in its place
                yield ToolRejected(THOUGHT, draft.id, draft.name or None)

    def keep_blocks(self, parser: Parser) -> None:
        """Keep the blocks that calls stand in, as they were written. The parser must be closed."""
        self._raw |= {self.id_of(TEXT, index): written for index, written in parser.raw.items()}
        self._closers = {self.id_of(TEXT, index): "".join(marks) for index, marks in parser.closers.items()}
        excerpts = {written: written[:RAW_LIMIT] for written in set(self._raw.values())}  # one for all calls of a block
        for id in self._raw.keys() & self.made.keys():
            self.made[id] = replace(self.made[id], raw=excerpts[self._raw[id]])

    def leave_in_text(self, calls: Collection[str]) -> dict[str, str]:
        """Let the blocks of these calls be text again, which is shown where they stood. Return each, by its first call.

        A block with several calls is left whole. The reply must have ended.
        """
        blocks = dict.fromkeys((id(self._raw.get(call, "")) for call in calls), False)  # and if it has been put back
        left, shown, end, parts = dict[str, str](), self._text.shown.getvalue(), 0, list[str]()
        for call in [one.id for one in self.in_text]:
            if id(raw := self._raw.get(call, "")) not in blocks:
                continue
            del self.made[call]
            self.refused.pop(call, None)
            left[call] = ("" if blocks[id(raw)] else raw) + self._closers.get(call, "")
            blocks[id(raw)] = True
            parts += shown[end : (place := max(end, self.places[call]))], left[call]
            end = place
        self._text.show_instead("".join([*parts, shown[end:]]))
        return left
