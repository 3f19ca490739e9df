"""The other sessions of a run's principal: listed, read as data, and written to with at most the run's own rights.

A message begins an ordinary run there. Such a run cannot send messages itself, and counts like a follow-up: since the
person last wrote in that session there are at most `max_follow_ups` of both together. A message may begin a session of
its own: a run that has sent `max_follow_ups` messages begins none. Grants of that session, which
its person gave to another conversation, do not count in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from weakref import WeakValueDictionary

from msgspec import Struct
from pydantic import ValidationError

from app.core.data_delimiters import as_data
from app.core.messages import Message
from app.profiles.pinned import NOTHING
from app.runs.composition.profiled_options import narrowing_of
from app.runs.composition.refusals import UNFIT
from app.runs.delegation.composing import (
    Server,
    inherited,
    is_tainted,
    labels_of,
    labels_of_sessions,
    stricter,
    stricter_absence,
    usable_names,
)
from app.runs.follow_up import ROUNDS, room_in
from app.runs.run_options import RunOptions
from app.runs.run_scope import ParentCall
from app.storage.sessions import SessionRow
from app.transcript.run_request import NotFound, RunRequest, SessionBusy, Stopping
from tools.base.outcome import Result, ToolFailed
from tools.base.pause_check import Paused
from tools.builtin.session_tools import NEW, SEND

LISTED = 20
RESULT_CHARACTERS = 500  # of a tool's result in a session that is read
PAGE = 6_000  # characters
LONGEST_QUERY = 200
_LASTS = "This conversation is temporary: it begins no other one. Answer here instead."
_ENOUGH = "This run has sent as many messages as may be (max_follow_ups): it begins no session. Ask the person."
_SENDING: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # sessions that are being sent to


class CallSessions(Struct, frozen=True):
    """`options` are those of the run. Implements `tools.base.access.SessionAccess`."""

    server: Server
    parent: ParentCall
    options: RunOptions

    async def list(self, query: str) -> Result:
        """List the sessions used last, or those that hold the words of a query."""
        store = self.server.store
        principal = self.parent.scope.gate.principal.name
        if query.strip():
            rows = [one.session for one in await store.find_sessions(principal, query[:LONGEST_QUERY], LISTED)]
        else:
            rows = await store.sessions(principal, LISTED)
        others = [row for row in rows if row.id != self.parent.conversation.session]
        if not others:
            return Result(
                ok=True, text="There are no other sessions." if not query.strip() else "None has these words."
            )
        tainted = [await store.tainted(row.id) for row in others]
        labels = await labels_of_sessions(self.parent, *(row.id for row in others))
        busy = {run.session for run in await self.server.runs.of(principal)}
        text = as_data("Sessions", "\n".join(_line(row, is_busy=row.id in busy) for row in others))
        return Result(ok=True, text=text, untrusted=any(tainted), labels=labels)

    async def read(self, session: str, offset: int) -> Result:
        """Return messages of a session as data, from the character `offset` on."""
        row = await self._session(session)
        messages = await self.server.store.messages(row.id)
        text = "\n\n".join(_shown(messages)) or "(no messages)"
        if offset and offset >= len(text):
            raise ToolFailed(f"The session has {len(text):,} characters", ": give an offset below that.")
        page, end = text[offset : offset + PAGE], min(len(text), offset + PAGE)
        following = f"Next: offset={end}" if end < len(text) else "This is the end"
        note = f"[Characters {offset:,} to {end:,} of {len(text):,}. {following}.]"
        title = f"Session {row.id}, {row.title!r}"
        tainted, labels = await self.server.store.tainted(row.id), await labels_of_sessions(self.parent, row.id)
        return Result(ok=True, text=f"{as_data(title, page)}\n{note}", untrusted=tainted, labels=labels)

    async def send(self, session: str, message: str) -> str:
        """Begin a run with this message in a session, or in a new one, or put it in its queue."""
        own = self.parent.conversation.session
        if session == NEW:
            self._may_begin()
            return await self._send(None, own, message)
        row = await self._session(session)
        if row.id == own:
            raise ToolFailed("That is this conversation.", " Name another one: list_sessions shows them.")
        async with _SENDING.setdefault(row.id, asyncio.Lock()):  # else two might both have the last room
            return await self._send(row.id, own, message)

    def _may_begin(self) -> None:
        """Raise ToolFailed where no session may be begun."""
        if self.options.temporary:
            raise ToolFailed(_LASTS)
        sent = [one for one in self.parent.scope.totals.actions.values() if one.name == SEND and one.outcome == "ok"]
        if len(sent) >= self.server.settings.max_follow_ups:
            raise ToolFailed(_ENOUGH)

    async def _send(self, session: str | None, own: str, message: str) -> str:
        store = self.server.store
        parent = self.parent
        settings = self.server.settings
        room = await room_in(session or NEW, store, settings.max_follow_ups)
        if not room:
            raise ToolFailed(
                f"Session {session} has had as many messages and follow-ups as may be (max_follow_ups) since the "
                "person last wrote there.",
                " Ask the person to go on there.",
            )
        options = await self._options(session, min(ROUNDS, settings.max_rounds, max(1, room.requests)))
        words = as_data(f"Message of the model in the session {own}, not of the person", message)
        turn = RunRequest(
            words,
            session,
            when_busy="queue",
            time_limit_s=options.time_limit_s or settings.run_time_limit_s,
            policy=options.policy(),
            asked=False,
            sent_by=own,
            subject=message,
            untrusted=is_tainted(parent),
            labels=labels_of(parent),
            traceparent=self.server.runs.ledger.observers.traceparent(parent.run, parent.call),
        )
        try:
            agent = await self.server.agent(parent.scope.gate.principal, options, session)
            agent.scope.gate.takes_grants = False
            run = await self.server.runs.start(agent, parent.scope.gate.principal, turn)
        except (*UNFIT, NotFound, SessionBusy, Paused, Stopping) as refused:
            raise ToolFailed(f"The message was not sent: {refused}") from refused
        return f"Sent: run {run.id} answers it in the session {run.session}. read_session shows what comes of it."

    async def _options(self, session: str | None, rounds: int) -> RunOptions:
        """Return the options of the run: those of this one, narrowed by those of the session's last one, if any."""
        last = await self.server.store.last_runs(session, None, 1) if session else ()
        try:
            before = RunOptions.of_policy(last[0].policy if last else "{}")
        except ValidationError:
            before = RunOptions()
        names = usable_names(self.parent, {SEND})
        if before.tools is not None:
            names = [name for name in names if name in before.tools]
        options = inherited(self.parent, self.options, names, before.model)
        if before.pinned:  # its profiles hold on, too
            options = options.with_pinned({}, (options.pinned or NOTHING).after(before.pinned))
        mode = options.approval
        gate = self.parent.scope.gate
        usual = before.approval or self.server.settings.mode_of(gate.principal.role)
        options = options.model_copy(
            update={
                "approval": stricter(mode, usual) if mode else usual,
                "when_absent": stricter_absence(options.when_absent, before.when_absent),
                "mode": before.mode,
                "permissions": _both(before.permissions, options.permissions),
                "temporary": None,  # as the other session is
                "workspace": None,
                "memory": False if before.memory is False else options.memory,
                "max_rounds": rounds,
                "max_calls": self.options.max_calls,
                "max_tokens": self.options.max_tokens,
                "time_limit_s": None,
            }
        )
        narrowing = narrowing_of(options)
        return options.model_copy(update={"tools": [name for name in names if not narrowing.objection(name, name)]})

    async def _session(self, session: str) -> SessionRow:
        try:
            return await self.server.runs.session(session, self.parent.scope.gate.principal)
        except NotFound as missing:
            raise ToolFailed("There is no such session", ": list_sessions shows them.") from missing


def _both(one: list[str] | None, other: list[str] | None) -> list[str] | None:
    """Return the permissions that both lists have; None is all of them."""
    return other if one is None else one if other is None else [id for id in one if id in other]


def _line(row: SessionRow, *, is_busy: bool) -> str:
    used = f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(row.updated))} UTC"
    return f"{row.id}: {row.title!r}, used {used}{', busy' if is_busy else ''}"


def _shown(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        text = message.text if message.shown is None or message.app else message.shown
        if message.role == "tool":
            more = "…" if len(text) > RESULT_CHARACTERS else ""
            yield f"[result of {message.name}]\n{text[:RESULT_CHARACTERS]}{more}"
        elif text.strip():
            yield f"[{message.role}]\n{text}"
