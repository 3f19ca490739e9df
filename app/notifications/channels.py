"""The channels: programs with signed webhooks, phones with ntfy, and browsers with Web Push."""

from __future__ import annotations

from http import HTTPStatus

from app.notifications.channel import BROWSERS, WEBHOOKS, Channel, Family
from app.notifications.ntfy import ntfy_letter
from app.notifications.signed_webhook import signed_letter
from app.notifications.web_push import push_letter
from app.storage.notices.notifications import PUSH, WEBHOOK, TargetRow

CHANNELS = {
    row.kind: row
    for row in (
        Channel(kind=WEBHOOK, words="Signed JSON", family=WEBHOOKS, letter=signed_letter, signs=True),
        Channel(kind="ntfy", words="ntfy", family=WEBHOOKS, letter=ntfy_letter),
        Channel(
            kind=PUSH,
            words="Web Push",
            family=BROWSERS,
            letter=push_letter,
            forgotten_at=frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE}),  # the browser is not subscribed any more
            forgotten="The push service does not know it.",
            unfit_at=frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, 413}),
        ),
    )
}


def family_of(target: TargetRow) -> Family:
    return CHANNELS[target.kind].family
