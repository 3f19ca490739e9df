"""The whole store, for the composition root: everything else takes the protocol of the aggregate that it needs.

Each aggregate is a module beside this one, with its rows and its protocol; `sqlite/` implements them.
"""

from __future__ import annotations

from typing import Protocol

from app.storage.approvals import ApprovalStore
from app.storage.audit import AuditStore
from app.storage.branches import BranchStore
from app.storage.documents import DocumentStore
from app.storage.endpoints import EndpointStore
from app.storage.files.store import FileStore
from app.storage.labels import LabelStore
from app.storage.library.folders import FolderStore
from app.storage.library.shares import ShareStore
from app.storage.mcp import McpStore
from app.storage.memories import MemoryStore
from app.storage.notices.digests import DigestStore
from app.storage.notices.notifications import NotificationStore
from app.storage.people.members import MemberStore
from app.storage.people.permissions import PermissionStore
from app.storage.people.prompts import PromptStore
from app.storage.people.secrets import SecretTable
from app.storage.people.sign_ins import SignInStore
from app.storage.profiles import ProfileStore
from app.storage.runs import RunStore
from app.storage.schedules import ScheduleStore
from app.storage.served_models import ServedModelStore
from app.storage.sessions import SessionStore
from app.storage.state import StateStore
from app.storage.tokens import TokenStore
from app.storage.usage import UsageStore


class Store(
    RunStore,
    SessionStore,
    ApprovalStore,
    TokenStore,
    UsageStore,
    FileStore,
    McpStore,
    EndpointStore,
    StateStore,
    AuditStore,
    DocumentStore,
    NotificationStore,
    DigestStore,
    MemoryStore,
    ProfileStore,
    SecretTable,
    ServedModelStore,
    ScheduleStore,
    LabelStore,
    FolderStore,
    ShareStore,
    SignInStore,
    PromptStore,
    BranchStore,
    PermissionStore,
    MemberStore,
    Protocol,
):
    """One database. Every method raises StoreFailed.

    `spacing_s`: from one commit of events to the next; under load, each then has several tokens to pay for it.
    """

    spacing_s: float

    async def forget_before(self, sessions: float, keys: float) -> int:
        """Delete sessions without activity since `sessions`; return how many.

        Idempotency-Keys made before `keys` go, too; other names of a run (without a `body`) go with it.
        """

    async def activity(self) -> dict[str, tuple[int, float]]:
        """The number of conversations of each person, and the time of the last change in one."""

    async def sizes(self) -> dict[str, int]:
        """Rows of each table, and the bytes of the whole under `bytes`."""

    async def vacuum(self) -> None: ...

    async def check(self) -> None:
        """Prove that a change could be written now."""

    async def close(self) -> None: ...
