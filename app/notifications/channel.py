"""A channel is a way in which a notification reaches its receiver, a row of `app/notifications/channels.py`.

A row says what its receivers need, and how an event becomes one request. Addresses, attempts, delays and giving up are
the same for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from app.notifications.decision_links import DecisionLinks
from app.notifications.key_files import KeyFiles
from app.notifications.messages import Messages
from app.policy.entitlements import Kind
from app.storage.notices.notifications import DeliveryRow, TargetRow


class Family(Struct, frozen=True, kw_only=True):
    """Channels whose receivers are managed by the same routes: its name, its path, and what a principal has of it."""

    name: str
    path: str
    plural: str
    prefix: str  # of ids
    right: Kind | None = None  # what an owner needs at each delivery


WEBHOOKS = Family(name="webhook", path="/webhooks", plural="webhooks", prefix="whk", right=Kind.WEBHOOKS)
BROWSERS = Family(name="push", path="/push", plural="browsers with notifications", prefix="psh")


class Letter(Struct, frozen=True):
    """One request, as it is posted to the address of a target."""

    headers: Mapping[str, str]
    body: bytes


class ChannelParts(Struct, frozen=True, kw_only=True):
    """The parts of letters: the texts, this server's keys, links that decide, the operator's address."""

    messages: Messages
    links: DecisionLinks
    keys: KeyFiles
    contact: str


class Channel(Struct, frozen=True, kw_only=True):
    """A row. `letter` takes the delivery, its target, the time of the attempt and the parts.

    It raises StoreFailed, and OSError where a key cannot be read. With a status of `forgotten_at` a target is removed,
    for the reason `forgotten`; one of `unfit_at` is the same each time, so that attempt is the last.
    """

    kind: str
    words: str
    family: Family
    letter: Callable[[DeliveryRow, TargetRow, float, ChannelParts], Awaitable[Letter]]
    signs: bool = False  # with a secret, which its owner is shown once
    forgotten_at: frozenset[int] = frozenset()
    forgotten: str = ""
    unfit_at: frozenset[int] = frozenset()
