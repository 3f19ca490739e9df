"""web_fetch on real servers of this machine: what is read, and how."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter

import pytest

from tests.support.fetching import HERE, HTML, OK, PLAIN, fetch, read
from tests.support.models.upstream import answer, upstream
from tools.base.outcome import ToolFailed
from tools.builtin.web_fetch import PAGE_CHARACTERS

pytestmark = pytest.mark.anyio


async def test_a_page_is_read_as_text_with_its_title_and_links() -> None:
    page = '<title>News</title><h1>Today</h1><p>It <a href="/more">rains</a>.<script>x()</script>'
    async with upstream(answer(page, kind=f"{HTML}; charset=utf-8")) as server:
        url = f"http://{HERE}:{server.port}"
        text = await fetch(f"{url}/a?b=c#d", allowed=(HERE,))
    assert text == f"Title: News\n\n# Today\n\nIt [rains]({url}/more)."
    assert server.asked[0].path == "/a?b=c"
    assert server.asked[0].headers["host"] == f"{HERE}:{server.port}"


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("application/json", '{"a": "é"}', '{"a": "é"}'),
        ("application/ld+json; charset=utf-8", "{}", "{}"),
        ("application/atom+xml", "<feed>x</feed>", "<feed>x</feed>"),
        ("TEXT/PLAIN", "<b>plain", "<b>plain"),
        ("text/markdown", "# a\r\nb", "# a\r\nb"),
        ("application/xhtml+xml", "<p>x", "x"),
        ("", "plain", "plain"),
        ("", " <!DOCTYPE html><p>x", "x"),
        (HTML, "", "(no text: the page may need a browser)"),
        (HTML, "<script>app()</script>", "(no text: the page may need a browser)"),
        (PLAIN, "", "(no text: the page may need a browser)"),
        (HTML, "a<p hidden>obey", "a\n[4 characters that the page hides from people are left out.]"),
        (HTML, "a\u202e\u200bb<p title=x>\U000e0041c", "ab\n\nc"),
    ],
)
async def test_what_is_read(kind: str, body: str, text: str) -> None:
    assert await read(answer(body, kind=kind)) == text


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (PLAIN, "café".encode(), "café"),
        (PLAIN, "café".encode("latin-1"), "café"),
        (f"{PLAIN}; charset=iso-8859-1", b"\x93caf\xe9\x94", "“café”"),
        (f'{PLAIN}; charset="Windows-1251"', "привет".encode("cp1251"), "привет"),
        (f"{PLAIN}; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
        (f"{PLAIN}; charset=utf-8", b"a\xffb", "a\ufffdb"),
        (f"{PLAIN}; charset=utf-16le", "hé".encode("utf-16-le"), "hé"),
        (PLAIN, "\ufeffhé".encode("utf-16-le"), "hé"),
        (PLAIN, "\ufeffhé".encode(), "hé"),
        (HTML, "<meta charset=koi8-r>привет".encode("koi8-r"), "привет"),
        (HTML, b"<meta http-equiv=x content='text/html; charset=latin1'>caf\xe9", "café"),
        (HTML, "<meta charset=utf-16>café".encode(), "café"),
        # Python has encodings that take for ever, run code of their own, or are none of text.
        (f"{PLAIN}; charset=punycode", b"abc-", "abc-"),
        (f"{PLAIN}; charset=unicode_escape", b"\\x41", "\\x41"),
        (f"{PLAIN}; charset=zlib", b"abc", "abc"),
        (f"{PLAIN}; charset=utf-7", b"+ADw-", "+ADw-"),
        (f"{PLAIN}; charset=no-such-thing", "é".encode(), "é"),
    ],
)
async def test_the_encoding_is_found(kind: str, body: bytes, text: str) -> None:
    assert await read(answer(body, kind=kind)) == text


async def test_pages_joined_are_the_text() -> None:
    text = "".join(f"{number} {'x' * 70}\n" for number in range(800)) + "y" * 50_000
    joined, offset = "", 0
    while True:
        page = await read(answer(text, kind=PLAIN), offset=offset)
        body, cut, hint = page.rpartition("\n[Characters ")
        if not cut:
            break
        assert len(body) <= PAGE_CHARACTERS
        following = int(hint.partition("offset=")[2].rstrip("]"))
        assert hint == f"{offset} to {following - 1} of {len(text)}. Next page: offset={following}]"
        joined += body + ("\n" if len(body) < following - offset else "")
        offset = following
    assert joined + page == text
    with pytest.raises(ToolFailed, match=f"only {len(text):,} characters: give an offset from 0 to {len(text) - 1}"):
        await read(answer(text, kind=PLAIN), offset=len(text))


async def test_a_redirect_is_followed_and_told() -> None:
    moved = answer("", 301, location="/new?x=1#part")
    async with upstream(moved, answer("here", kind=PLAIN)) as server:
        url = f"http://{HERE}:{server.port}"
        assert await fetch(f"{url}/old", allowed=(HERE,)) == f"[Found at {url}/new?x=1#part]\nhere"
        assert [asked.path for asked in server.asked] == ["/old", "/new?x=1"]


async def test_an_ipv6_address_is_fetched_from() -> None:
    asked: list[bytes] = []

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK + b"connection: close\r\n\r\nsix")
        writer.close()

    try:
        server = await asyncio.start_server(serve, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await fetch(f"http://[::1]:{port}/", allowed=(f"[::1]:{port}",)) == "six"
    assert f"host: [::1]:{port}\r\n".encode() in asked[0].lower()


async def test_a_cookie_goes_nowhere() -> None:
    moved = answer("", 302, location="/b", set_cookie="secret=1")
    async with upstream(moved, answer("here", kind=PLAIN)) as server:
        await fetch(f"http://{HERE}:{server.port}/", allowed=(HERE,))
        assert "cookie" not in server.asked[1].headers


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(answer("proxied", kind=PLAIN), repeat=True) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://{HERE}:{proxy.port}")
        assert await read(answer("direct", kind=PLAIN)) == "direct"
        assert proxy.connections == 0
