"""One endpoint while dragoman runs: its server, the models that are known of it, and the targets that runs go to."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Literal

from app.core.endpoint_spec import EndpointSpec, Price
from app.core.provider import ProviderFailed
from app.models.capabilities.model_list import NoModelList, chat_model
from app.models.endpoints.keys import Key
from app.models.endpoints.model_handle import Target
from app.models.endpoints.server_state import Host
from app.models.server_connection import Connection, EmbeddedConnection, UnusableConnection
from app.models.tokens.counter import Counter
from app.models.tokens.estimates import Recent
from app.models.wire.openai.provider import ANY_MODEL

LIST_LIMIT_S = 5.0  # for a server to say which models it has
SOON_S = 30.0  # after which one that could not say it is asked again
OFTEN_S = 5.0  # the least time between two of these questions, whoever wants to know
LOOK_EVERY_S = 1.0  # how often it is looked whether a removed endpoint is still needed
REFUSED_KEY = (401, 403)
MOST_TARGETS = 256  # whoever may ask can make names up

Origin = Literal["settings", "added", "found", "built in"]


class Endpoint:
    """`spec` is what a person said of it, with what holds for all endpoints filled in; `problem` what is wrong with it.

    Use `learn_for_ever()` as a task, and `close()` or `retire()` at the end.
    """

    def __init__(
        self,
        name: str,
        spec: EndpointSpec,
        origin: Origin,
        connection: Connection,
        host: Host,
        prices: Mapping[str, Price] | None = None,
        problem: str = "",
    ) -> None:
        self.name = name
        self.spec = spec
        self.origin = origin
        self.connection = connection
        self.host = host
        self.problem = problem
        self._prices = prices or {}
        self._listed: tuple[str, ...] | None = None
        self._default: Target | None = None
        self._targets: Recent[str, Target] = Recent(MOST_TARGETS)
        self._in_use: weakref.WeakSet[Target] = weakref.WeakSet()  # all that were made, as long as anybody has them
        self._wanted = asyncio.Event()

    @property
    def only(self) -> tuple[str, ...] | None:
        """The models that may be asked for; None for any."""
        if self.connection.only is not None:
            return tuple(self.connection.only)
        return self.spec.named if self.spec.models else None

    @property
    def listed(self) -> tuple[str, ...]:
        """What the server has said that it has."""
        return self._listed or ()

    @property
    def usable(self) -> bool:
        """Whether it has the keys that it names, or some of them."""
        return not isinstance(self.connection, UnusableConnection)

    @property
    def embedded(self) -> bool:
        """Whether it has the small model that comes with dragoman, found or asked for."""
        return isinstance(self.connection, EmbeddedConnection)

    @property
    def is_open(self) -> bool:
        """Whether only its server can say which model is the first."""
        return self.only is None and self.spec.default_model is None

    @property
    def last_error(self) -> str:
        """What went wrong last, if anything did."""
        return self.host.health.last_error.message if self.host.health.last_error else ""

    def models(self) -> tuple[str, ...]:
        """Those that are known by now, the default one first."""
        if self.only is not None:
            return self.only
        answers = self._default.provider.model if self._default else ANY_MODEL
        named = [answers] if answers != ANY_MODEL else []
        return tuple(dict.fromkeys((*self.spec.named, *named, *self.listed)))

    def takes(self, model: str) -> bool:
        """Whether it may be asked for this model, listed or not."""
        return self.only is None or model in self.only

    @property
    def default(self) -> Target:
        """The model that answers who names the endpoint alone."""
        if self._default is None:
            self._default = self._target(self.spec.default_model or chat_model(self.listed))
        return self._default

    def target(self, model: str | None = None) -> Target:
        """One of the models that it takes."""
        if model is None or model == self.default.provider.model:
            return self.default
        target = self._targets.get(model)
        if target is None:
            target = self._target(model)
            self._targets.put(model, target)
        return target

    def targets(self) -> list[Target]:
        """The models that somebody uses or has used lately."""
        return sorted(self._in_use, key=lambda target: (target is not self._default, target.name))

    def _target(self, model: str | None) -> Target:
        provider = self.connection.provider(model)
        counter = Counter(provider, self.spec.window)
        target = Target(self.name, provider, counter, self._prices, self.host)
        self._in_use.add(target)
        return target

    def look(self) -> None:
        """Somebody wants to know which models there are now."""
        self._wanted.set()

    async def learn_for_ever(
        self, unpaused: Callable[[], Awaitable[None]], soon_s: float = SOON_S, often_s: float = OFTEN_S
    ) -> None:
        """Ask the server for its models and its default one's abilities: now, when somebody wants to know, and again
        after it could not say."""
        learned = self._listed is not None or self.only is not None
        while True:
            await unpaused()
            learned = learned or await self.learn()
            if learned and self.connection.awake:
                await unpaused()
                await self.default.counter.window()  # with which all is asked that its server says of a model
            with suppress(TimeoutError):
                async with asyncio.timeout(None if learned else soon_s):
                    await self._wanted.wait()
            await asyncio.sleep(often_s)
            self._wanted.clear()
            learned = self.only is not None

    async def learn(self, key: Key | None = None) -> bool:
        """Whether the server has said (to this key) which models it has; if not, its last error says why."""
        key = key or self.host.keys.pick(ANY_MODEL)
        try:
            async with asyncio.timeout(LIST_LIMIT_S):
                self._listed = tuple(await self.connection.models(key.value))
        except ProviderFailed as failure:
            self.host.failed(failure)
        except NoModelList as error:
            if error.status in REFUSED_KEY:
                self.host.failed(ProviderFailed("model_auth", self._refused(key, error.status), retryable=False))
            else:
                self._failed(f"did not list its models: {error}")
        except TimeoutError:
            self._failed(f"did not list its models within {LIST_LIMIT_S:g} s")
        else:
            return True
        return False

    def _refused(self, key: Key, status: int | None) -> str:
        if key.value is None:
            return f"{self.name} wants a key (status {status}). Give it one: key_file or key_env, or keys over HTTP."
        which = f"key {key.place} of {len(self.host.keys.keys)}"
        return f"{self.name} did not accept {which} when it was asked for its models (status {status}). Check that key."

    def _failed(self, what: str) -> None:
        message = f"{self.name} {what}. Name them as {self.name}/MODEL."
        self.host.failed(ProviderFailed("model_list", message, retryable=True))

    async def retire(self, look_s: float = LOOK_EVERY_S) -> None:
        """Close it as soon as no run uses it any more."""
        self._default, self._targets = None, Recent(MOST_TARGETS)
        while True:
            await asyncio.sleep(look_s)
            if not self._in_use:
                return await self.close()

    async def close(self) -> None:
        await self.connection.close()
