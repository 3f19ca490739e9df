"""A header in which a proxy names the person: believed from its address only, once, in one spelling."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import LIMIT_S, answer, bearer, error_of, parsed, port_of
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
Lines = tuple[str | bytes, ...]


def configure(folder: Path, network: str) -> None:
    (folder / "dragoman.toml").write_text(
        f"""
        public_url = "https://agent.example.org"
        [trusted_header]
        user = "Remote-User"
        groups = "Remote-Groups"
        from = ["{network}"]
        roles = {{ chiefs = "admin", staff = "user", "Küche" = "user" }}
        """
    )


async def sent(
    served: Served, *lines: str | bytes, path: str = "/people", host: str = "agent.example.org"
) -> tuple[int, str]:
    written = [f"GET {path} HTTP/1.1", f"Host: {host}", *lines, "Connection: close", "", ""]
    request = b"\r\n".join(line if isinstance(line, bytes) else line.encode() for line in written)
    status, _, body = parsed(await answer(port_of(served), request))
    return status, error_of(body) if status >= 400 else ""


CHIEF: Lines = ("Remote-User: root@example.org", "Remote-Groups: x, chiefs")
FROM_PROXY: dict[Lines, tuple[int, str]] = {
    CHIEF: (200, ""),
    ("remote-user: ann", "REMOTE-GROUPS: staff"): (403, "forbidden"),
    ("Remote-User: eve", "Remote-Groups: guests"): (403, "not_admitted"),
    ("Remote-User: eve",): (403, "not_admitted"),
    (): (401, "unauthorized"),
    ("Remote-User:", "Remote-Groups: chiefs"): (400, "untrusted_header"),
    ("Remote-Groups: chiefs",): (400, "untrusted_header"),
    (*CHIEF, "Remote-User: ann"): (400, "untrusted_header"),
    (*CHIEF, "Remote-Groups: staff"): (400, "untrusted_header"),
    (*CHIEF, "Remote_User: ann"): (400, "untrusted_header"),
    ("Remote_User: root", "Remote_Groups: chiefs"): (400, "untrusted_header"),
    ("rEMOTE_uSER: root",): (400, "untrusted_header"),
    (*CHIEF, "X-Forwarded-For: 203.0.113.9"): (200, ""),  # the address of the connection counts
    (*CHIEF, "Authorization: Bearer dgm_wrong"): (200, ""),  # a person who came by the proxy is that person
    ("Remote-User: Änne", "Remote-Groups: Küche"): (403, "forbidden"),
    (b"Remote-User: \xc4nne", "Remote-Groups: chiefs"): (400, "untrusted_header"),
    (*CHIEF, "Origin: https://evil.example"): (403, "wrong_origin"),
    (*CHIEF, "Sec-Fetch-Site: cross-site"): (403, "wrong_site"),
}


async def test_a_person_is_who_the_proxy_says(tmp_path: Path) -> None:
    configure(tmp_path, "127.0.0.0/8")
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."])) as served:
        wrong = {}
        for lines, expected in FROM_PROXY.items():
            if (seen := await sent(served, *lines)) != expected:
                wrong[lines] = seen
        assert not wrong
        assert await sent(served, *CHIEF, host="evil.example") == (403, "wrong_host")  # DNS rebinding
        people = {row.name: row.role for row in await served.services.store.tokens()}
        assert people == {"root-example.org": "admin", "ann": "user", "Anne": "user"}
        token = await bearer(served, "program", "admin")  # a token without the header works as it did
        assert (await served.client.get("/people", headers=token)).status_code == 200
        # Another role at the next request; then disabled by an admin.
        demoted = ("Remote-User: root@example.org", "Remote-Groups: staff")
        assert await sent(served, *demoted) == (403, "forbidden")
        off = await served.client.patch("/people/ann", headers=token, json={"disabled": True})
        assert off.status_code == 200 and off.json()["by"] == "proxy"
        assert await sent(served, "Remote-User: ann", "Remote-Groups: staff") == (401, "unauthorized")
        # No sign-in that outlasts the proxy's; and what a run does is the person's.
        headers = {"remote-user": "bob", "remote-groups": "staff", "host": "agent.example.org"}
        assert (await served.client.post("/sign-ins", headers=headers)).status_code == 409
        made = await served.client.post("/chat", headers=headers, json={"message": "Hello"})
        assert made.status_code == 200
        sessions = await served.client.get("/sessions", headers=headers)
        assert len(sessions.json()["sessions"]) == 1
        log = [(row.action, row.decision) for _, row in await served.services.store.audit(10**9, 100)]
        assert ("sign_in", "refused") in log and ("person", "made") in log


async def test_from_elsewhere_the_header_is_refused_whatever_it_says(tmp_path: Path) -> None:
    configure(tmp_path, "192.0.2.7")
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), trusted_proxies="127.0.0.1") as served:
        for lines in (CHIEF, ("Remote_User: root",), ("Remote-Groups: chiefs",)):
            for more in ((), ("X-Forwarded-For: 192.0.2.7",)):
                for path in ("/people", "/", "/livez"):
                    assert await sent(served, *lines, *more, path=path) == (400, "untrusted_header")
        assert not await served.services.store.tokens()
        body = (await served.client.get("/people", headers={"remote-user": "root"})).json()
        assert "proxies" in json.dumps(body)
        assert (await served.client.get("/people")).status_code == 401  # nor is there a local admin any more
