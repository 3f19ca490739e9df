"""Secrets in the configuration of MCP servers."""

from __future__ import annotations

import re
from itertools import pairwise
from urllib.parse import parse_qsl, urlsplit

from app.redaction.redactor import is_secret_name, secrets_in
from tools.base.patterns import lazy_pattern
from tools.mcp.model import ServerConfig

_SECRET_HEADER = lazy_pattern(r"auth|cookie|key|token|secret|password", re.IGNORECASE)


def secrets_of(config: ServerConfig) -> list[str]:
    """Secrets of how a server is started or reached, which no answer, log or database may hold."""
    headers = [value for name, value in config.headers.items() if _SECRET_HEADER.search(name)]
    after_flags = {flag: word for flag, word in pairwise(config.args) if is_secret_name(flag)}
    joined = dict(word.split("=", 1) for word in config.args if "=" in word)
    query = dict(parse_qsl(urlsplit(config.url).query))
    urls = {f"url {number}": text for number, text in enumerate((config.url, *config.args))}
    return [
        config.client_secret,
        *headers,
        *(word for value in headers for word in value.split()[1:]),  # after `Bearer`
        *(value for some in (config.env, after_flags, joined, query, urls) for value in secrets_in(some)),
    ]
