"""All models that the server can ask: which there are, by what names, and the way to each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from app.core.endpoint_spec import EndpointSpec
from app.models.capabilities.name_hints import suggested
from app.models.endpoints.answer_limit import MOST_CHARACTERS
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.failover import PATIENCE, Route
from app.models.endpoints.model_handle import Target
from app.models.endpoints.model_names import Endpoints, Place, is_spelled_out, place_of, resolve_alias, unknown
from app.models.endpoints.server_state import Host
from app.models.server_connection import UnusableConnection, absent

GONE = "The setting model names {}, and no endpoint has it any more: add one that has it, or start again."
NONE_LEFT = "There is no endpoint any more: add one with `dragoman endpoint add`, or start again."


class UnknownModel(Exception):
    """There is no such model. The message says which there are."""


class Models:
    """The models of `endpoints`, the first of which answers whoever names no model, if `wanted` names no other.

    `fallback` are those that stand in for others, in order; `helper` is the one of summaries and judges.
    Raises ValueError for aliases that form a cycle.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        aliases: Mapping[str, str] | None = None,
        fallback: Sequence[str] = (),
        helper: str | None = None,
    ) -> None:
        self.endpoints = endpoints
        self.aliases = aliases or {}
        for alias in self.aliases:
            resolve_alias(alias, self.aliases)
        self.fallback = fallback
        self.helper = helper
        self.wanted: str | None = None
        self.patience = PATIENCE
        self.most_characters = MOST_CHARACTERS  # of an answer
        self.may_ask: Callable[[], None] = lambda: None  # raises what forbids that any model is asked

    @property
    def default(self) -> Target:
        """Answers whoever names no model."""
        endpoint, model = self._default
        return endpoint.target(model)

    @property
    def endpoint(self) -> Endpoint:
        """The one that has the default model."""
        return self._default[0]

    @property
    def _default(self) -> Place:
        if self.wanted:
            return place_of(self.wanted, self.aliases, self.endpoints) or (self._gone, None)
        return (self.first if self.endpoints else self._gone), None

    @property
    def first(self) -> Endpoint:
        return next(iter(self.endpoints.values()))

    @cached_property
    def _gone(self) -> Endpoint:
        """Stands for a default model that was removed since: another one must not answer as if nothing had been."""
        head, slash, model = resolve_alias(self.wanted or "", self.aliases).partition("/")
        name = head if slash else "none"
        connection = UnusableConnection(absent(GONE.format(self.wanted) if self.wanted else NONE_LEFT))
        spec = EndpointSpec.model_construct(url="scripted:", model=(model if slash else head) or None)
        return Endpoint(name, spec, "built in", connection, Host(name))

    def route(self, wanted: str | None, principal: str) -> Route:
        """To the model of that name (an alias, `endpoint/model`, a model, an endpoint), for `principal`.

        Raises UnknownModel.
        """
        target = self.default if wanted is None else self._found(wanted)
        if target is None:
            for endpoint in self.endpoints.values():
                endpoint.look()  # it may have the model by now
            raise UnknownModel(unknown(wanted or "", self.aliases, self.endpoints))
        return self._way([target, *self._stand_ins()], principal)

    def utility(self, route: Route) -> Route:
        """To the model of summaries and judges, for a run that goes `route`; the run's own models stand in for it."""
        target = self._found(self.helper) if self.helper else None
        return self._way([target, *route.targets], route.principal) if target else route

    def _way(self, targets: Sequence[Target], principal: str) -> Route:
        """Each of them once."""
        return Route(
            list(dict.fromkeys(targets)), principal, self.patience, self.may_ask, self.able, self.most_characters
        )

    def able(self, ability: str) -> list[str]:
        """The models that have it: as is known of those in use, or stated of their endpoint, or by their names."""
        found: dict[str, bool | None] = {}
        for endpoint in self.endpoints.values():
            stated = {"images": endpoint.spec.images, "pdf": endpoint.spec.pdf}.get(ability)
            for model in endpoint.models():
                found[f"{endpoint.name}/{model}"] = suggested(model).get(ability) if stated is None else stated
            known = ((target.name, target.sees(ability)) for target in endpoint.targets())
            found.update((name, sees) for name, sees in known if sees is not None)
        return [name for name, sees in found.items() if sees]

    def needed_by(self, endpoint: str) -> str | None:
        """Which setting could not be followed without this endpoint."""
        others = {name: one for name, one in self.endpoints.items() if name != endpoint}
        wrong_now = set(self.wrong())
        return next((setting for setting, name in self.wrong(others) if (setting, name) not in wrong_now), None)

    def wrong(self, endpoints: Endpoints | None = None) -> Iterator[tuple[str, str]]:
        """Settings that name a model that no endpoint can be known to have, each with that name.

        What servers list of themselves does not count: that changes, and is not known at start.
        """
        there = self.endpoints if endpoints is None else endpoints
        named = [("fallback", name) for name in self.fallback]
        named += [(setting, name) for setting, name in (("model", self.wanted), ("utility", self.helper)) if name]
        named += [("aliases", name) for name in self.aliases]
        for setting, name in named:
            if not is_spelled_out(name, self.aliases, there):
                yield setting, name

    def _found(self, name: str) -> Target | None:
        place = place_of(name, self.aliases, self.endpoints)
        return place[0].target(place[1]) if place else None

    def _stand_ins(self) -> list[Target]:
        return [target for name in self.fallback if (target := self._found(name))]
