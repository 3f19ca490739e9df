"""Whether an endpoint would work: its server is asked for its models, and nothing is kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from app.core.endpoint_spec import EndpointSpec
from app.core.provider import ProviderFailed
from app.models.endpoints.endpoint import LIST_LIMIT_S
from app.models.endpoints.endpoint_factory import Opener
from app.models.endpoints.key_sources import Keys


@dataclass(frozen=True, slots=True)
class Trial:
    """`models` are those that the server lists; `problem` is what a person should know and do, empty if all is well."""

    models: tuple[str, ...] = ()
    problem: str = ""


async def tried(opener: Opener, name: str, spec: EndpointSpec, keys: Keys | None = None) -> Trial:
    """Within about 5 s for each key. Never raises."""
    endpoint = opener.opened(name, spec, "added", keys)
    try:
        async with asyncio.timeout(LIST_LIMIT_S):
            await endpoint.connection.start()
        for key in endpoint.host.keys.keys:  # each of them will be used
            if not await endpoint.learn(key):
                return Trial(endpoint.listed, endpoint.problem or endpoint.last_error)
    except ProviderFailed as failure:
        return Trial(problem=endpoint.problem or failure.message)
    except TimeoutError:
        return Trial(problem=f"It did not start within {LIST_LIMIT_S:g} s. Give it more time, then try again.")
    finally:
        await endpoint.close()
    missing = [model for model in spec.named if model not in endpoint.listed]
    if missing and endpoint.listed:
        return Trial(endpoint.listed, f"It does not list {missing[0]}: check the spelling.")
    return Trial(endpoint.listed, endpoint.problem)
