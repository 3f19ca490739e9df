"""The history of a client, made ready for strict servers without words of ours: only its order is mended.

Clients send several replies in a row, calls without results, results without calls or far behind them, and ids that
they use twice. Servers refuse all of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice, takewhile

from msgspec import Struct
from msgspec.structs import replace

from app.core.attachments import Attachment
from app.core.messages import AskedCall, Message
from app.models.wire.call_ids import CallIds, TakesId, takes_short_ids
from app.models.wire.native_calls import NATIVE
from app.models.wire.openai.history import INTERRUPTED

MOST_OPEN = 100  # calls that a result without an id is looked for among
EARLIER = "(The conversation began earlier.)"  # for servers that want a user's message first


class PairedCall(Struct):
    """A call under the id that is sent, and its result, if there is one."""

    call: AskedCall
    result: Message | None = None

    def answer(self) -> Message:
        given = self.result or Message("tool", INTERRUPTED)
        return replace(given, call=self.call.id, name=given.name or self.call.name, attachments=())


def with_opening(opening: Sequence[Message], history: Sequence[Message]) -> list[Message]:
    """Return both, with the opening behind the client's own first system messages, which it belongs to."""
    leading = list(takewhile(lambda message: message.role == "system", history))
    return [*leading, *opening, *history[len(leading) :]]


def settled(
    history: Sequence[Message],
    takes_id: TakesId = takes_short_ids,
    origin: str = "",
    *,
    keeps_files: bool = False,
    ids: CallIds | None = None,
) -> list[Message]:
    """Return the history with each call followed by exactly one result, in order, native calls first.

    Neighbouring replies are one. Calls have ids that differ and that the server takes (see `CallIds`). Files
    of results follow these as the user's, unless the results keep them. A result without a call stays where it is,
    without an id. `ids` are those of calls before.
    """
    rows: list[Message | list[PairedCall]] = []
    waiting: dict[str, list[PairedCall]] = {}
    ids = ids or CallIds(takes_id, origin)
    for message in joined_replies(history):
        if message.role == "tool":
            pair = _pair_for(message, waiting)
            if pair is None:
                rows.append(replace(message, call=None))
            else:
                pair.result = message
            continue
        pairs = [PairedCall(replace(call, id=ids.of(call))) for call in message.calls]
        by_id: dict[str, list[PairedCall]] = {}  # the client's ids, which may be the same
        for call, pair in zip(message.calls, pairs, strict=True):
            by_id.setdefault(call.id, []).append(pair)
        waiting |= by_id
        rows.append(replace(message, calls=tuple(pair.call for pair in pairs)))
        rows += [pairs] if pairs else []
    return [message for row in rows for message in (_results(row, keeps_files) if isinstance(row, list) else [row])]


def joined_replies(history: Sequence[Message]) -> list[Message]:
    """Return the history with neighbouring assistant messages as one."""
    joined: list[Message] = []
    for role, together in groupby(history, lambda message: message.role):
        group = list(together)
        joined += [_joined(group)] if role == "assistant" and len(group) > 1 else group
    return joined


def _joined(replies: Sequence[Message]) -> Message:
    sealed = replies[0].sealed
    for reply in replies[1:]:
        sealed = (sealed or reply.sealed) if not (sealed and reply.sealed) else None
    return replace(
        replies[0],
        text=("" if replies[0].cut else "\n\n").join(reply.text for reply in replies if reply.text),
        shown=_joined_shown(*replies),
        reasoning="\n\n".join(reply.reasoning for reply in replies if reply.reasoning),
        calls=tuple(call for reply in replies for call in reply.calls),
        attachments=tuple(one for reply in replies for one in reply.attachments),
        sealed=sealed,
    )


def _joined_shown(*replies: Message) -> str | None:
    """Return what the client saw of replies, where that is not their text."""
    if all(reply.shown is None for reply in replies):
        return None
    joint = "" if replies[0].cut else "\n\n"
    return joint.join(filter(None, (reply.text if reply.shown is None else reply.shown for reply in replies)))


def _pair_for(result: Message, waiting: dict[str, list[PairedCall]]) -> PairedCall | None:
    """Take the open call that this is the result of; without an id, the first one of that name."""
    places = ((id, at) for id in ([result.call] if result.call else waiting) for at in range(len(waiting.get(id, ()))))
    for id, at in islice(places, MOST_OPEN):
        if result.call or result.name in (None, "", waiting[id][at].call.name):
            pair = waiting[id].pop(at)
            if not waiting[id]:
                del waiting[id]
            return pair
    return None


def _results(pairs: Sequence[PairedCall], keeps_files: bool) -> Iterator[Message]:
    files: tuple[Attachment, ...] = ()
    for pair in sorted(pairs, key=lambda pair: pair.call.dialect != NATIVE):
        if keeps_files and pair.result:
            yield replace(pair.answer(), attachments=pair.result.attachments)
            continue
        yield pair.answer()
        files += pair.result.attachments if pair.result else ()
    if files:
        yield Message("user", "", attachments=files)
