"""Sign-ins that last, stored prompts, defaults of new conversations, and the activity of people."""

from __future__ import annotations

from app.storage.changes import Change
from app.storage.people.prompts import PreferencesRow, PromptRemoved, PromptRow
from app.storage.people.sign_ins import SignInEnded, SignInRow, SignInSeen, SignInsEnded, SignInsExpired
from app.storage.sql.columns import Write, delete, insert, select, update, upsert, write
from app.storage.sql.rows import Rows

WRITES: dict[type[Change], Write] = {
    SignInRow: insert("sign_ins", SignInRow),
    SignInSeen: update("sign_ins", SignInSeen, "id"),
    SignInEnded: delete("sign_ins", SignInEnded),
    SignInsEnded: delete("sign_ins", SignInsEnded),
    SignInsExpired: write("DELETE FROM sign_ins WHERE expires <= ?", "now"),
    PromptRow: upsert("prompts", PromptRow, "owner", "name"),
    PromptRemoved: delete("prompts", PromptRemoved),
    PreferencesRow: upsert("preferences", PreferencesRow, "owner"),
}
SIGN_IN = select(SignInRow, "sign_ins", "WHERE id = ?")
SIGN_INS = select(SignInRow, "sign_ins", "ORDER BY created DESC, id")
SIGN_INS_OF = select(SignInRow, "sign_ins", "WHERE principal = ? ORDER BY created DESC, id")
PROMPTS = select(PromptRow, "prompts", "WHERE owner = ? ORDER BY name")
PROMPT = select(PromptRow, "prompts", "WHERE owner = ? AND name = ?")
PREFERENCES = select(PreferencesRow, "preferences", "WHERE owner = ?")
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
