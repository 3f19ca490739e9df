"""One model of one endpoint, as all runs share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.core.endpoint_spec import Price
from app.core.provider import Provider, Used
from app.models.endpoints.prices import cost_of, price_of
from app.models.endpoints.server_state import Host
from app.models.endpoints.vision_fallback import sees
from app.models.tokens.counter import Counter


@dataclass(slots=True, eq=False, weakref_slot=True)
class Target:
    """`endpoint` is the endpoint's name; `prices` the whole table: a model may get its name with its first answer."""

    endpoint: str
    provider: Provider
    counter: Counter
    prices: Mapping[str, Price] = field(default_factory=dict)
    host: Host = field(default_factory=Host)
    _priced: tuple[str, Price | None] = ("", None)  # what was found in the table, by the name that the model had

    def __post_init__(self) -> None:
        self.count_with(self.counter)

    def count_with(self, counter: Counter) -> None:
        """From now on."""
        self.counter = counter
        counter.sees = self.sees

    def sees(self, ability: str) -> bool | None:
        """`images` or `pdf`; None while nobody knows."""
        return sees(self.provider, ability)

    def learn_slots(self) -> None:
        """As many requests at a time as the server says that it answers, if nobody has set a number."""
        slots = next((one.value for one in self.provider.abilities() if one.name == "slots"), None)
        if isinstance(slots, int):
            self.host.queue.set_slots(slots)

    @property
    def name(self) -> str:
        return f"{self.endpoint}/{self.provider.model}"

    def cost(self, used: Used) -> float | None:
        """None for a model without a price."""
        if not self.prices:
            return None
        if self._priced[0] != self.name:
            self._priced = self.name, price_of(self.prices, self.name)
        _, price = self._priced
        return None if price is None else cost_of(price, used)
