"""Settings of notifications, shared links, and titles that a model writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, field_validator

from app.core.settings_fields import setting, whole


def _as_titles(value: object) -> object:
    """The words that this setting had when it was a switch."""
    return {"true": "always", "false": "never"}.get(str(value).lower(), value)


class NotificationSettings(BaseModel, defer_build=True):
    """Webhooks, Web Push, generated titles."""

    max_notification_targets: int = whole(
        16, 0, 1000, "webhooks, and browsers with notifications, that one principal may have; 0 for none"
    )
    budget_notice_percent: int = whole(
        80, 0, 100, "percent of a budget from which on it is notified as nearly spent; 0 for never"
    )
    public_url: str | None = setting(
        None,
        "address at which people reach this server, for links in notifications (default: links without a host)",
        "an http or https URL without a password in it, such as https://agent.example.org",
    )
    decision_link_time_limit_s: int = whole(
        0,
        0,
        604_800,
        "seconds for which a link in a webhook decides a call that waits for approval, without a sign-in; 0 for none",
    )
    sharing: Literal["off", "admins", "users"] = setting(
        "users",
        "who may share a conversation by a read-only link; guests never may, and links of those who may not any more "
        "lead nowhere",
        "off, admins or users",
    )
    generated_titles: Annotated[Literal["watched", "always", "never"], BeforeValidator(_as_titles)] = setting(
        "watched",
        "have the utility model write a title and a summary of conversations, in their owner's budget: of those that a "
        "person watches on the page or in `dragoman chat`, of all, or of none; the embedded model is never asked",
        "watched, always or never",
    )
    push_contact: str = setting(
        "mailto:admin@dragoman.invalid",
        "contact of the operator, which push services see; some of them refuse one that does not exist",
        "mailto: with an address, or an https URL",
    )

    @field_validator("push_contact")
    @classmethod
    def _contact(cls, value: str) -> str:
        if not value.startswith(("mailto:", "https://")) or " " in value:
            raise ValueError("is neither mailto: nor https:")
        return value
