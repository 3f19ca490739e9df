"""The tape of one model request: the pieces of its answer as they come, with their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from time import monotonic
from typing import Any

from app.core.provider import (
    CallId,
    FallbackUsed,
    Finished,
    Piece,
    ProviderFailed,
    ProviderNotice,
    TextChunk,
    TokenUsage,
)
from app.runs.recording import parts
from app.runs.recording.stand_ins import StandIns, applied, borders_of
from parsing import BadCall, Call, CallDelta, CallOpened, Thought

Timed = tuple[Piece, float]
Ended = Callable[["RequestTape", BaseException | None], None]


class RequestTape:
    """Takes pieces; `close` hands the tape over. Opaque metadata and pictures are not recorded."""

    __slots__ = ("_on_end", "pieces", "started")

    def __init__(self, on_end: Ended) -> None:
        self._on_end = on_end
        self.started = monotonic()
        self.pieces: list[Timed] = []

    def add(self, piece: Piece) -> None:
        self.pieces.append((piece, monotonic()))

    def close(self, error: BaseException | None) -> None:
        self._on_end(self, error)

    def items(self, hidden: StandIns, error: BaseException | None, code: str | None) -> list[parts.Item]:
        """Return what came, without secrets, and the error that ended it."""
        found, since = list[parts.Item](), self.started
        for _, group in groupby(self.pieces, key=_kind):
            timed = list(group)
            found += _items(timed, since, hidden)
            since = timed[-1][1]
        if code is not None:
            found.append(_failed(error, code, hidden))
        return found


def _kind(timed: Timed) -> object:
    piece = timed[0]
    return (type(piece), piece.index) if isinstance(piece, CallDelta) else type(piece)


def _items(timed: Sequence[Timed], since: float, hidden: StandIns) -> Iterator[parts.Item]:
    first = timed[0][0]
    match first:
        case TextChunk():
            yield parts.Words(**_words(timed, since, hidden))
        case CallDelta(index=index):
            yield parts.CallText(**_words(timed, since, hidden), index=index)
        case Thought():
            yield parts.Reasoning(**_words(timed, since, hidden))
        case _:
            for piece, _ in timed:
                yield from _item(piece, hidden)


def _words(timed: Sequence[Timed], since: float, hidden: StandIns) -> dict[str, Any]:
    texts = [piece.text for piece, _ in timed if isinstance(piece, TextChunk | Thought | CallDelta)]
    text, changes = (whole := "".join(texts)), hidden.changes(whole)
    times = [round(1000 * at) for at in (since, *(at for _, at in timed))]
    gaps = [max(0, now - before) for before, now in pairwise(times)]
    return {"text": applied(text, changes), "sizes": borders_of(list(map(len, texts)), changes), "ms": gaps}


def _item(piece: Piece, hidden: StandIns) -> Iterator[parts.Item]:
    match piece:
        case CallOpened(index, name):
            yield parts.Opened(index, hidden.hidden(name))
        case Call(index, name, arguments, dialect):
            made = hidden.hidden_in(arguments)
            yield parts.Made(index, hidden.hidden(name), made, dialect, list(piece.repairs))
        case BadCall(index, raw, reason):
            yield parts.Unreadable(index, hidden.hidden(raw), hidden.hidden(reason))
        case CallId(index, given, origin):
            yield parts.Identified(index, given, origin)
        case TokenUsage(prompt, completion, cached, written):
            yield parts.Used(prompt, completion, cached, written)
        case ProviderNotice(code, message):
            yield parts.Noted(code, hidden.hidden(message))
        case FallbackUsed():
            yield _stood_in(piece, hidden)
        case Finished(reason):
            yield parts.Ended(reason)


def _failed(error: BaseException | None, code: str, hidden: StandIns) -> parts.Failed:
    if not isinstance(error, ProviderFailed):
        return parts.Failed(code, hidden.hidden(str(error or "")))
    failed = parts.Failed(code, hidden.hidden(error.message), error.retryable, error.window, error.status)
    failed.successor = _stood_in(error.successor, hidden) if error.successor else None
    return failed


def _stood_in(switch: FallbackUsed, hidden: StandIns) -> parts.StoodIn:
    return parts.StoodIn(switch.wanted, switch.answered_by, hidden.hidden(switch.reason))
