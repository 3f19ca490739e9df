"""Members of a bot's chats: the principal that a request of the bot is for, and what it may ask for.

A member is a guest of the bot's token. An account links itself by a code that its person gives to the bot. From then on
the member's messages run as the account, but the bot does not become the account: it reaches the runs that it has
begun, and none of the person's other conversations, settings and approvals.
"""

from __future__ import annotations

import hmac
import secrets
import time

from msgspec import Struct
from starlette.datastructures import Headers

from app.policy.current_rights import RightsStore, member_principal
from app.storage.audit import AuditRow
from app.storage.people.members import MemberCode, MemberLinked, MemberRow, checked_outside, member_name
from app.storage.principals import Principal
from app.transcript.run_request import NotFound
from routes.access.request_rates import WRONG_CODES, Limits, Rates, check_rate
from routes.access.token_text import fingerprint
from routes.protocol.errors import Refused, TooSoon

MEMBER_HEADER, CONVERSATION_HEADER = "x-dragoman-member", "x-dragoman-conversation"
NO_MEMBERS = "This token may not say which member speaks. `dragoman token create --members` makes one that may."
CODE_S = 600.0
LETTERS, LENGTH = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ", 8  # 40 bits, none that is taken for another
WRONG_PER_MINUTE = 5  # codes, from one bot


def outside_name(headers: Headers, name: str) -> str | None:
    """The name that another service has, from a header; None without one. Raises Refused."""
    if name not in headers:
        return None
    try:
        return checked_outside(headers[name].encode("latin-1").decode())
    except ValueError:
        raise Refused(422, "invalid_request", f"{name.title()}: send 1 to 200 printable characters in UTF-8") from None


class Speakers(Struct, frozen=True):
    """Finds the principals of members, and links them to accounts."""

    store: RightsStore
    rates: Rates
    limits: Limits
    most: int

    async def speaking(self, bot: Principal, member: str) -> Principal:
        """Return the principal of a member, whose request is counted. Raises Refused, TooSoon, StoreFailed."""
        if not bot.members:
            raise Refused(403, "no_members", NO_MEMBERS)
        row = await self.store.member(member_name(bot.name, member)) or await self._made(bot, member)
        try:
            principal = await member_principal(self.store, bot, row)
        except NotFound as gone:
            raise Refused(403, "account_gone", f"{gone} The account, or an admin, can unlink this member.") from None
        await check_rate(self.rates, self.limits, principal)
        return principal

    async def _made(self, bot: Principal, member: str) -> MemberRow:
        row = MemberRow(member_name(bot.name, member), bot.name, member, time.time())
        audit = AuditRow(row.created, row.principal, "member", "made", why="", by=bot.name)
        if await self.store.add_member(row, self.most, [audit]):
            return row
        if known := await self.store.member(row.principal):  # made at the same time
            return known
        message = f"{bot.name} has {self.most:,} members, which is the most. An admin can delete some, or raise "
        raise Refused(409, "too_many_members", f"{message}DRAGOMAN_MAX_MEMBERS.")

    async def code(self, account: Principal, bot: str) -> tuple[str, float]:
        """Make a code by which a member of this bot becomes the account. Raises Refused, StoreFailed."""
        if account.member or not account.token:
            raise Refused(403, "forbidden", "Only an account with a token of its own can be linked. Sign in with one.")
        now = time.time()
        code = "".join(secrets.choice(LETTERS) for _ in range(LENGTH))
        row = MemberCode(account.name, bot, fingerprint(code), now + CODE_S)
        audit = AuditRow(now, account.name, "member", "code", why=f"for {bot}", by=account.name)
        await self.store.write([row, audit])
        return f"{code[:4]}-{code[4:]}", row.expires

    async def link(self, member: Principal, bot: str, code: str) -> MemberRow:
        """Link a member of a bot to the account whose code it has, once. Raises Refused, TooSoon, StoreFailed."""
        now = time.time()
        if (row := await self.store.member(member.member)) is None or row.account:
            raise Refused(409, "linked", "This member is linked already. The account can unlink it first.")
        hashed = fingerprint(code.strip().replace("-", "").upper())
        found = await self.store.member_code(hashed)
        if found is None or not hmac.compare_digest(found.sha256, hashed) or found.token != bot or found.expires <= now:
            await self._count_wrong(row, bot, now)
        elif await self.store.use_code(found, self._linking(row, found, now)):
            return MemberRow(row.principal, bot, row.member, row.created, found.account)
        raise Refused(
            404, "no_such_code", "This code is not valid for this bot, was used, or is older than 10 minutes."
        )

    def _linking(self, row: MemberRow, code: MemberCode, now: float) -> list[MemberLinked | AuditRow]:
        audit = AuditRow(now, code.account, "member", "linked", why=row.principal, by=row.token)
        return [MemberLinked(row.principal, code.account), audit]

    async def _count_wrong(self, row: MemberRow, bot: str, now: float) -> None:
        """Raises TooSoon."""
        tries, reset = await self.rates.count(WRONG_CODES, bot, now)
        if tries <= WRONG_PER_MINUTE:
            await self.store.write([AuditRow(now, row.principal, "member", "refused", why="a wrong code", by=bot)])
            return
        raise TooSoon(
            "too_many_codes", f"{bot} has sent {tries - 1} wrong codes within a minute. Try again later.", reset
        )

    async def unlink(self, row: MemberRow, by: str) -> None:
        """Let a member be a guest again. Raises StoreFailed."""
        audit = AuditRow(time.time(), row.account, "member", "unlinked", why=row.principal, by=by)
        await self.store.write([MemberLinked(row.principal, ""), audit])
