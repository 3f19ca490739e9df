"""Checks of the endpoints of models: reachable, key accepted, model listed, native calls, time to the first token."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress

from app.core.endpoint_spec import EndpointSpec
from app.core.messages import Message
from app.core.provider import ModelRequest, ProviderFailed, TextChunk
from app.models.capabilities.discovery import discover
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.endpoint_factory import EndpointFactory
from app.models.endpoints.startup import build_endpoint_factory, keys_of, specs_of
from app.models.http.client import model_client
from parsing import Thought
from routes.cli.doctor.finding import Finding, Findings, Subject, ok, problem, skipped, warning

TIME_S = 6.0  # of one endpoint, without a request to its model
TOKEN_S = 12.0
MOST_ENDPOINTS = 16
MOST_TOKENS = 8
NATIVE = {True: "native tool calls", False: "tool calls described in the prompt", None: "tool calls not known yet"}


async def models(subject: Subject) -> Findings:
    """Each endpoint of the settings and of the database: reachable, key accepted, model listed, native calls."""
    settings = subject.settings
    factory = build_endpoint_factory(settings, subject.redactor, subject.environ)
    specs = specs_of(settings, subject.stored.endpoints)
    if not specs:
        return await _discovered(subject, factory)
    shown = list(specs.items())[:MOST_ENDPOINTS]
    findings = list(await asyncio.gather(*(_look(subject, factory, name, spec) for name, spec in shown)))
    if len(specs) > MOST_ENDPOINTS:
        findings.append(skipped(f"{len(specs) - MOST_ENDPOINTS} more endpoints", "`dragoman endpoint test NAME`"))
    return findings


async def _discovered(subject: Subject, factory: EndpointFactory) -> Finding:
    """Without any endpoint the server looks for one on this machine, else it runs the embedded model."""
    async with model_client("http://127.0.0.1") as client:
        known = await discover(client)
    if known is None:
        found = "none is configured, and none answers on a well-known port: the embedded model would be used"
        return ok(found)
    spec = EndpointSpec(url=known.server.base_url, model=subject.settings.model or known.model)
    return await _look(subject, factory, known.server.name, spec)


async def _look(subject: Subject, factory: EndpointFactory, name: str, spec: EndpointSpec) -> Finding:
    endpoint = factory.create(name, spec, "added", keys_of(subject.settings, name))
    try:
        async with asyncio.timeout(TIME_S + (TOKEN_S if subject.ask_model else 0)):
            return await _tried(subject, endpoint)
    except ProviderFailed as failure:
        return problem(failure.message, f"`dragoman endpoint test {name}` tries it again.", name)
    except TimeoutError:
        return problem("did not answer in time", f"Look at that server; `dragoman endpoint test {name}`.", name)
    finally:
        await endpoint.close()


async def _tried(subject: Subject, endpoint: Endpoint) -> Finding:
    """Raises ProviderFailed, TimeoutError."""
    name = endpoint.name
    if endpoint.problem:
        return problem(endpoint.problem, "Correct its keys or its URL in the settings.", name)
    if not endpoint.connection.awake and not subject.ask_model:
        return ok("started when it is needed; --ask-model tries it", name)
    for key in endpoint.server.keys.keys:
        if not await endpoint.learn(key):
            return problem(endpoint.last_error, "Check its URL and its keys; is that server running?", name)
    missing = [model for model in endpoint.spec.named if model not in endpoint.listed]
    if missing and endpoint.listed:
        some = ", ".join(endpoint.listed[:5])
        return problem(f"does not list {missing[0]}", f"Check the spelling. It lists {some}.", name)
    found = f"lists {len(endpoint.listed)} models, answers as {endpoint.default.provider.model}"
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await endpoint.default.counter.window()  # asks for its abilities, too
    native = endpoint.default.provider.ability("tools").value
    found += f", {NATIVE[native if isinstance(native, bool) else None]}"
    return await _first_token(endpoint, found) if subject.ask_model else ok(found, name)


async def _first_token(endpoint: Endpoint, found: str) -> Finding:
    """One tiny request. Raises ProviderFailed, TimeoutError."""
    request = ModelRequest([Message("user", "Say OK.")], max_tokens=MOST_TOKENS, verbatim=True)
    started = time.monotonic()
    async with aclosing(endpoint.default.provider.stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, TextChunk | Thought) and piece.text:
                return ok(f"{found}, first token after {(time.monotonic() - started) * 1000:.0f} ms", endpoint.name)
    return warning(f"{found}, gave an empty answer", "Try it with `dragoman chat`.", endpoint.name)
