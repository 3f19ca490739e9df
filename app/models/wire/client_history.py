"""The history of a client, made ready for strict servers without words of ours: only its order is mended.

Clients send several replies in a row, calls without results, results without calls or far behind them, and ids that
they use twice. Servers refuse all of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from app.core.attachments import Attachment
from app.core.messages import AskedCall, Message
from app.models.wire.call_ids import CallIds, TakesId, takes_short_ids
from app.models.wire.native_calls import NATIVE
from app.models.wire.openai.history import INTERRUPTED

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
    for message in history:
        last = joined[-1] if joined else None
        if last is None or last.role != "assistant" or message.role != "assistant":
            joined.append(message)
            continue
        joint = "" if last.cut else "\n\n"
        joined[-1] = replace(
            last,
            text=joint.join(filter(None, (last.text, message.text))),
            shown=_joined_shown(last, message),
            reasoning="\n\n".join(filter(None, (last.reasoning, message.reasoning))),
            calls=(*last.calls, *message.calls),
            attachments=(*last.attachments, *message.attachments),
            sealed=(last.sealed or message.sealed) if not (last.sealed and message.sealed) else None,
        )
    return joined


def _joined_shown(*replies: Message) -> str | None:
    """Return what the client saw of replies, where that is not their text."""
    if all(reply.shown is None for reply in replies):
        return None
    joint = "" if replies[0].cut else "\n\n"
    return joint.join(filter(None, (reply.text if reply.shown is None else reply.shown for reply in replies)))


def _pair_for(result: Message, waiting: dict[str, list[PairedCall]]) -> PairedCall | None:
    """Return the open call that this is the result of; without an id, the first one of that name."""
    if result.call:
        found = waiting.get(result.call, [])
    else:
        found = [pair for pairs in waiting.values() for pair in pairs if result.name in (None, "", pair.call.name)]
    return next((pair for pair in found if pair.result is None), None)


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
