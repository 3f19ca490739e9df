"""Settings of connections and guests: their limits, and the trusted proxies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

from app.core.settings_fields import seconds, setting, whole, words

Limit = Literal["runs", "requests_per_minute", "tokens_per_month", "tool_seconds_per_day", "cost_per_month"]


class ConnectionSettings(BaseModel, defer_build=True):
    """Connections, proxies and guests."""

    max_connections: int = whole(
        4096,
        8,
        1_000_000,
        "open connections; idle ones are closed to make room (fewer if the limit of open files requires it)",
    )
    max_connections_per_address: int = whole(
        1024, 4, 1_000_000, "open connections of one address at a time; for IPv6, of one /64"
    )
    trusted_proxies: tuple[str, ...] = words(
        (),
        "proxies whose X-Forwarded-For is trusted, and whose connections are not limited per address",
        "addresses and networks, such as 10.0.0.2 or 10.0.0.0/8",
    )
    guest_budget: Mapping[Limit, Annotated[int | float, Field(gt=0, le=10**12, allow_inf_nan=False)]] = setting(
        {"runs": 4, "tokens_per_month": 500_000},
        "budget of each guest and of each member of a bot's chats, where its token has none of its own",
        f"a table such as {{tokens_per_month = 100000}}, with {', '.join(get_args(Limit))}",
    )
    max_members: int = whole(1000, 0, 10**6, "members of one bot's chats that are remembered; 0 takes no new ones")
    apps_origin: str | None = setting(
        None,
        "an origin that leads to this server under another host, for frames with apps of MCP servers (default: none)",
        "an http or https URL without a path, such as https://apps.example.org",
    )
    drain_delay_s: float = seconds(
        0.0,
        "time for which a server that was stopped still serves, so that load balancers that ask /readyz turn to others",
        low=0,
        high=600,
    )

    @field_validator("guest_budget")
    @classmethod
    def _whole(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        if any(isinstance(amount, float) and name != "cost_per_month" for name, amount in value.items()):
            raise ValueError("has a fraction, which only cost_per_month may have")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            ip_network(one)  # raises ValueError
        return value


def apps_origin_problems(apps_origin: str | None, public_url: str | None) -> Iterator[str]:
    """Yield why the origin of apps is none of their own: cookies of a host count for all of its ports."""
    apps, page = urlsplit(apps_origin or ""), urlsplit(public_url or "")
    if apps_origin and (not page.hostname or apps.path or apps.hostname in (page.hostname, "localhost", "127.0.0.1")):
        yield "apps_origin needs public_url, and must be an origin without a path, of another host than that."
