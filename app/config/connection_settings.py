"""Settings of connections: their limits, and the trusted proxies."""

from __future__ import annotations

from ipaddress import ip_network

from pydantic import BaseModel, field_validator

from app.core.settings_fields import seconds, whole, words


class ConnectionSettings(BaseModel, defer_build=True):
    """Connections and proxies."""

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
    drain_delay_s: float = seconds(
        0.0,
        "time for which a server that was stopped still serves, so that load balancers that ask /readyz turn to others",
        low=0,
        high=600,
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            ip_network(one)  # raises ValueError
        return value
