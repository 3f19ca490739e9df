"""Secrets in the configuration of MCP servers: written there, or named as `${secret:NAME}`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

from msgspec.structs import replace

from app.redaction.redactor import is_secret_name, secrets_in
from app.secrets.library import Secrets
from app.secrets.sources import SecretUnavailable
from tools.base.patterns import lazy_pattern
from tools.mcp.connection.child import CannotStart
from tools.mcp.model import ServerConfig
from tools.sandbox.network.injection import DEFAULT_PORTS, Origin

_SECRET_HEADER = lazy_pattern(r"auth|cookie|key|token|secret|password", re.IGNORECASE)
_NAMED = lazy_pattern(r"\$\{secret:(?P<name>[^}:]+)\}")


def secrets_of(config: ServerConfig) -> list[str]:
    """Secrets of how a server is started or reached, which no answer, log or database may hold."""
    headers = [value for name, value in config.headers.items() if _SECRET_HEADER.search(name)]
    after_flags = {flag: word for flag, word in pairwise(config.args) if is_secret_name(flag)}
    joined = dict(word.split("=", 1) for word in config.args if "=" in word)
    query = dict(parse_qsl(urlsplit(config.url).query))
    urls = {f"url {number}": text for number, text in enumerate((config.url, *config.args))}
    found = [
        config.client_secret,
        *headers,
        *(word for value in headers for word in value.split()[1:]),  # after `Bearer`
        *(value for some in (config.env, after_flags, joined, query, urls) for value in secrets_in(some)),
    ]
    return [text for text in found if not _NAMED.search(text)]


def names_secret(config: ServerConfig, names: Collection[str]) -> bool:
    """Return True if the configuration names one of these secrets."""
    texts = (*config.env.values(), *config.headers.values())
    return any(found["name"] in names for text in texts for found in _NAMED.finditer(text))


async def completed(secrets: Secrets, config: ServerConfig) -> ServerConfig:
    """Return the configuration with the values of the secrets that it names. Raises CannotStart."""
    if config.from_api and any(map(_NAMED.search, config.env.values())):
        raise CannotStart("A secret in env may only be named in the configuration file: leave it out.")
    url = urlsplit(config.url)
    to = Origin(url.scheme, url.hostname, url.port or DEFAULT_PORTS[url.scheme]) if url.hostname else None
    try:
        env = await _filled(secrets, config.env)
        headers = await _filled(secrets, config.headers, to, bound=config.from_api)
    except SecretUnavailable as failure:
        raise CannotStart(str(failure)) from None
    return replace(config, env=env, headers=headers)


async def _filled(
    secrets: Secrets, texts: Mapping[str, str], to: Origin | None = None, *, bound: bool = False
) -> dict[str, str]:
    filled = dict(texts)
    for field, text in texts.items():
        for found in _NAMED.finditer(text):
            filled[field] = filled[field].replace(found[0], await secrets.value(found["name"], to, bound=bound))
    return filled
