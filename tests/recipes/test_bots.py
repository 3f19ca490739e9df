"""The bots of docs/examples, each a process that speaks to a fake of its service and to a real server."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import Request, urlopen

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.context.run_rules import SHOWN
from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.server.approvals import WRITE
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
MOST_LINES = 60
LIMIT_S = 20


class Service:
    """A fake of a chat service: `said` are the texts that the bot has sent, `questions` those with a choice."""

    def __init__(self) -> None:
        self.said: Queue[str] = Queue()
        self.questions: Queue[tuple[str, str]] = Queue()
        self.news: Queue[dict[str, Any]] = Queue()
        self.number = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                answer = json.dumps(service.answer(self.path, body)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                with suppress(OSError):  # the bot was stopped while it waited
                    self.wfile.write(answer)

            do_PUT = do_GET = do_POST

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.port = 0  # of the bot
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def env(self) -> dict[str, str]:
        raise NotImplementedError

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        raise NotImplementedError

    def deliver(self, person: str, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def press(self, person: str, choice: str) -> None:
        raise NotImplementedError

    def next(self) -> int:
        self.number += 1
        return self.number

    def waited(self) -> list[dict[str, Any]]:
        """What a long poll answers."""
        try:
            return [self.news.get(timeout=1)]
        except Empty:
            return []

    def post(self, body: bytes, **headers: str) -> Any:
        request = Request(f"http://127.0.0.1:{self.port}/", body, headers)
        with urlopen(request, timeout=LIMIT_S) as answer:
            return json.loads(answer.read() or b"{}")


class Telegram(Service):
    def env(self) -> dict[str, str]:
        return {"TELEGRAM_URL": self.url, "TELEGRAM_TOKEN": "t"}

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        match path.rpartition("/")[2]:
            case "getUpdates":
                return {"ok": True, "result": self.waited()}
            case "sendMessage" if "reply_markup" in body:
                self.questions.put((body["text"], body["reply_markup"]["inline_keyboard"][0][0]["callback_data"]))
            case "answerCallbackQuery" | "sendMessage":
                self.said.put(body["text"])
        return {"ok": True, "result": True}

    def deliver(self, person: str, text: str, **more: Any) -> dict[str, Any]:
        message = {"chat": {"id": 7}, "from": {"id": int(person)}, "text": text} | more
        update = {"message": message, "update_id": self.next()}
        self.news.put(update)
        return update

    def press(self, person: str, choice: str) -> None:
        pressed = {"id": "1", "from": {"id": int(person)}, "data": choice}
        self.news.put({"callback_query": pressed, "update_id": self.next()})


class Matrix(Service):
    sent: ClassVar[dict[str, Any]] = {}

    def env(self) -> dict[str, str]:
        return {"MATRIX_URL": self.url, "MATRIX_USER": "@bot:x", "MATRIX_TOKEN": "t"}

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        if "/sync" in path:
            events = self.waited() if "since" in parse_qs(urlsplit(path).query) else []
            rooms = {"join": {"!r:x": {"timeline": {"events": events}}}} if events else {}
            return {"next_batch": f"s{self.next()}", "rooms": rooms}
        if "/event/" in path:
            return {"sender": "@bot:x", "content": self.sent[path.rpartition("/")[2]]}
        assert f"/rooms/{quote('!r:x')}/send/m.room.message/" in path
        event = f"$sent{self.next()}"
        if "React with" in body["body"]:
            self.sent[quote(event)] = body
            self.questions.put((body["body"], event))
        else:
            self.said.put(body["body"])
        return {"event_id": event}

    def _event(self, person: str, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        event = {"type": kind, "sender": f"@{person}:x", "event_id": f"$e{self.next()}", "content": content}
        self.news.put(event)
        return event

    def deliver(self, person: str, text: str) -> dict[str, Any]:
        return self._event(person, "m.room.message", {"msgtype": "m.text", "body": text})

    def press(self, person: str, choice: str) -> None:
        self._event(person, "m.reaction", {"m.relates_to": {"event_id": choice, "key": "👍\ufe0f"}})


class Slack(Service):
    def env(self) -> dict[str, str]:
        return {"SLACK_URL": self.url, "SLACK_TOKEN": "t", "SLACK_SECRET": "s", "PORT": "0"}

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        assert path == "/chat.postMessage" and body["channel"] == "C1"
        if blocks := body.get("blocks"):
            self.questions.put((body["text"], blocks[1]["elements"][0]["value"]))
        else:
            self.said.put(body["text"])
        return {"ok": True}

    def sign(self, body: bytes, secret: bytes = b"s") -> Any:
        at = str(int(time.time()))
        signature = "v0=" + hmac.new(secret, f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
        return self.post(body, **{"X-Slack-Request-Timestamp": at, "X-Slack-Signature": signature})

    def deliver(self, person: str, text: str) -> dict[str, Any]:
        event = {"type": "message", "channel": "C1", "user": person, "text": text}
        sent = {"type": "event_callback", "event_id": f"E{self.next()}", "event": event}
        assert self.sign(b'{"type": "url_verification", "challenge": "c"}')["challenge"] == "c"
        with pytest.raises(HTTPError, match="401"):
            self.sign(json.dumps(sent).encode(), b"wrong")
        self.sign(json.dumps(sent).encode())
        return sent

    def press(self, person: str, choice: str) -> None:
        action = {"action_id": "Yes", "value": choice}
        pressed = {"actions": [action], "channel": {"id": "C1"}, "user": {"id": person}}
        self.sign(f"payload={quote(json.dumps(pressed))}".encode())


class Discord(Service):
    key: ClassVar[Ed25519PrivateKey] = Ed25519PrivateKey.generate()

    def env(self) -> dict[str, str]:
        public = self.key.public_key().public_bytes_raw().hex()
        names = {"DISCORD_URL": self.url, "DISCORD_APPLICATION": "A", "DISCORD_PUBLIC_KEY": public}
        return names | {"DISCORD_TOKEN": "t", "PORT": "0"}

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        if path.startswith("/webhooks/A/"):
            if components := body.get("components"):
                self.questions.put((body["content"], components[0]["components"][0]["custom_id"]))
            else:
                self.said.put(body["content"])
        return {}

    def sign(self, sent: dict[str, Any], key: Ed25519PrivateKey) -> Any:
        body = json.dumps(sent).encode()
        return self.post(body, **{"X-Signature-Timestamp": "1", "X-Signature-Ed25519": key.sign(b"1" + body).hex()})

    def deliver(self, person: str, text: str) -> dict[str, Any]:
        sent = {"type": 2, "id": str(self.next()), "token": f"tok{self.number}", "channel_id": "C1"}
        sent |= {"member": {"user": {"id": person}}, "data": {"options": [{"name": "text", "value": text}]}}
        assert self.sign({"type": 1}, self.key) == {"type": 1}
        with pytest.raises(HTTPError, match="401"):
            self.sign(sent, Ed25519PrivateKey.generate())
        self.sign(sent, self.key)
        return sent

    def press(self, person: str, choice: str) -> None:
        sent = {"type": 3, "id": "9", "member": {"user": {"id": person}}, "data": {"custom_id": choice}}
        self.said.put(self.sign(sent, self.key)["data"]["content"])


SERVICES: dict[str, type[Service]] = {"telegram": Telegram, "slack": Slack, "discord": Discord, "matrix": Matrix}


@asynccontextmanager
async def bot(service: Service, env: dict[str, str], folder: Path) -> AsyncGenerator[None, None]:
    name = next(name for name, kind in SERVICES.items() if isinstance(service, kind))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / f"{name}.py"),
        env=dict(os.environ) | env,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        if "PORT" in env:
            assert process.stdout
            line = await process.stdout.readline()
            assert line.startswith(b"listening"), line
            service.port = int(line.split()[-1])
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def chatting(folder: Path, service: Service, replies: list[Any], **flags: Any) -> AsyncGenerator[Served, None]:
    """A server and the bot of this service."""
    async with asyncio.timeout(90), serving(folder, Scripted(replies, repeat=True), **flags) as served:
        token = (await bearer(served, "bot", members=True))["authorization"].removeprefix("Bearer ")
        env = service.env() | {"DRAGOMAN_URL": str(served.client.base_url).rstrip("/"), "DRAGOMAN_TOKEN": token}
        async with bot(service, env, folder):
            yield served
    service.server.shutdown()
    service.server.server_close()


async def taken(queue: Queue[Any]) -> Any:
    return await asyncio.to_thread(queue.get, timeout=LIMIT_S)


@pytest.mark.parametrize("name", SERVICES)
async def test_a_bot_in_its_chat(tmp_path: Path, name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < MOST_LINES
    provider, service = Scripted([["Hi."], [WRITE], ["Done."], ["Bye."]]), SERVICES[name]()
    async with asyncio.timeout(90), serving(tmp_path, provider, approval_user="ask") as served:
        ann = await bearer(served, "ann")
        token = (await bearer(served, "bot", members=True))["authorization"].removeprefix("Bearer ")
        env = service.env() | {"DRAGOMAN_URL": str(served.client.base_url).rstrip("/"), "DRAGOMAN_TOKEN": token}
        async with bot(service, env, tmp_path):
            first = await asyncio.to_thread(service.deliver, "1", "Hello")
            assert await taken(service.said) == "Hi."
            assert SHOWN["messenger"] in provider.requests[0].opening()[0].text
            code = (await served.client.post("/member-codes", json={"bot": "bot"}, headers=ann)).json()["code"]
            await asyncio.to_thread(service.deliver, "1", f"/link {code}")
            assert await taken(service.said) == "Linked to ann."
            await asyncio.to_thread(service.deliver, "1", "Write.")
            question, choice = await taken(service.questions)
            assert question.startswith('May I run write_file {"path": "note.txt", "content": "first')
            await asyncio.to_thread(service.press, "2", choice)
            assert "has no approval" in await taken(service.said)
            await asyncio.to_thread(service.press, "1", choice)
            words = sorted([await taken(service.said) for _ in range(2)], key=len)
            assert words[0] == "Approved." and words[1].endswith("Done.")
            assert (tmp_path / "work" / "people" / "ann" / "note.txt").read_text().startswith("first")
            if isinstance(service, Slack):  # which sends again what was not answered in time, as Telegram and Matrix do
                await asyncio.to_thread(service.sign, json.dumps(first).encode())
            elif name != "discord":
                service.news.put(first)
            await asyncio.to_thread(service.deliver, "2", "Bye")
            assert await taken(service.said) == "Bye.", "a message that comes twice is answered once"
            rows = await served.services.store.sessions("ann", 9)
            keys = await served.services.store.conversation_keys([row.id for row in rows])
            assert len(rows) == 1 and next(iter(keys.values())).startswith(f"{name}:")
    service.server.shutdown()
    service.server.server_close()


async def test_events_without_what_a_bot_needs_do_not_end_it(tmp_path: Path) -> None:
    """Members of a room can send any content; what fails is not read again and again."""
    service = Matrix()
    async with chatting(tmp_path, service, [["Hi."]]):
        service._event("eve", "m.room.message", {"msgtype": "m.text"})
        service._event("eve", "m.reaction", {"m.relates_to": {"rel_type": "m.annotation"}})
        service._event("eve", "m.room.message", {"msgtype": "m.text", "body": ["Hello"]})
        service._event("eve", "m.reaction", {"m.relates_to": "x"})
        service.deliver("1", "Hello")
        assert await taken(service.said) == "Hi."


async def test_a_member_beyond_its_budget_holds_up_no_other(tmp_path: Path) -> None:
    service = Telegram()
    async with chatting(tmp_path, service, [["Hi."]], guest_budget='{"requests_per_minute": 2}'):
        service.deliver("1", "Hello")
        assert await taken(service.said) == "Hi."
        for _ in range(3):
            service.deliver("1", "Again")
            assert "requests per minute" in await taken(service.said)
        service.deliver("2", "Hello")
        assert await taken(service.said) == "Hi."


async def test_people_who_write_for_a_group_are_that_group(tmp_path: Path) -> None:
    """Telegram gives all of them one id in `from`: they would share a member, and its memory."""
    service = Telegram()
    async with chatting(tmp_path, service, [["Hi."]]) as served:
        for group in (-1001, -1002):
            service.deliver("1087968824", "Hello", sender_chat={"id": group})
            assert await taken(service.said) == "Hi."
        members = await served.services.store.members("bot")
        assert [row.member for row in members] == ["-1001", "-1002"]


async def test_slack_gets_each_answer_once_and_no_mentions(tmp_path: Path) -> None:
    """It sends again what is not answered within 3 seconds, here at once."""
    service = Slack()
    async with chatting(tmp_path, service, [["<!channel> a & b"]]):
        event = {"type": "message", "channel": "C1", "user": "1", "text": "Hello"}
        body = json.dumps({"type": "event_callback", "event_id": "E0", "event": event}).encode()
        await asyncio.gather(*(asyncio.to_thread(service.sign, body) for _ in range(4)))
        assert await taken(service.said) == "&lt;!channel&gt; a &amp; b"
        await asyncio.to_thread(service.deliver, "2", "Hello")
        assert await taken(service.said) == "&lt;!channel&gt; a &amp; b"
        assert service.said.empty()


async def test_long_answers_are_sent_whole(tmp_path: Path) -> None:
    service = Matrix()
    async with chatting(tmp_path, service, [["é" * 40_000]]):
        service.deliver("1", "Hello")
        sent = ""
        while len(sent) < 40_000:
            sent += await taken(service.said)
        assert sent == "é" * 40_000


@pytest.mark.parametrize("linked", [False, True])
async def test_a_reminder_is_set_and_answered_in_its_chat(tmp_path: Path, linked: bool) -> None:
    at = datetime.fromtimestamp(time.time() + 4, UTC).isoformat(timespec="seconds")
    wish = {"action": "add", "name": "tea", "message": "Tea!", "once": at}
    call = f"<tool_call>{json.dumps({'name': 'manage_schedules', 'arguments': wish})}</tool_call>"
    provider, service = Scripted([[call], ["Set."], ["Tea."]]), Telegram()
    async with asyncio.timeout(90), serving(tmp_path, provider) as served:
        ann = await bearer(served, "ann")
        token = (await bearer(served, "bot", members=True))["authorization"].removeprefix("Bearer ")
        env = service.env() | {"DRAGOMAN_URL": str(served.client.base_url).rstrip("/"), "DRAGOMAN_TOKEN": token}
        async with bot(service, env, tmp_path):
            if linked:
                code = (await served.client.post("/member-codes", json={"bot": "bot"}, headers=ann)).json()["code"]
                service.deliver("1", f"/link {code}")
                assert await taken(service.said) == "Linked to ann."
            service.deliver("1", "Remind me.")
            question, choice = await taken(service.questions)
            assert "A run begins by itself and answers in this conversation" in question
            service.press("1", choice)
            assert sorted([(await taken(service.said))[-9:] for _ in range(2)]) == ["Approved.", "Set."]
            assert (await taken(service.said)).endswith("Tea.")
    service.server.shutdown()
    service.server.server_close()
