"""Sessions: their messages, summaries of those, and results that are too long for the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct, field

from app.core.messages import Message
from app.storage.approvals import GrantRow
from app.storage.changes import Change, ChangeWriter
from app.storage.library.folders import EVERYWHERE, Shelf
from app.storage.runs import InboxRow


class SessionRow(Change, frozen=True):
    id: str
    principal: str
    created: float
    title: str
    disabled: str = "[]"  # JSON: patterns of tools that are disabled in this session
    updated: float = 0.0  # when a run of it last began or ended; set by the database
    options: str = "{}"  # JSON of `app.core.profile_spec.SessionDefaults`
    pinned: bool = False
    archived: bool = False
    folder: str = ""  # the id of one of its owner's folders
    temporary: bool = False  # not listed, and deleted when it is over


class FoundSession(Struct, frozen=True):
    """A session that a search has found, with the newest such message and its run; empty where the title has it."""

    session: SessionRow
    text: str
    run: str


class SessionTitle(Change, frozen=True):
    id: str
    title: str


class SessionTools(Change, frozen=True):
    """The patterns of the tools that are disabled in a session, as JSON."""

    id: str
    disabled: str


class SessionOptions(Change, frozen=True):
    """The options that a session sets for its runs, as JSON."""

    id: str
    options: str


class ConversationKey(Change, frozen=True):
    """A client's own name for a conversation of a principal, or of a member for whom it speaks."""

    principal: str
    key: str
    session: str


class MessageRow(Change, frozen=True):
    """`message` is the JSON of `app.core.messages.dump`."""

    session: str
    position: int
    run: str
    message: str


class SummaryRow(Change, frozen=True):
    """A text that replaces the first `upto` messages of a session in the prompt; the messages themselves are kept.

    `before` and `after` are tokens.
    """

    session: str
    upto: int
    run: str
    text: str
    before: int
    after: int
    created: float


class ResultRow(Change, frozen=True):
    """A tool's result of which the model received only a part, or, in `written`, not as the program wrote it."""

    session: str
    run: str
    call: str
    name: str
    text: str
    written: str | None = None


class UntrustedMarks(Change, frozen=True):
    """Digests of an untrusted text, by which it is known again (`app.provenance.marks`), kept as long as its session.

    `place` is the tool whose result it is, empty for a message. `at` is the time in microseconds.
    """

    session: str
    run: str
    call: str
    principal: str
    place: str
    at: int
    digests: bytes


class UntrustedMarksForgotten(Change, frozen=True):
    """The oldest marks of a principal are deleted, those of `until` included."""

    principal: str
    until: int


APP = "app"  # the name of what apps have kept; the call of such a row has it in front, by which it is found


class AppState(ResultRow, frozen=True):
    """State that the app of a call has kept, as JSON; `written` is what the next turn is to read."""


class AppContextRead(Change, frozen=True):
    """The history has it now, unless it is another text already."""

    session: str
    call: str
    written: str


class ResultPart(Struct, frozen=True):
    """A slice of a stored result; `characters` counts the whole."""

    name: str
    text: str
    characters: int


class SessionState(Struct, frozen=True):
    """The state of a session when its next run starts; empty for a new session.

    `orphaned` are messages for runs that ended before they could add them to the history, `disabled` patterns of
    tools that are disabled in the session, `contexts` those of apps that no turn has read.
    """

    messages: list[Message] = field(default_factory=list)
    orphaned: Sequence[InboxRow] = ()
    disabled: Sequence[str] = ()
    grants: Sequence[GrantRow] = ()
    contexts: Sequence[AppState] = ()
    characters: int = 0  # of the messages' JSON, but for the first if they do not begin the session


class SessionStore(ChangeWriter, Protocol):
    async def session(self, session: str) -> SessionRow | None: ...

    async def owner_of(self, session: str) -> str | None:
        """The principal of a session, which never changes; None if there is no such session."""

    async def keyed_session(self, principal: str, key: str, owner: str) -> str | None:
        """The session of a conversation's key, if it is the owner's."""

    async def conversation_keys(self, sessions: Sequence[str]) -> dict[str, str]:
        """The keys of those of the sessions that have one."""

    async def sessions(
        self, principal: str, limit: int, before: str | None = None, shelf: Shelf = EVERYWHERE
    ) -> list[SessionRow]:
        """Sessions of a shelf, the most recently used first; only those that follow the session `before`."""

    async def temporary_sessions(self, before: float) -> list[SessionRow]:
        """Temporary sessions of people whose last run began or ended before then."""

    async def find_sessions(self, principal: str, query: str, limit: int) -> list[FoundSession]:
        """Sessions with all words of the query in one message or in the title, archived ones too, best match first."""

    async def session_state(self, session: str, begin: int = 0) -> SessionState:
        """The state of a session, with its messages from this position on."""

    async def delete_session(self, session: str) -> None: ...

    async def messages(self, session: str) -> list[Message]: ...

    async def messages_until(self, session: str, run: str) -> list[Message]:
        """Messages of a session up to the last one of a run; none if the run has none there."""

    async def request_of(self, session: str, run: str) -> Message | None:
        """The user message that started a run."""

    async def search(self, session: str, query: str, limit: int) -> list[tuple[int, Message]]:
        """Messages of a session that have any words of the query, best first, each with its position."""

    async def summaries(self, session: str) -> list[SummaryRow]:
        """Summaries of a session, the one of most messages last."""

    async def marks_state(self, principal: str) -> tuple[int, int]:
        """The number of rows of marks of a principal, and a checksum of their times."""

    async def marks(self, principal: str, after: int) -> list[tuple[UntrustedMarks, str]]:
        """The marks of a principal from after that time, oldest first, each with the title of its session."""

    async def result(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        """At most `size` characters of a stored result, from the character `offset`; None if it was not stored."""

    async def written(self, session: str, call: str, offset: int, size: int) -> ResultPart | None:
        """The same of the text as the program wrote it."""

    async def written_lines(self, session: str, call: str) -> int | None:
        """The number of lines of that text, 0 if some of it was dropped; None if it was not stored."""
