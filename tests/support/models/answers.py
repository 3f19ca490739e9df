"""Reading a model server's answer in tests: the recorded streams, and how what came compares to what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from app.core.provider import (
    CallId,
    Finished,
    MetadataChunk,
    PictureChunk,
    Piece,
    ProviderFailed,
    TextChunk,
    TextPiece,
    TokenUsage,
)
from app.models.http.answer_stream import joined
from app.models.wire.opaque_metadata import THOUGHT_IN
from app.models.wire.openai.answer import ChatAnswer
from parsing import BadCall, Call, CallDelta, CallOpened, Thought
from tests import ROOT

FIXTURES = ROOT / "fixtures" / "providers"
URL = "http://model.example/v1/chat/completions"
ORIGIN = "m at model.example"
END = (Finished, ProviderFailed)


@dataclass(frozen=True)
class Fails:
    """The last thing that an answer gives when it cannot be used."""

    code: str
    retryable: bool
    says: str


def called(
    name: str,
    raw: str,
    arguments: dict[str, object],
    reason: str = "tool_calls",
    *,
    repairs: tuple[str, ...] = (),
) -> list[Piece]:
    """One native call that came in one piece."""
    deltas = [CallOpened(0, name), CallDelta(0, raw)] if raw else [CallOpened(0, name)]
    return [*deltas, Call(0, name, arguments, "native", repairs), Finished(reason)]


def both(first: str, second: str) -> list[Piece]:
    arguments = {"bash": {"command": "ls"}, "read_file": {"path": "a"}}
    calls: list[Piece] = [Call(n, name, dict(arguments[name]), "native") for n, name in enumerate((first, second))]
    return [*calls, Finished("tool_calls")]


def bad(raw: str, reason: str, stopped: str = "tool_calls") -> list[Piece]:
    return [CallOpened(0, "bash"), CallDelta(0, raw), BadCall(0, raw, reason), Finished(stopped)]


def read(parts: Sequence[bytes]) -> list[Piece | ProviderFailed]:
    """All pieces of an answer that comes in these parts, and the failure that ends it, if one does."""
    answer, pieces = ChatAnswer(URL, ORIGIN), list[Piece]()
    try:
        for part in parts:
            pieces += answer.feed(part)
        pieces += answer.close()
    except ProviderFailed as failure:
        return [*joined(pieces), failure]
    return list(joined(pieces))


def read_offered(parts: Sequence[bytes], turns: Sequence[bool]) -> list[Piece | ProviderFailed]:
    """The same with each part offered first, and its text taken or refused in these turns."""
    answer, pieces, turn = ChatAnswer(URL, ORIGIN), list[Piece](), cycle(turns)

    def take_text(piece: TextPiece) -> bool:
        if taken := next(turn):
            pieces.append(piece)
        return taken

    try:
        for part in parts:
            if not answer.offer(take_text, part):
                pieces += answer.feed(part)
        pieces += answer.close()
    except ProviderFailed as failure:
        return [*joined(pieces), failure]
    return list(joined(pieces))


def agrees(seen: Piece | ProviderFailed, expected: Piece | Fails) -> bool:
    match seen, expected:
        case ProviderFailed(), Fails(code, retryable, says):
            return (seen.code, seen.retryable) == (code, retryable) and says in seen.message
        case _:
            return type(seen) is type(expected) and seen == expected


def is_aside(piece: Piece | ProviderFailed) -> bool:
    named = isinstance(piece, MetadataChunk) and piece.sealed.fields.keys() == {THOUGHT_IN}
    return named or isinstance(piece, CallId)


def check(name: str, expected: Sequence[Piece | Fails]) -> None:
    """The stream gives these pieces, the ids of calls and the field of thoughts aside."""
    seen = [one for one in read([(FIXTURES / name).read_bytes()]) if not is_aside(one)]
    assert len(seen) == len(expected), seen
    assert all(agrees(one, other) for one, other in zip(seen, expected, strict=True)), seen


def told(seen: Sequence[Piece | ProviderFailed]) -> list[str]:
    """Pieces and failures, comparable."""
    return [f"{piece.code}: {piece}" if isinstance(piece, ProviderFailed) else repr(piece) for piece in seen]


@dataclass(frozen=True)
class Outcome:
    """What an answer comes to, however it was cut: what was said and thought, the calls, and how it ended.

    `used` are the tokens of prompt and answer, and those that were found in the cache.
    """

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, object], ...] = ()
    bad: int = 0
    sealed: int = 0
    used: tuple[int, int, int | None] | None = None
    end: str = ""
    pictures: tuple[bytes, ...] = ()


def outcome(seen: Sequence[Piece | ProviderFailed]) -> Outcome:
    used = [(one.prompt_tokens, one.completion_tokens, one.cached) for one in seen if isinstance(one, TokenUsage)]
    ends = [one.code if isinstance(one, ProviderFailed) else one.reason for one in seen if isinstance(one, END)]
    assert len(ends) == 1 and isinstance(seen[-1], END), seen
    return Outcome(
        "".join(one.text for one in seen if isinstance(one, TextChunk)),
        "".join(one.text for one in seen if isinstance(one, Thought)),
        tuple((one.name, one.arguments) for one in seen if isinstance(one, Call)),
        sum(isinstance(one, BadCall) for one in seen),
        sum(isinstance(one, MetadataChunk) and not is_aside(one) for one in seen),
        used[-1] if used else None,
        ends[0],
        pictures=tuple(one.data for one in seen if isinstance(one, PictureChunk)),
    )
