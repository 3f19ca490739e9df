"""The terminal client's connection: what it survives, what it says when it cannot, where it leads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx2
import pytest

from app.config.settings import Settings, load_settings
from app.core.events import AgentEvent, Notice, RunFinished, TextDelta, fields_of
from routes.terminal.chat import alone, checked_token, checked_url, client_of, default_url, sendable
from routes.terminal.child_server import answers, child_environment, own_server, status_of
from routes.terminal.event_client import ChatFailed, Choices, Link, NotTaken
from routes.terminal.talk import Talk
from tests.support.terminal.paper_terminal import Paper

ANSWERED = RunFinished("answered", "done", 1, 1, {})


class Wire(httpx2.AsyncByteStream):
    """A response body; `cut` ends it as a lost connection does."""

    def __init__(self, *blocks: bytes, cut: bool = False) -> None:
        self._blocks = blocks
        self._cut = cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for block in self._blocks:
            yield block
        if self._cut:
            raise httpx2.ReadError("connection reset")


def sse(number: int, event: AgentEvent) -> bytes:
    return f"id: {number}\nevent: {event.type}\ndata: {json.dumps(fields_of(event))}\n\n".encode()


def stream(*blocks: bytes, cut: bool = False) -> httpx2.Response:
    headers = {"content-type": "text/event-stream", "x-run-id": "r1", "x-session-id": "s1"}
    return httpx2.Response(200, headers=headers, stream=Wire(*blocks, cut=cut))


Answer = Callable[[], httpx2.Response]


def heard(*answers: Answer, pauses: int = 3) -> tuple[list[AgentEvent], list[httpx2.Request]]:
    """Ask once; the server gives these answers, one per request."""
    asked: list[httpx2.Request] = []
    waiting = iter(answers)

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return next(waiting)()

    async def listen() -> list[AgentEvent]:
        async with httpx2.AsyncClient(base_url="http://server", transport=httpx2.MockTransport(answer)) as client:
            async with (
                asyncio.timeout(30),
                aclosing(Link(client, Choices(), pauses_s=[0.0] * pauses).ask("hi")) as events,
            ):
                return [event async for event in events]

    return asyncio.run(listen()), asked


def lost() -> httpx2.Response:
    raise httpx2.ConnectError("refused")


def refused(status: int, message: str = "") -> Answer:
    body = json.dumps({"error": {"code": "x", "message": message}}) if message else "<html>"
    return lambda: httpx2.Response(status, text=body)


def test_a_whole_stream_is_one_request() -> None:
    events, asked = heard(lambda: stream(sse(1, TextDelta("a")), sse(2, ANSWERED)))
    assert events == [TextDelta("a"), ANSWERED]
    assert [(request.method, request.url.path) for request in asked] == [("POST", "/chat")]
    assert json.loads(asked[0].content) == {"message": "hi"}


@pytest.mark.parametrize("cut", [True, False], ids=["reset", "end"])
def test_a_lost_connection_goes_on_where_it_was(cut: bool) -> None:
    half = sse(2, TextDelta("b"))[:10]
    events, asked = heard(
        lambda: stream(sse(1, TextDelta("a")), half, cut=cut),
        lost,
        refused(503, "starting"),
        lambda: stream(sse(2, TextDelta("b")), sse(3, ANSWERED)),
    )
    said = [event for event in events if not isinstance(event, Notice)]
    assert said == [TextDelta("a"), TextDelta("b"), ANSWERED]
    assert len(events) - len(said) == 1, "one loss is told once, however many attempts it takes"
    assert {request.url.path for request in asked[1:]} == {"/runs/r1/events"}
    assert {request.headers["last-event-id"] for request in asked[1:]} == {"1"}


def test_an_event_may_be_as_long_as_an_answer() -> None:
    long = TextDelta("x" * (4 << 20))
    assert heard(lambda: stream(sse(1, long), sse(2, ANSWERED)))[0] == [long, ANSWERED]


def test_attempts_are_bounded_but_progress_renews_them() -> None:
    dripping = [lambda n=n: stream(sse(n, TextDelta("x")), cut=True) for n in range(1, 8)]
    events, _ = heard(*dripping, lambda: stream(sse(9, ANSWERED)), pauses=1)
    assert events[-1] == ANSWERED
    with pytest.raises(ChatFailed, match=r"2 attempts to reconnect failed.*--session s1"):
        heard(lambda: stream(sse(1, TextDelta("a")), cut=True), lost, lost, pauses=2)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lost, "No answer from http://server: refused"),
        (refused(422, "message is missing."), "message is missing."),
        (refused(401, "Who are you?"), r"^Who are you\? Set the access token in DRAGOMAN_TOKEN, or use --token\.$"),
        (refused(404), "answered 404. Check that --url"),
        (refused(500, "\x1b[2Jx"), "^x$"),
        (lambda: httpx2.Response(502, content=b"[" * 1_000_000), "answered 502"),
        (lambda: httpx2.Response(200, text="<html>"), "event-stream"),
    ],
)
def test_a_refusal_is_told(answer: Answer, told: str) -> None:
    with pytest.raises(ChatFailed, match=told):
        heard(answer)


def decided(answer: Answer) -> tuple[NotTaken | None, list[httpx2.Request]]:
    """A decision on a call with an awkward id; the server gives this answer."""
    asked: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return answer()

    async def decide() -> NotTaken | None:
        async with httpx2.AsyncClient(base_url="http://server", transport=httpx2.MockTransport(respond)) as client:
            link = Link(client, Choices())
            link.run = "r1"
            return await link.decide("a/b?c", {"decision": "deny"})

    return asyncio.run(decide()), asked


def test_a_decision_goes_to_the_call_that_asked() -> None:
    refused, [request] = decided(lambda: httpx2.Response(200, json={}))
    assert refused is None and json.loads(request.content) == {"decision": "deny", "door": "terminal"}
    assert (request.method, request.url.raw_path) == ("POST", b"/runs/r1/approvals/a%2Fb%3Fc")


@pytest.mark.parametrize(
    ("answer", "told", "final"),
    [
        (refused(409, "This call was denied by ann already."), "This call was denied by ann already.", True),
        (refused(410, "The time to decide is over."), "The time to decide is over.", True),
        (refused(404, "Run 'r1' has not asked."), "Run 'r1' has not asked.", True),
        (refused(422, "The pattern does not fit."), "The pattern does not fit.", False),
        (refused(503, "The disk is full."), "The disk is full.", False),
        (lost, "Your answer did not arrive: refused.", False),
    ],
)
def test_a_decision_that_is_not_taken_is_told(answer: Answer, told: str, final: bool) -> None:
    assert decided(answer)[0] == NotTaken(told, final)


def test_a_run_is_asked_for_with_the_mode_and_the_model_that_were_chosen() -> None:
    async def listen(approval: str | None, model: str | None = None) -> dict[str, object]:
        bodies: list[bytes] = []

        def respond(request: httpx2.Request) -> httpx2.Response:
            bodies.append(request.content)
            return stream(sse(1, ANSWERED))

        async with httpx2.AsyncClient(base_url="http://server", transport=httpx2.MockTransport(respond)) as client:
            async with (
                asyncio.timeout(30),
                aclosing(Link(client, Choices(approval=approval, model=model)).ask("hi")) as events,
            ):
                assert [event.type async for event in events] == ["run.finished"]
        body: dict[str, object] = json.loads(bodies[0])
        return body

    assert asyncio.run(listen("ask")) == {"message": "hi", "approval": "ask"}
    assert asyncio.run(listen(None, "local/qwen")) == {"message": "hi", "model": "local/qwen"}
    assert asyncio.run(listen(None)) == {"message": "hi"}


def test_a_broken_event_does_not_end_the_run() -> None:
    broken = b"id: 1\nevent: text.delta\ndata: {\n\n"
    events, _ = heard(lambda: stream(broken, b"event: new.kind\ndata: {}\n\n", sse(2, ANSWERED)))
    assert [event.type for event in events] == ["notice", "run.finished"]


@pytest.mark.parametrize(
    "url", ["", "localhost:8724", "ftp://h", "http://", "http://h:0", "http://h:99999", "http://[::1", "http://a\x1bb"]
)
def test_a_wrong_url_is_told(url: str) -> None:
    with pytest.raises(ChatFailed, match=r"Use one like http://127\.0\.0\.1:8724"):
        checked_url(url)


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "d\u00e4m", "a\x1bb", "a\udcffb"])
def test_what_cannot_be_a_token_is_told(token: str) -> None:
    with pytest.raises(ChatFailed, match=r"not a token that `dragoman token create` made"):
        checked_token(token)


def test_a_token_may_bring_its_line_s_end_along() -> None:
    assert checked_token(" dgm_x\r\n") == "dgm_x"


async def ask(url: str, session: str, message: str) -> int:
    async with client_of(url, None) as client:
        return await alone(client, Choices(session=session), message)


def test_a_session_that_is_not_utf_8_is_the_server_s_to_refuse() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        thread = Thread(target=other.handle_request)
        thread.start()
        try:
            with pytest.raises(ChatFailed, match="answered 501"):
                asyncio.run(ask(f"http://127.0.0.1:{other.server_port}", sendable("\udcff"), sendable("hi\udcff")))
        finally:
            thread.join(10)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:81"),
        ("0.0.0.0", "http://127.0.0.1:81"),
        ("::", "http://[::1]:81"),
        ("h", "http://h:81"),
    ],
)
def test_the_url_follows_from_the_settings(host: str, url: str) -> None:
    assert default_url(Settings(data_dir=Path("/d"), host=host, port=81)) == url
    assert checked_url(f"{url}/") == url


def test_a_server_of_our_own_gets_the_same_settings(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("max_rounds = 3\nworkspace = 'w'")
    flags = {"config": "mine.toml", "model_key": "sk", "unsafe_no_sandbox": "true", "port": "81", "data_dir": "d"}
    flags |= {"private_hosts": "a.local,b.local", "tools": '[{"match": "bash", "risk": "read"}]'}
    flags |= {"endpoints": '{"b": {"url": "http://127.0.0.1:1/v1"}}', "search_api": '{"url": "http://a"}'}
    mine = load_settings(flags, {"HOME": "/h", "DRAGOMAN_MODEL": "m"}, folder=tmp_path)
    environ = child_environment(mine, {"HOME": "/h", "DRAGOMAN_MODEL": "m"})
    assert load_settings({}, environ, folder=Path("/elsewhere")).settings == mine.settings


def test_a_server_of_our_own_that_cannot_start_is_told(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "DRAGOMAN_MAX_ROUNDS": "many"}
    mine = load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path)
    with pytest.raises(ChatFailed, match=r"stopped at once:\ndragoman: max_rounds \(environment[^$]*--url"):
        with own_server(mine, environ):
            pytest.fail("there is no server to talk to")


def test_something_else_at_the_address_is_no_server_of_ours() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        thread = Thread(target=other.handle_request)
        thread.start()
        try:
            assert status_of(f"http://127.0.0.1:{other.server_port}/livez") == 501
        finally:
            thread.join(10)
    assert not answers(f"http://127.0.0.1:{other.server_port}"), "and now there is nothing"


async def _typed_as_a_run_ends(*lines: str) -> tuple[list[str], str]:
    """Lines that are typed when the server's run has ended, and its last event is still on the way."""
    chats, refusals, all_refused = list[str](), 0, asyncio.Event()
    paper = Paper("begin")

    class Late(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield sse(1, TextDelta("a"))
            if len(chats) == 1:
                for line in lines:
                    paper.hooks.line(line)
                await all_refused.wait()
            yield sse(2, ANSWERED)

    async def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal refusals
        if request.url.path == "/chat":
            chats.append(json.loads(request.content)["message"])
            headers = {"content-type": "text/event-stream", "x-run-id": "r1", "x-session-id": "s1"}
            return httpx2.Response(200, headers=headers, stream=Late())
        refusals += 1
        if refusals == len(lines):
            all_refused.set()
        return refused(409, "Run r1 has ended.")()

    async with httpx2.AsyncClient(base_url="http://server", transport=httpx2.MockTransport(answer)) as client:
        async with asyncio.timeout(30):
            await Talk(paper, client, Choices(), width=lambda: 100, window=lambda: None).converse()
    return chats, paper.shown


def test_what_is_typed_as_a_run_ends_is_the_next_message() -> None:
    chats, shown = asyncio.run(_typed_as_a_run_ends("first\nline", "next"))
    assert chats == ["begin", "first\nline", "next"]
    assert "Not sent" not in shown and shown.count("The run has ended; this is your next message.") == 2
