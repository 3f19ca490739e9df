"""A mail server and a calendar on loopback, and the MCP servers in front of them: `make real-servers` installs them."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import httpx2

from tests import ROOT
from tests.support.mcp.real_servers import CACHE, needed
from tests.support.replicas.nginx import free_port

MAIL = CACHE / "mail"
CALENDAR = CACHE / "node/node_modules/caldav-mcp/dist/index.js"
EVENT = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//dragoman//tests//EN
BEGIN:VEVENT
UID:{uid}
DTSTAMP:20270101T080000Z
DTSTART:20270104T090000Z
DTEND:20270104T100000Z
SUMMARY:{summary}
DESCRIPTION:{description}
END:VEVENT
END:VCALENDAR
"""


@dataclass(frozen=True, slots=True)
class Daily:
    """The servers of one person: an address book has bob, and mallory could be written to, too."""

    mails: Path
    calendar: str

    def received(self) -> list[EmailMessage]:
        found = [message_from_bytes(path.read_bytes(), policy=policy.default) for path in self.mails.glob("new/*")]
        return [one for one in found if isinstance(one, EmailMessage)]

    async def invite(self, uid: str, summary: str, description: str) -> None:
        body = EVENT.format(uid=uid, summary=summary, description=description).replace("\n", "\r\n")
        async with httpx2.AsyncClient(base_url=self.calendar, auth=("ann", "x"), trust_env=False) as client:
            kind = {"Content-Type": "text/calendar"}
            answer = await client.put(f"/ann/work/{uid}.ics", content=body.encode(), headers=kind)
            assert answer.status_code in (201, 204), answer.text


@asynccontextmanager
async def daily_servers(folder: Path) -> AsyncGenerator[Daily, None]:
    """Start the servers, and write the `mcp.json` of the MCP servers in front of them into the folder."""
    smtp, dav = free_port(), free_port()
    daily = Daily(folder / "mails", f"http://127.0.0.1:{dav}")
    (folder / "radicale.cfg").write_text(
        f"[server]\nhosts = 127.0.0.1:{dav}\n[auth]\ntype = none\n[storage]\nfilesystem_folder = {folder / 'dav'}\n"
        "[logging]\nlevel = error\n"
    )
    sink = [needed(MAIL / "bin/python"), ROOT / "fixtures/mcp/smtp_sink.py", daily.mails, smtp]
    radicale = [needed(MAIL / "bin/radicale"), "-C", folder / "radicale.cfg"]
    async with _started(sink), _started(radicale):
        async with httpx2.AsyncClient(base_url=daily.calendar, auth=("ann", "x"), trust_env=False) as client:
            while True:
                try:
                    made = await client.request("MKCALENDAR", "/ann/work/")
                    break
                except httpx2.ConnectError:
                    await asyncio.sleep(0)
            assert made.status_code == 201, made.text
        await _listening(smtp)
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": _servers(folder, smtp, daily.calendar)}))
        yield daily


def _servers(folder: Path, smtp: int, calendar: str) -> dict[str, object]:
    mail = {
        "ACCOUNT_NAME": "ann",
        "EMAIL_ADDRESS": "ann@example.org",
        "PASSWORD": "x",
        "IMAP_HOST": "127.0.0.1",
        "SMTP_HOST": "127.0.0.1",
        "SMTP_PORT": str(smtp),
        "SMTP_SSL": "false",
        "SMTP_START_SSL": "false",
        "SAVE_TO_SENT": "false",
        "ALLOWED_RECIPIENTS": "bob@example.org,mallory@example.net",
        "CONFIG_PATH": str(folder / "mail.toml"),
    }
    environment = {f"MCP_EMAIL_SERVER_{name}": value for name, value in mail.items()}
    dav = {"CALDAV_BASE_URL": calendar, "CALDAV_USERNAME": "ann", "CALDAV_PASSWORD": "x"}
    return {
        "mail": {"command": str(MAIL / "bin/mcp-email-server"), "args": ["stdio"], "env": environment},
        "calendar": {"command": "node", "args": [str(needed(CALENDAR))], "env": dav},
    }


@asynccontextmanager
async def _started(words: Sequence[object]) -> AsyncGenerator[None, None]:
    process = await asyncio.create_subprocess_exec(*map(str, words), stdin=PIPE, stdout=DEVNULL, stderr=STDOUT)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def _listening(port: int) -> None:
    while True:  # bounded by the test's limit
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0)
            continue
        writer.close()
        return
