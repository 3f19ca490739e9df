"""All models that the server can ask: which there are, by what names, and the way to each."""

from __future__ import annotations

from app.endpoints.route import Route
from app.endpoints.target import Target


class UnknownModel(Exception):
    """There is no such model. The message says which there are."""


class Models:
    """`default` answers whoever names no model."""

    def __init__(self, default: Target) -> None:
        self.default = default

    def route(self, wanted: str | None, asker: str) -> Route:
        """To the model of that name (`model`, `endpoint/model`, an alias), for `asker`. Raises UnknownModel."""
        if wanted not in (None, self.default.provider.model, self.default.name):
            raise UnknownModel(f"there is no {wanted[:80]!a}; there is {self.default.provider.model}")
        return Route([self.default], asker)

    def utility(self, route: Route) -> Route:
        """To the model of summaries and judges, for a run that goes `route`."""
        return route

    async def close(self) -> None:
        await self.default.provider.close()
