"""Rate limits of deliveries to triggers, which no token identifies."""

from __future__ import annotations

from msgspec import Struct, field

from routes.access.rate_limits import RateLimiter


class DeliveryLimits(Struct, frozen=True):
    """`wrong` counts deliveries that prove nothing by client, `each` the others by trigger."""

    wrong: RateLimiter = field(default_factory=RateLimiter)
    each: RateLimiter = field(default_factory=RateLimiter)
