"""The HTTP client that talks to model servers, and the shape of their addresses."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import httpx2

CONNECT_LIMIT_S = 10.0
INACTIVITY_S = 300.0
# Idle connections cost: hundreds left over slow every request down. The number of active ones is the admin's affair.
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=10)


def model_client(base_url: str, *, inactivity_s: float = INACTIVITY_S) -> httpx2.AsyncClient:
    """A client for one model server. Proxies of the environment apply to remote hosts only."""
    timeout = httpx2.Timeout(inactivity_s, connect=min(CONNECT_LIMIT_S, inactivity_s), pool=None)
    # A compressed stream would arrive in blocks; identity keeps it live.
    headers = {"accept-encoding": "identity", "user-agent": "dragoman"}
    return httpx2.AsyncClient(limits=LIMITS, timeout=timeout, headers=headers, trust_env=not is_local(base_url))


def is_local(url: str) -> bool:
    """Is the host this machine or in a private network?"""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith((".localhost", ".local")):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def base_url_of(url: str) -> str:
    """The base URL as the client wants it: a bare host gets `/v1`, a pasted endpoint loses its last part."""
    base = url.strip().rstrip("/").removesuffix("/chat/completions")
    return base if urlsplit(base).path else f"{base}/v1"
