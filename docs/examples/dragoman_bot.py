"""The part that the bots share: a message begins a run of its conversation, and the run's events become words."""

import json
import os
import threading
import time
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

URL = os.environ.get("DRAGOMAN_URL", "http://localhost:8724")
AWAY = (502, 503)
UNFIT = (HTTPError, LookupError, TypeError, AttributeError, ValueError)  # of an event, as it would be again


def fetch(url, body=None, method=None, **headers):
    """The answer as JSON, asked again while the service is away or busy. Raises OSError, of which HTTPError is one.

    What dragoman refuses (429, 409) is not asked again: others of the chat would wait for it.
    """
    again = AWAY if url.startswith(URL) else (429, *AWAY)
    for seconds in (1, 2, 4, 8, None):
        try:
            data = None if body is None else json.dumps(body).encode()
            request = Request(url, data, {"Content-Type": "application/json"} | headers, method=method)
            with urlopen(request, timeout=90) as answer:
                return json.loads(answer.read() or b"{}")
        except HTTPError as refused:
            if refused.code not in again or seconds is None:
                raise
            time.sleep(min(30, float(refused.headers.get("Retry-After") or seconds)))
    return None


def words_of(refused):
    try:
        return json.load(refused)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"The agent cannot answer now (HTTP {refused.code}). Try again later."


def serve(port, on_request):
    """Answer POST requests: `on_request` takes the body and the headers, and returns a status and a JSON value."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            try:
                length = min(int(self.headers["Content-Length"]), 1 << 20)  # a longer one is not what was signed
                status, answer = on_request(self.rfile.read(max(0, length)), self.headers)
            except OSError:  # dragoman or the service is not reached: the service sends it again
                status, answer = 503, {}
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", port))), Handler)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()


class Bot:
    def __init__(self, platform):
        self.platform, self.token = platform, f"Bearer {os.environ['DRAGOMAN_TOKEN']}"
        self.seen, self.answered, self.followed, self.lock = set(), set(), set(), threading.Lock()

    def send(self, path, body, member, **headers):
        headers |= {"Authorization": self.token, "X-Dragoman-Member": member}
        try:
            return fetch(f"{URL}{path}", body, **headers), None
        except HTTPError as refused:
            return None, words_of(refused)

    def handle(self, text, *, chat, member, once, say, ask):
        """Begin the run of a message, in order and once, and answer beside. Raises OSError: then send it again."""
        with self.lock:  # a service sends a message again that is not answered at once
            if once not in self.seen:
                self.begin(text, chat, member, once, say, ask)
                self.seen.add(once)

    def begin(self, text, chat, member, once, say, ask):
        if text.startswith("/link "):
            linked, problem = self.send("/member-links", {"code": text[6:]}, member)
            return say(problem or f"Linked to {linked['account']}.")
        body = {"message": text, "conversation": f"{self.platform}:{chat}", "when_busy": "queue"}
        body["channel"] = "messenger"  # plain text
        headers = {"Prefer": "respond-async", "Idempotency-Key": f"{self.platform}-{once}"}
        begun, problem = self.send("/chat", body, member, **headers)
        if problem:
            return say(problem)
        self.answered.add(begun["run"])
        return threading.Thread(target=self.converse, args=(begun, member, say, ask), daemon=True).start()

    def converse(self, begun, member, say, ask):
        """Answer a message; then, while its conversation has reminders, answer those."""
        session, since = begun["session"], time.time()
        self.answer(begun["run"], member, say, ask)
        with self.lock:
            if session in self.followed:
                return
            self.followed.add(session)
        try:
            self.follow(session, since, member, say, ask)
        finally:
            self.followed.discard(session)

    def follow(self, session, since, member, say, ask):
        """Answer what reminders of a conversation have begun since then, until it has none any more."""
        while True:
            try:
                found = fetch(f"{URL}/schedules", **{"Authorization": self.token, "X-Dragoman-Member": member})
            except (OSError, HTTPException) as problem:
                if getattr(problem, "code", 0) in (401, 403):
                    return  # the member or the token has no rights any more
                time.sleep(10)
                continue
            theirs = [one for one in found["schedules"] if one["session"] == session]
            for last in (last for one in theirs for last in one["last"] if last["run"] and last["at"] >= since):
                if last["run"] not in self.answered:
                    self.answered.add(last["run"])
                    self.answer(last["run"], member, say, ask)
            if not (times := [one["next"] for one in theirs if one["next"]]):
                return
            time.sleep(min(60, max(2, min(times) - time.time())))

    def answer(self, run, member, say, ask):
        """Read the events of a run, again from the last one where the connection breaks; `ask` shows a question."""
        after, headers = 0, {"Authorization": self.token, "X-Dragoman-Member": member}
        while True:
            try:
                with urlopen(Request(f"{URL}/runs/{run}/events?after={after}", headers=headers), timeout=90) as lines:
                    for line in lines:
                        if line.startswith(b"id: "):
                            number = int(line[4:])
                        elif line.startswith(b"data: "):
                            if (event := json.loads(line[6:]))["type"] == "approval.required":
                                wish = json.dumps(event["arguments"], ensure_ascii=False)[:1500]
                                ask(f"May I run {event['name']} {wish}? {event['reason']}", f"{run}/{event['call']}")
                            elif event["type"] in ("run.finished", "run.failed"):
                                return say(event.get("text") or event.get("message") or f"({event['reason']})")
                            after = number
            except HTTPError as refused:
                if refused.code not in (429, *AWAY):
                    raise
                time.sleep(5)
            except (OSError, HTTPException):
                time.sleep(1)

    def decide(self, question, member, *, approve):
        """Decide on a call for this person; return words for the chat. Others than the one who asked are refused."""
        run, call = question.split("/")
        decision = {"decision": "approve" if approve else "deny"}
        _, problem = self.send(f"/runs/{run}/approvals/{call}", decision, member)
        return problem or ("Approved." if approve else "Denied.")
