"""Answers of HTTP/1.1 without any socket: however their bytes are cut, the same comes of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.models.http.transport.incoming import MOST_FRAMING, Head, Incoming
from tests.support.models.sockets import ANSWERS, CHUNKED, OK

SMALL = [said for said, _ in ANSWERS.values() if len(said) < 2000]
Seen = tuple[Head, bool, bool, bool, str, bytes]


def seen(incoming: Incoming, body: bytes) -> Seen:
    failure = type(incoming.failure).__name__
    return incoming.head, incoming.started, incoming.complete, incoming.keeps, failure, body


def read(pieces: list[bytes], *, ended: bool) -> Seen:
    incoming, body = Incoming(), b""
    for piece in pieces:
        incoming.feed(piece)
        body += incoming.take()
    if ended:
        incoming.end()
    return seen(incoming, body)


@pytest.mark.parametrize("said", SMALL)
@pytest.mark.parametrize("ended", [False, True])
def test_a_byte_at_a_time_is_as_good_as_all_at_once(said: bytes, ended: bool) -> None:
    assert read([said[at : at + 1] for at in range(len(said))], ended=ended) == read([said], ended=ended)


@given(st.sampled_from(SMALL), st.lists(st.integers(0, 300)), st.booleans())
def test_any_cuts_give_the_same(said: bytes, cuts: list[int], ended: bool) -> None:
    ends = [0, *sorted(cuts), len(said)]
    pieces = [said[start:end] for start, end in pairwise(ends)]
    assert read(pieces, ended=ended) == read([said], ended=ended)


@given(st.binary(max_size=400), st.booleans(), st.booleans())
def test_nothing_that_comes_breaks_it(said: bytes, begun: bool, ended: bool) -> None:
    *_, failure, body = read([CHUNKED if begun else b"", said], ended=ended)
    assert failure in ("NoneType", "RemoteProtocolError")
    assert len(body) <= len(said)


@pytest.mark.parametrize("start", [OK + b"x: ", CHUNKED + b"1\r\na\r\n0\r\ntrailer: ", CHUNKED + b"5;"])
def test_what_is_no_body_is_bounded(start: bytes) -> None:
    incoming = Incoming()
    incoming.feed(start)
    for _ in range(MOST_FRAMING // 1024 - 1):
        incoming.feed(b"y" * 1024)
    assert not incoming.failure
    incoming.feed(b"y" * 2048)
    assert incoming.failure


def test_many_small_chunks_are_no_framing() -> None:
    incoming = Incoming()
    incoming.feed(CHUNKED + b"1\r\na\r\n" * MOST_FRAMING)
    assert (incoming.take(), incoming.failure) == (b"a" * MOST_FRAMING, None)


def test_what_came_before_a_failure_can_be_taken() -> None:
    incoming = Incoming()
    incoming.feed(CHUNKED + b"5\r\nhello\r\nnot a length\r\n")
    assert incoming.failure
    assert incoming.take() == b"hello"


@pytest.mark.parametrize(
    ("said", "keeps"),
    [
        (OK + b"content-length: 0\r\n\r\n", True),
        (CHUNKED + b"0\r\n\r\n", True),
        (OK + b"connection: close\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", True),
        (OK + b"content-length: 0\r\n\r\nmore", False),
        (OK + b"content-length: 0\r\n\r\n" + OK, False),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", False),
    ],
)
def test_a_server_that_would_take_another_request_is_known(said: bytes, keeps: bool) -> None:
    incoming = Incoming()
    incoming.feed(said)
    assert (incoming.complete, incoming.keeps) == (True, keeps)
