"""What every stream of messages that we make for the SDK has in common."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Stream:
    """Closed when it is left."""

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
