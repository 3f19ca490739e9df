"""The interface of a recorder, for the code that makes model requests."""

from __future__ import annotations

from typing import Protocol

from app.core.provider import ModelRequest, Piece, Provider


class Tape(Protocol):
    """Takes the pieces of one answer as they come. `close` ends it, with the error that ended the request, if any."""

    def add(self, piece: Piece) -> None: ...

    def close(self, error: BaseException | None) -> None: ...


class Recorder(Protocol):
    """Records a run."""

    def begin_request(self, request: ModelRequest, provider: Provider, *, in_round: bool) -> Tape: ...
