"""Model names: an alias, `endpoint/model`, a model's own name, or the name of its endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice

from app.models.endpoints.endpoint import Endpoint

MOST_SHOWN = 20
MOST_COMPARED = 1000
LONGEST_SHOWN = 80  # characters

Endpoints = Mapping[str, Endpoint]
ModelLocation = tuple[Endpoint, str | None]  # None: the endpoint's default model


def resolve_alias(name: str, aliases: Mapping[str, str]) -> str:
    """Return the name that an alias stands for, any other name unchanged. Raises ValueError for a cycle."""
    seen = [name]
    while (name := seen[-1]) in aliases:
        seen.append(aliases[name])
        if len(seen) > len(aliases) + 1:
            raise ValueError(f"aliases form a cycle: {' -> '.join(seen[:MOST_SHOWN])}. Let one of them name a model.")
    return name


def find_model(name: str, aliases: Mapping[str, str], endpoints: Endpoints) -> ModelLocation | None:
    """Return the first match: `endpoint/model`, a model that an endpoint is known to have, an endpoint."""
    name = resolve_alias(name, aliases)
    head, slash, model = name.partition("/")  # names of models may contain slashes, too
    if slash and model and head in endpoints and endpoints[head].takes(model):
        return endpoints[head], model
    for endpoint in endpoints.values():
        if name in endpoint.models():
            return endpoint, name
    return (endpoints[name], None) if name in endpoints else None


def is_configured(name: str, aliases: Mapping[str, str], endpoints: Endpoints) -> bool:
    """Return whether the name is valid by configuration alone, whatever the servers list."""
    name = resolve_alias(name, aliases)
    head, _, model = name.partition("/")
    if name in endpoints or any(name in (*one.spec.named, *(one.only or ())) for one in endpoints.values()):
        return True
    return bool(model) and head in endpoints and endpoints[head].takes(model)


def all_names(aliases: Mapping[str, str], endpoints: Endpoints) -> Iterator[str]:
    """Yield the valid values of `model`, the most specific first."""
    yield from aliases
    for endpoint in endpoints.values():
        models = endpoint.models()
        yield from (f"{endpoint.name}/{model}" for model in models) if len(endpoints) > 1 else models
        if not models:
            yield endpoint.name


def unknown_model_message(name: str, aliases: Mapping[str, str], endpoints: Endpoints) -> str:
    """Return an error message that lists the models and suggests similar names."""
    names = list(islice(all_names(aliases, endpoints), MOST_COMPARED))
    by_model = {one.partition("/")[2] or one: one for one in reversed(names)} | {one: one for one in endpoints}
    near = [by_model[one] for one in get_close_matches(name, by_model, n=3, cutoff=0.5)]
    near = list(dict.fromkeys((*near, *get_close_matches(name, names, n=3, cutoff=0.5))))
    hint = f"; did you mean {' or '.join(near[:3])}?" if near else ""
    more = ", and more: see GET /endpoints" if len(names) > MOST_SHOWN else ""
    there = f"there {'are' if len(names) > 1 else 'is'} {', '.join(names[:MOST_SHOWN])}{more}"
    return f"there is no {name[:LONGEST_SHOWN]!a}; {there}{hint}"
