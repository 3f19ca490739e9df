"""`dragoman token create | list | revoke`: access tokens for people and programs."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from app.config.settings import Loaded
from app.core.profile_spec import checked_profile_name
from app.core.rules import checked_pattern
from app.profiles.library import Profile, Profiles, UnknownProfile
from app.storage.changes import StoreFailed
from app.storage.database import DATABASE, open_store
from app.storage.principals import checked_expiry, checked_name
from app.storage.profiles import SHARED
from app.storage.store import Store
from app.storage.tokens import TokenRow, TokenStore
from routes.access.tokens import MOST_MONEY, BudgetRequest, TokenRequest, make_token, revoke_token, state_of
from routes.cli.columns import aligned, failed
from routes.protocol.errors import Refused
from routes.protocol.numbers import MAX_DIGITS, whole_number

BY = "the command line"
MADE = """{token}

This is the token of {name}, whose role is {role}. It is shown only now: the server keeps a fingerprint of it.
From now on every request needs the header  Authorization: Bearer TOKEN
"""
ROLES = "guest (reads), user (tools in the sandbox) or admin (everything, other people's tokens included)"
COLUMNS = ("name", "role", "state", "created", "expires", "profile", "members", "tools", "disabled")
_T = TypeVar("_T")


def token_flags(parser: argparse.ArgumentParser) -> tuple[argparse.ArgumentParser, ...]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="create a token and print it once", allow_abbrev=False)
    create.add_argument("--name", required=True, type=_parsed_by(checked_name), help="who or what the token is for")
    create.add_argument("--role", choices=("guest", "user", "admin"), default="user", help=f"{ROLES}; default user")
    for flag, field, help_text in PATTERN_FLAGS:
        kind = _parsed_by(checked_pattern)
        create.add_argument(
            flag, dest=field, nargs="+", action="extend", default=[], type=kind, metavar="GLOB", help=help_text
        )
    help_text = "a profile that all of its runs must use: from the settings, or a shared one"
    kind = _parsed_by(checked_profile_name)
    create.add_argument("--profile", dest="its_profile", type=kind, metavar="NAME", help=help_text)
    help_text = "when it expires: 30d, 12h or a date such as 2027-01-01 (default: never)"
    create.add_argument("--expires", type=_parsed_by(checked_expiry), metavar="WHEN", help=help_text)
    for flag, field, help_text in BUDGET_FLAGS:
        amount = _parsed_by(_money) if field == "cost_per_month" else _parsed_by(_count)
        create.add_argument(flag, dest=f"budget_{field}", type=amount, metavar="N", help=help_text)
    help_text = "it may say which member of a chat speaks, as a bot does (docs/bots.md)"
    create.add_argument("--members", action="store_true", dest="its_members", help=help_text)
    listing = actions.add_parser("list", help="list the tokens, one per line", allow_abbrev=False)
    revoke = actions.add_parser("revoke", help="revoke a token and stop its runs at once", allow_abbrev=False)
    revoke.add_argument("name", help="whose token")
    return create, listing, revoke


# Where argparse keeps what these say is no setting's name.
PATTERN_FLAGS = (
    ("--tools", "only_tools", "only tools with these names"),
    ("--disabled", "no_tools", "no tools with these names"),
)
BUDGET_FLAGS = (
    ("--max-runs", "runs", "concurrent runs"),
    ("--requests-per-minute", "requests_per_minute", "requests per minute"),
    ("--tokens-per-month", "tokens_per_month", "model tokens per month"),
    ("--tool-seconds-per-day", "tool_seconds_per_day", "seconds that tools may run per day"),
    ("--cost-per-month", "cost_per_month", "what models may cost in a month, in the currency of the price table"),
)


def _parsed_by(check: Callable[[str], _T]) -> Callable[[str], _T]:
    """argparse shows the message of this kind of error only."""

    def checked(text: str) -> _T:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _count(text: str) -> int:
    if not (number := whole_number(text)):
        raise ValueError(f"send a whole number above 0, of at most {MAX_DIGITS} digits")
    return number


def _money(text: str) -> float:
    """Raises ValueError."""
    amount = float(text) if text.isascii() and text.replace(".", "", 1).isdigit() else 0.0
    if not 0 < amount <= MOST_MONEY:
        raise ValueError(f"send a number above 0, at most {MOST_MONEY:,}, such as 2.50")
    return amount


def run_token(args: argparse.Namespace, loaded: Loaded, _environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    match args.action:
        case "create":
            budget = BudgetRequest.model_validate(
                {field: getattr(args, f"budget_{field}") for _, field, _ in BUDGET_FLAGS}
            )
            request = TokenRequest(
                name=args.name,
                role=args.role,
                tools=args.only_tools,
                disabled=args.no_tools,
                expires=args.expires,
                budget=budget,
                profile=args.its_profile or None,
                members=args.its_members,
            )
            return with_store(loaded, lambda store: _create(store, request, loaded))
        case "revoke":
            return with_store(loaded, lambda store: _revoke(store, args.name))
    return with_store(loaded, _list)


async def _create(store: Store, request: TokenRequest, loaded: Loaded) -> int:
    if request.profile:
        await shared_profile(Profiles(loaded.settings.profiles, store), request.profile)
    token, row = await make_token(store, request, BY)
    print(MADE.format(token=token, name=row.name, role=row.role))
    return 0


async def _revoke(store: TokenStore, name: str) -> int:
    await revoke_token(store, name, BY)
    print(
        f"The token of {name} is revoked. A running server stops everything it does for {name} within a second or two."
    )
    return 0


async def _list(store: TokenStore) -> int:
    print("\n".join(aligned(COLUMNS, map(_columns, await store.tokens()))))
    return 0


def _columns(row: TokenRow) -> Mapping[str, str]:
    return {
        "name": row.name,
        "role": row.role,
        "state": state_of(row),
        "created": _moment(row.created),
        "expires": "never" if row.expires is None else _moment(row.expires),
        "profile": row.profile or "none",
        "members": "yes" if row.members else "no",
        "tools": " ".join(json.loads(row.tools)) or "all of the role",
        "disabled": " ".join(json.loads(row.disabled)) or "none",
    }


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))


async def shared_profile(profiles: Profiles, name: str) -> Profile:
    """A profile of the settings, or a shared one. Raises Refused."""
    try:
        return await profiles.named(name, SHARED)
    except UnknownProfile as unknown:
        raise Refused(404, "not_found", str(unknown)) from None


def with_store(loaded: Loaded, work: Callable[[Store], Awaitable[int]]) -> int:
    """Do something with the database, whether a server uses it or not; exit code 1 when it cannot be done."""

    async def main() -> int:
        settings = loaded.settings
        store = await open_store(settings.data_dir / DATABASE, settings.postgres_url, visitor=True)
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(main())
    except (StoreFailed, Refused) as failure:
        return failed(failure)
