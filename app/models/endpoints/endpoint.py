"""One endpoint at run time: its connection, its known models, and the handles that runs use."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from app.core.endpoint_spec import EndpointSpec, Price
from app.core.provider import ProviderFailed
from app.models.capabilities.model_list import NoModelList, chat_model
from app.models.embedded.supervisor import SMOLLM2
from app.models.endpoints.keys import Key
from app.models.endpoints.model_handle import ModelHandle
from app.models.endpoints.server_state import ServerState
from app.models.http.client import is_local
from app.models.server_connection import EmbeddedConnection, ScriptedConnection, ServerConnection, UnavailableConnection
from app.models.tokens.counter import TokenCounter
from app.models.tokens.estimates import LRUCache
from app.models.wire.hosted_provider import ANY_MODEL
from tools.base.tasks import wait_at_most

LIST_LIMIT_S = 5.0  # for a server to list its models
SOON_S = 30.0  # before a failed listing is retried
LOCAL_SOON_S = 1.0  # the same of a server of this machine that is down: it may be starting
OFTEN_S = 5.0  # the shortest time between two listings
CHECK_EVERY_S = 1.0  # how often a removed endpoint is checked for runs that still use it
REFUSED_KEY = (401, 403)
MOST_HANDLES = 256  # bounded, because clients may send any name

Origin = Literal["settings", "added", "found", "built in"]


class Endpoint:
    """An endpoint. `spec` is its configuration with the defaults filled in; `problem` is what is wrong with that.

    Use `learn_forever()` as a task, and `close()` or `retire()` at the end.
    """

    def __init__(
        self,
        name: str,
        spec: EndpointSpec,
        origin: Origin,
        connection: ServerConnection,
        server: ServerState,
        *,
        prices: Mapping[str, Price] | None = None,
        problem: str = "",
    ) -> None:
        self.name = name
        self.spec = spec
        self.origin = origin
        self.connection = connection
        self.server = server
        self.problem = problem
        self._prices = prices or {}
        self._listed: tuple[str, ...] | None = None
        self._default: ModelHandle | None = None
        self._handles: LRUCache[str, ModelHandle] = LRUCache(MOST_HANDLES)
        self._in_use: weakref.WeakSet[ModelHandle] = weakref.WeakSet()  # every handle that is still referenced
        self._refresh = asyncio.Event()
        server.turned = self.refresh

    @property
    def only(self) -> tuple[str, ...] | None:
        """The only models that may be requested; None for any."""
        if self.connection.only is not None:
            return tuple(self.connection.only)
        return self.spec.named if self.spec.models else None

    @property
    def listed(self) -> tuple[str, ...]:
        """The models that the server has listed."""
        return self._listed or ()

    @property
    def usable(self) -> bool:
        """True if at least one of the configured keys could be read."""
        return not isinstance(self.connection, UnavailableConnection)

    @property
    def embedded(self) -> bool:
        """True for the small model that comes with dragoman."""
        return isinstance(self.connection, EmbeddedConnection)

    @property
    def is_built_in(self) -> bool:
        """True for the small model that comes with dragoman, and for a script."""
        return isinstance(self.connection, EmbeddedConnection | ScriptedConnection)

    @property
    def is_open(self) -> bool:
        """True if only the server knows the default model."""
        return self.only is None and self.spec.default_model is None

    @property
    def last_error(self) -> str:
        """The message of the last error; empty for none."""
        return self.server.health.last_error.message if self.server.health.last_error else ""

    def models(self) -> tuple[str, ...]:
        """Return the models known by now, the default first."""
        if self.only is not None:
            return self.only
        answers = self._default.provider.model if self._default else ANY_MODEL
        named = [answers] if answers != ANY_MODEL else []
        return tuple(dict.fromkeys((*self.spec.named, *named, *self.listed)))

    def takes(self, model: str) -> bool:
        """Return whether this model may be requested, listed or not."""
        return self.only is None or model in self.only

    @property
    def default(self) -> ModelHandle:
        """The model of requests that name only the endpoint."""
        if self._default is None:
            self._default = self._create_handle(self.spec.default_model or chat_model(self.listed))
        return self._default

    def handle(self, model: str | None = None) -> ModelHandle:
        """Return the handle of a model that `takes` accepts; of the default for None."""
        if model is None or model == self.default.provider.model:
            return self.default
        handle = self._handles.get(model)
        if handle is None:
            handle = self._create_handle(model)
            self._handles.put(model, handle)
        return handle

    def handles(self) -> list[ModelHandle]:
        """Return the handles in use or recently used, the default first."""
        return sorted(self._in_use, key=lambda handle: (handle is not self._default, handle.name))

    def _create_handle(self, model: str | None) -> ModelHandle:
        provider = self.connection.provider(model)
        counter = TokenCounter(provider, self.spec.window or (SMOLLM2.context if self.embedded else None))
        handle = ModelHandle(
            self.name, provider, counter=counter, prices=self._prices, server=self.server, labels=self.spec.labels
        )
        self._in_use.add(handle)
        return handle

    def refresh(self) -> None:
        """Ask the server for its models soon."""
        self._refresh.set()

    async def learn_forever(
        self,
        unpaused: Callable[[], Awaitable[None]],
        soon_s: float = SOON_S,
        often_s: float = OFTEN_S,
        local_soon_s: float = LOCAL_SOON_S,
    ) -> None:
        """Ask the server for its models and for the abilities of the default one: now, after `refresh`, after a
        failure, and as soon as it answers again.
        """
        learned = self._listed is not None or self.only is not None
        while True:
            await unpaused()
            learned = learned or await self.learn()
            if learned and self.connection.awake:
                await unpaused()
                await self.default.counter.window()  # also probes all other abilities of the model
            again_s = local_soon_s if self.server.health.is_down and is_local(self.spec.url) else soon_s
            await wait_at_most(None if learned else again_s, self._refresh)
            await asyncio.sleep(min(often_s, again_s))
            self._refresh.clear()
            learned = self.only is not None and not self.server.health.is_down

    async def learn(self, key: Key | None = None) -> bool:
        """List the server's models (with this key). On failure return False and record the last error."""
        key = key or self.server.keys.pick(ANY_MODEL)
        try:
            async with asyncio.timeout(LIST_LIMIT_S):
                self._listed = tuple(await self.connection.models(key.value))
        except ProviderFailed as failure:
            self.server.failed(failure)
        except NoModelList as error:
            if error.status in REFUSED_KEY:
                self.server.failed(ProviderFailed("model_auth", self._refused(key, error.status), retryable=False))
            else:
                self._failed(f"did not list its models: {error}")
        except TimeoutError:
            self._failed(f"did not list its models within {LIST_LIMIT_S:g} s")
        else:
            self.server.health.listed()
            return True
        return False

    def _refused(self, key: Key, status: int | None) -> str:
        if key.value is None:
            return f"{self.name} requires a key (status {status}). Set key_file or key_env, or send keys over HTTP."
        which = f"key {key.place} of {len(self.server.keys.keys)}"
        return f"{self.name} did not accept {which} when listing its models (status {status}). Check that key."

    def _failed(self, reason: str) -> None:
        message = f"{self.name} {reason}. Name them as {self.name}/MODEL."
        self.server.failed(ProviderFailed("model_list", message, retryable=True))

    async def retire(self, check_s: float = CHECK_EVERY_S) -> None:
        """Close the endpoint as soon as no run uses it."""
        self._default, self._handles = None, LRUCache(MOST_HANDLES)
        while True:
            await asyncio.sleep(check_s)
            if not self._in_use:
                return await self.close()

    async def close(self) -> None:
        await self.connection.close()
