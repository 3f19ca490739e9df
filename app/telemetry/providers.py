"""The provider of a model request in the words of the conventions, and the address of its server."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from app.core.provider import Provider
from app.models.endpoints.failover import ModelRoute
from app.models.wire.anthropic.provider import AnthropicMessages
from app.models.wire.hosted_provider import HostedProvider
from app.telemetry.conventions import ADDRESS, PORT, PROVIDER

# The end of a host's name -> the well-known value of `gen_ai.provider.name`.
KNOWN = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"),
    ("amazonaws.com", "aws.bedrock"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("api.mistral.ai", "mistral_ai"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.cohere.com", "cohere"),
    ("api.moonshot.ai", "moonshot_ai"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
)
OWN_PROVIDER = "dragoman"
DEFAULT_PORTS = {"http": 80, "https": 443}


def provider_attributes(provider: Provider) -> dict[str, str | int]:
    """Return the attributes that name the provider of the last request, or else of the next one."""
    provider = answering(provider)
    if not isinstance(provider, HostedProvider):  # in this process, or one that it has started
        return {PROVIDER.name: OWN_PROVIDER}
    api = "anthropic" if isinstance(provider, AnthropicMessages) else "openai"
    return {PROVIDER.name: known_provider(provider.base_url) or api, **server_attributes(provider.base_url)}


def answering(provider: Provider) -> Provider:
    """Return the provider that has answered, or else answers next."""
    return provider.last.provider if isinstance(provider, ModelRoute) else provider


@lru_cache(256)
def known_provider(url: str) -> str:
    """Return the well-known name of a hosted provider; empty for any other server."""
    host = urlsplit(url).hostname or ""
    return next((name for end, name in KNOWN if host == end or host.endswith(f".{end}")), "")


@lru_cache(256)
def server_attributes(url: str) -> dict[str, str | int]:
    """Return the host and the port of a URL. Shared: do not change it."""
    parts = urlsplit(url)
    if not parts.hostname:
        return {}
    return {ADDRESS.name: parts.hostname, PORT.name: parts.port or DEFAULT_PORTS.get(parts.scheme, 0)}
