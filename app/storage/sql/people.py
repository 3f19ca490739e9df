"""Sign-ins that last, stored prompts, defaults of new conversations, and the activity of people."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage.changes import Change
from app.storage.people.members import (
    MemberCode,
    MemberCodesForgotten,
    MemberLinked,
    MemberRemoved,
    MemberRow,
    MembersUnlinked,
)
from app.storage.people.prompts import PreferencesRow, PromptRemoved, PromptRow
from app.storage.people.sign_ins import SignInEnded, SignInRow, SignInSeen, SignInsEnded, SignInsExpired
from app.storage.sql.columns import Write, delete, insert, marks, names, select, update, upsert, write
from app.storage.sql.rows import Rows

INSERT_MEMBER = insert("members", MemberRow)
WRITES: dict[type[Change], Write] = {
    SignInRow: insert("sign_ins", SignInRow),
    SignInSeen: update("sign_ins", SignInSeen, "id"),
    SignInEnded: delete("sign_ins", SignInEnded),
    SignInsEnded: delete("sign_ins", SignInsEnded),
    SignInsExpired: write("DELETE FROM sign_ins WHERE expires <= ?", "now"),
    PromptRow: upsert("prompts", PromptRow, "owner", "name"),
    PromptRemoved: delete("prompts", PromptRemoved),
    PreferencesRow: upsert("preferences", PreferencesRow, "owner"),
    MemberRow: INSERT_MEMBER,
    MemberLinked: update("members", MemberLinked, "principal"),
    MemberRemoved: delete("members", MemberRemoved),
    MembersUnlinked: write("UPDATE members SET account = '' WHERE account = ? OR token = ?", "name", "name"),
    MemberCode: upsert("member_codes", MemberCode, "account"),
    MemberCodesForgotten: write("DELETE FROM member_codes WHERE account = ? OR token = ?", "name", "name"),
}
SIGN_IN = select(SignInRow, "sign_ins", "WHERE id = ?")
SIGN_INS = select(SignInRow, "sign_ins", "ORDER BY created DESC, id")
SIGN_INS_OF = select(SignInRow, "sign_ins", "WHERE principal = ? ORDER BY created DESC, id")
PROMPTS = select(PromptRow, "prompts", "WHERE owner = ? ORDER BY name")
PROMPT = select(PromptRow, "prompts", "WHERE owner = ? AND name = ?")
PREFERENCES = select(PreferencesRow, "preferences", "WHERE owner = ?")
MEMBER = select(MemberRow, "members", "WHERE principal = ?")
MEMBERS = select(MemberRow, "members", "WHERE token = ? ORDER BY created, principal")
LINKED = select(MemberRow, "members", "WHERE account = ? AND account <> '' ORDER BY created, principal")
CODE = select(MemberCode, "member_codes", "WHERE sha256 = ?")
ADD_MEMBER = f"""
    INSERT INTO members ({names(MemberRow)}) SELECT {marks(MemberRow)}
    WHERE (SELECT COUNT(*) FROM members WHERE token = ?) < ? ON CONFLICT (principal) DO NOTHING
"""
USE_CODE = "DELETE FROM member_codes WHERE account = ? AND sha256 = ?"
ACTIVITY = "SELECT principal, COUNT(*), MAX(updated) FROM sessions GROUP BY principal"


class SqlPeople(Rows):
    async def sign_in(self, id: str) -> SignInRow | None:
        return await self._row(SIGN_IN, id)

    async def sign_ins(self, principal: str | None = None) -> list[SignInRow]:
        return await (self._rows(SIGN_INS) if principal is None else self._rows(SIGN_INS_OF, principal))

    async def prompts(self, owner: str) -> list[PromptRow]:
        return await self._rows(PROMPTS, owner)

    async def prompt(self, owner: str, name: str) -> PromptRow | None:
        return await self._row(PROMPT, owner, name)

    async def preferences(self, owner: str) -> PreferencesRow | None:
        return await self._row(PREFERENCES, owner)

    async def activity(self) -> dict[str, tuple[int, float]]:
        return {name: (int(count), float(last)) for name, count, last in await self._all(ACTIVITY)}

    async def member(self, principal: str) -> MemberRow | None:
        return await self._lookup(MEMBER, principal)

    async def members(self, token: str) -> list[MemberRow]:
        return await self._rows(MEMBERS, token)

    async def linked_members(self, account: str) -> list[MemberRow]:
        return await self._rows(LINKED, account)

    async def member_code(self, sha256: str) -> MemberCode | None:
        return await self._row(CODE, sha256)

    async def add_member(self, row: MemberRow, most: int, also: Sequence[Change] = ()) -> bool:
        return await self._change(ADD_MEMBER, (*INSERT_MEMBER.values(row), row.token, most), also)

    async def use_code(self, code: MemberCode, also: Sequence[Change]) -> bool:
        return await self._change(USE_CODE, (code.account, code.sha256), also)
