"""Handle of one model of one endpoint, shared by all runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from msgspec import Struct, field

from app.core.endpoint_spec import Price
from app.core.provider import Provider, TokenUsage
from app.models.endpoints.prices import cost_of, entry_of
from app.models.endpoints.server_state import ServerState
from app.models.endpoints.vision_fallback import can_see
from app.models.tokens.counter import TokenCounter


class ModelHandle(Struct, eq=False, weakref=True):
    """One model of an endpoint: its provider, token counter, prices and the server's state.

    `endpoint` is the endpoint's name. `prices` is the whole table, because `auto` is resolved with the first answer.
    """

    endpoint: str
    provider: Provider
    counter: TokenCounter
    prices: Mapping[str, Price] = field(default_factory=dict)
    server: ServerState = field(default_factory=ServerState)
    labels: Collection[str] | None = None  # the only ones that the endpoint may have; None without such a list
    _priced: tuple[str, Price | None] = ("", None)  # model name and its price: a cache of the last look-up

    def __post_init__(self) -> None:
        self.use_counter(self.counter)

    def use_counter(self, counter: TokenCounter) -> None:
        """Replace the token counter."""
        self.counter = counter
        # Not a method of this handle: a cycle would keep a removed endpoint open, with the process of a served model.
        counter.sees = partial(can_see, self.provider)

    def learn_slots(self) -> None:
        """Take over the number of slots that the server reports, unless a limit is configured."""
        slots = self.provider.ability("slots").value
        if isinstance(slots, int):
            self.server.queue.set_slots(slots)

    @property
    def name(self) -> str:
        return f"{self.endpoint}/{self.provider.model}"

    def cost(self, used: TokenUsage) -> float | None:
        """Return the cost of a request; None for a model without a price."""
        if not self.prices:
            return None
        if self._priced[0] != self.name:
            self._priced = self.name, entry_of(self.prices, self.name)
        _, price = self._priced
        return None if price is None else cost_of(price, used)
