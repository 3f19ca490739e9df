"""All configured models: resolve names and aliases to a route with its fallbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

from app.core.endpoint_spec import EndpointSpec
from app.core.labels import NO_POLICY, Clearance, LabelPolicy, Labels
from app.core.provider import CallForm
from app.models import demonstration
from app.models.capabilities.name_hints import hints_for
from app.models.endpoints.answer_limit import MOST_CHARACTERS
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.failover import BACKOFF, ModelRoute
from app.models.endpoints.model_handle import ModelHandle
from app.models.endpoints.model_names import (
    Endpoints,
    ModelLocation,
    find_model,
    is_configured,
    resolve_alias,
    unknown_model_message,
)
from app.models.endpoints.prices import entry_of
from app.models.endpoints.server_state import ServerState
from app.models.endpoints.vision_fallback import can_see
from app.models.server_connection import FixedConnection, UnavailableConnection

NO_CHAINS: Mapping[str, Sequence[str]] = MappingProxyType({})
GONE = "The default model {} has no endpoint any more. Add an endpoint that serves it, or restart."
NONE_LEFT = "No endpoint is left. Add one with `dragoman endpoint add`, or restart."


class UnknownModel(Exception):
    """No model has this name. The message lists the models that exist."""


class Models:
    """Models of all endpoints. The default is `wanted` if set, else the first endpoint's.

    `fallback` lists fallback models in order, `fallbacks` other ones by model; `utility_model` is for summaries and
    judges. `most_characters` are those of an answer. `check_not_paused` raises Paused while no model may be asked.
    Raises ValueError for aliases that form a cycle.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        aliases: Mapping[str, str] | None = None,
        fallback: Sequence[str] = (),
        utility_model: str | None = None,
        *,
        fallbacks: Mapping[str, Sequence[str]] = NO_CHAINS,
        wanted: str | None = None,
        most_characters: int = MOST_CHARACTERS,
        labels: LabelPolicy = NO_POLICY,
        check_not_paused: Callable[[], None] = lambda: None,
    ) -> None:
        self.endpoints = endpoints
        self.aliases = aliases or {}
        for alias in self.aliases:
            resolve_alias(alias, self.aliases)
        self.fallback = fallback
        self.fallbacks = fallbacks
        self.utility_model = utility_model
        self.wanted = wanted
        self.backoff = BACKOFF
        self.labels = labels
        self._most_characters = most_characters
        self._check_not_paused = check_not_paused

    @property
    def default(self) -> ModelHandle:
        """The model of requests that name none."""
        endpoint, model = self._default
        return endpoint.handle(model)

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of the default model."""
        return self._default[0]

    @property
    def _default(self) -> ModelLocation:
        if self.wanted:
            return find_model(self.wanted, self.aliases, self.endpoints) or (self._removed_default, None)
        return next(iter(self.endpoints.values()), None) or self._removed_default, None

    @cached_property
    def _removed_default(self) -> Endpoint:
        """Placeholder for a removed default model: requests fail instead of going to another model unnoticed."""
        head, slash, model = resolve_alias(self.wanted or "", self.aliases).partition("/")
        name = head if slash else "none"
        connection = UnavailableConnection(GONE.format(self.wanted) if self.wanted else NONE_LEFT)
        spec = EndpointSpec.model_construct(url="scripted:", model=(model if slash else head) or None)
        return Endpoint(name, spec, "built in", connection, ServerState(name))

    @cached_property
    def _demonstration(self) -> Endpoint:
        """Endpoint of the demonstration: there for all, listed nowhere, since it is no model."""
        name = demonstration.NAME
        connection = FixedConnection(demonstration.Demonstration())
        return Endpoint(name, EndpointSpec.model_construct(url="scripted:"), "built in", connection, ServerState(name))

    def route(self, wanted: str | None, principal: str, labels: Labels | None = None) -> ModelRoute:
        """Return the route of `principal` to a model: an alias, `endpoint/model`, a model, an endpoint, or the default.

        `labels` are those of its requests; until they are known (None) they may have any. Raises UnknownModel.
        """
        handle = self.default if wanted is None else self._find_handle(wanted)
        if handle is None:
            for endpoint in self.endpoints.values():
                endpoint.refresh()  # it may serve the model by now
            raise UnknownModel(unknown_model_message(wanted or "", self.aliases, self.endpoints))
        route = self._route_to([handle, *self._fallbacks(handle)], principal)
        if route.clearance:
            route.clearance.labels = labels
        return route

    def utility(self, route: ModelRoute) -> ModelRoute:
        """Return the route to the utility model; the models of the run's own `route` are its fallbacks."""
        handle = self._find_handle(self.utility_model) if self.utility_model else None
        return self._route_to([handle, *route.handles], route.principal, route.clearance) if handle else route

    def _route_to(
        self, handles: Sequence[ModelHandle], principal: str, clearance: Clearance | None = None
    ) -> ModelRoute:
        """Return a route through these models, without duplicates.

        With another route's `clearance` its requests have the labels of that one.
        """
        return ModelRoute(
            list(dict.fromkeys(handles)),
            principal,
            backoff=self.backoff,
            check_not_paused=self._check_not_paused,
            models_with=self.models_with,
            most_characters=self._most_characters,
            clearance=clearance or (Clearance(self.labels) if self.labels.is_used else None),
        )

    def models_with(self, ability: str) -> list[str]:
        """Return the models with an ability: as known, configured, or suggested by their names."""
        found: dict[str, bool | CallForm | None] = {}
        for endpoint in self.endpoints.values():
            stated = {"images": endpoint.spec.images, "pdf": endpoint.spec.pdf}.get(ability)
            for model in endpoint.models():
                found[f"{endpoint.name}/{model}"] = hints_for(model).get(ability) if stated is None else stated
            known = ((handle.name, can_see(handle.provider, ability)) for handle in endpoint.handles())
            found.update((name, sees) for name, sees in known if sees is not None)
        return [name for name, sees in found.items() if sees]

    def needed_by(self, endpoint: str) -> str | None:
        """Return the setting that needs this endpoint, if one does."""
        others = {name: one for name, one in self.endpoints.items() if name != endpoint}
        invalid_now = set(self.invalid_names())
        return next(
            (setting for setting, name in self.invalid_names(others) if (setting, name) not in invalid_now), None
        )

    def invalid_names(self, endpoints: Endpoints | None = None) -> Iterator[tuple[str, str]]:
        """Yield settings with a model name that is not valid by configuration, each with that name.

        The lists of servers do not count: they change, and are unknown at start.
        """
        there = self.endpoints if endpoints is None else endpoints
        named = [("fallback", name) for name in self.fallback]
        named += [("fallbacks", name) for chain in self.fallbacks.values() for name in chain]
        named += [
            (setting, name) for setting, name in (("model", self.wanted), ("utility", self.utility_model)) if name
        ]
        named += [("aliases", name) for name in self.aliases]
        for setting, name in named:
            if not is_configured(name, self.aliases, there):
                yield setting, name

    def _find_handle(self, name: str) -> ModelHandle | None:
        place = find_model(name, self.aliases, self.endpoints)
        if place is None and name == demonstration.NAME:
            return self._demonstration.handle(None)
        return place[0].handle(place[1]) if place else None

    def _fallbacks(self, wanted: ModelHandle) -> list[ModelHandle]:
        chain = entry_of(self.fallbacks, wanted.name) if self.fallbacks else None
        return [found for name in (self.fallback if chain is None else chain) if (found := self._find_handle(name))]
