"""What a run finds in its session when its turn has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.core.messages import Message
from app.storage.approval_rows import GrantRow
from app.storage.rows import InboxRow


@dataclass(frozen=True, slots=True)
class Found:
    """Of a new session nothing. `stranded` are messages for runs that ended before they could put them into the
    history, `disabled` patterns of the tools that the session goes without."""

    messages: list[Message] = field(default_factory=list)
    stranded: Sequence[InboxRow] = ()
    disabled: Sequence[str] = ()
    grants: Sequence[GrantRow] = ()
