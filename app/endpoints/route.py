"""The way of one run's requests to a model: the one that was wanted, or who stands in for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from app.context.counter import Counter
from app.endpoints.target import Target
from app.messages import Message
from app.provider import Ability, ModelRequest, Piece, Used


@dataclass(slots=True)
class Route:
    """A Provider for one run of `asker`: it answers as the first of `targets` that can."""

    targets: Sequence[Target]
    asker: str = ""

    @property
    def current(self) -> Target:
        """The model that the next request is for."""
        return self.targets[0]

    @property
    def model(self) -> str:
        return self.current.provider.model

    @property
    def native_tools(self) -> bool:
        return self.current.provider.native_tools

    @property
    def teach_fences(self) -> bool:
        return self.current.provider.teach_fences

    @property
    def counter(self) -> Counter:
        """Of the model that the next request is for."""
        return self.current.counter

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        async with aclosing(self.current.provider.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def window(self) -> int | None:
        return await self.current.provider.window()

    async def count_tokens(self, texts: Sequence[str]) -> list[int] | None:
        return await self.current.provider.count_tokens(texts)

    def added(self, message: Message) -> str:
        return self.current.provider.added(message)

    def prompt_suffix(self) -> str:
        return self.current.provider.prompt_suffix()

    def abilities(self) -> Sequence[Ability]:
        return self.current.provider.abilities()

    def cost(self, used: Used) -> float | None:
        return self.current.cost(used)

    @property
    def answers(self) -> str:
        return self.current.name

    async def close(self) -> None:
        """The models belong to all runs: nothing to do."""
