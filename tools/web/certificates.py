"""The certificates that all connections to the web trust."""

from __future__ import annotations

import ssl
from functools import cache

import httpx2


@cache
def trusted_certificates() -> ssl.SSLContext:
    """The system's certificates, whatever the environment names: read once, because that takes 40 ms."""
    return httpx2.create_ssl_context(trust_env=False)
