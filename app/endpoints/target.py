"""One model of one endpoint, as all runs share it."""

from __future__ import annotations

from dataclasses import dataclass

from app.context.counter import Counter
from app.provider import Provider


@dataclass(slots=True)
class Target:
    """`endpoint` is the endpoint's name."""

    endpoint: str
    provider: Provider
    counter: Counter

    @property
    def name(self) -> str:
        return f"{self.endpoint}/{self.provider.model}"
