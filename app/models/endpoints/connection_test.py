"""Connection test: list the models of an endpoint's server without adding the endpoint."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from app.core.endpoint_spec import EndpointSpec
from app.core.provider import ProviderFailed
from app.models.endpoints.endpoint import LIST_LIMIT_S
from app.models.endpoints.endpoint_factory import EndpointFactory
from app.models.endpoints.key_sources import Keys


class ConnectionReport(Struct, frozen=True):
    """Result of the test. `models` are those that the server lists; `problem` says what to fix, empty if nothing."""

    models: tuple[str, ...] = ()
    problem: str = ""


async def check_connection(
    factory: EndpointFactory, name: str, spec: EndpointSpec, keys: Keys | None = None
) -> ConnectionReport:
    """Test every key, each within about 5 s. Never raises."""
    endpoint = factory.create(name, spec, "added", keys)
    try:
        async with asyncio.timeout(LIST_LIMIT_S):
            await endpoint.connection.start()
        for key in endpoint.server.keys.keys:  # every key may be used later
            if not await endpoint.learn(key):
                return ConnectionReport(endpoint.listed, endpoint.problem or endpoint.last_error)
    except ProviderFailed as failure:
        return ConnectionReport(problem=endpoint.problem or failure.message)
    except TimeoutError:
        return ConnectionReport(
            problem=f"It did not start within {LIST_LIMIT_S:g} s. Give it more time, then try again."
        )
    finally:
        await endpoint.close()
    missing = [model for model in spec.named if model not in endpoint.listed]
    if missing and endpoint.listed:
        return ConnectionReport(endpoint.listed, f"It does not list {missing[0]}: check the spelling.")
    return ConnectionReport(endpoint.listed, endpoint.problem)
