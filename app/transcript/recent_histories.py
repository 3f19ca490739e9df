"""The histories of the sessions that were last active, decoded and redacted: a follow-up reads what is behind them.

Messages are only ever added behind those that there are. So a history is known to be the same if its last message still
stands at its place in the store; what another server has added is read with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from app.core.messages import Message
from app.core.time_slice import sliced_map
from app.redaction.redactor import Redactor
from app.storage.sessions import SessionState, SessionStore

MOST_CHARACTERS = 4_000_000  # of all histories, as they are stored


class _Known(Struct, frozen=True):
    messages: list[Message]
    characters: int
    secrets: int


class RecentHistories:
    """The last histories that were read, up to MOST_CHARACTERS; of a longer one nothing is kept."""

    def __init__(self, store: SessionStore, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor
        self._known: dict[str, _Known] = {}
        self._characters = 0

    async def state(self, session: str) -> SessionState:
        """Return the state of a session with its messages redacted. Raises StoreFailed."""
        known = self._known.get(session)
        state = await self._store.session_state(session, len(known.messages) - 1 if known else 0)
        if known and (known.secrets != self._redactor.secrets or state.messages[:1] != known.messages[-1:]):
            known, state = None, await self._store.session_state(session)
        new = state.messages[1:] if known else state.messages
        secrets = self._redactor.secrets
        messages = [*(known.messages if known else ()), *await sliced_map(self._redactor.redact_value, new)]
        if secrets != self._redactor.secrets:  # meanwhile
            return await self.state(session)
        self._keep(session, messages, state.characters + (known.characters if known else 0))
        return replace(state, messages=messages)

    def forget(self, session: str) -> None:
        """Forget a session that is deleted."""
        self._keep(session, (), 0)

    def _keep(self, session: str, messages: Sequence[Message], characters: int) -> None:
        if before := self._known.pop(session, None):
            self._characters -= before.characters
        if messages and characters <= MOST_CHARACTERS:
            self._known[session] = _Known([*messages], characters, self._redactor.secrets)
            self._characters += characters
        while self._characters > MOST_CHARACTERS:
            self._characters -= self._known.pop(next(iter(self._known))).characters
