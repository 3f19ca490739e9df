"""Secrets in text: whatever is told, in whatever pieces, holds none; what is not secret is told whole and at once."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from uvicorn.logging import AccessFormatter, ColourizedFormatter

from app.core.events import (
    AgentEvent,
    ReasoningDelta,
    RunFailed,
    TextDelta,
    ToolDelta,
    ToolProgress,
    ToolStarted,
    Usage,
)
from app.core.messages import AskedCall, Message
from app.log.event_writer import EventWriter, RunLog, Watcher
from app.log.redacted_rows import redacted_row
from app.redaction.events import RedactedEvents
from app.redaction.logs import redacted_logs
from app.redaction.redactor import MARK, SHORTEST, RedactedStream, Redactor, secrets_in
from app.storage.approvals import ApprovalRow
from app.storage.runs import InboxRow
from app.storage.sessions import SessionRow
from app.storage.sqlite.store import SQLiteStore
from routes.access.token_text import new_token

KEY = "sk-canary-4711-Zeisig"
# So few letters that random texts are full of them, of their beginnings, and of overlaps.
SECRETS = ("abcdabcd", "abcdabcdabdd", "bcdabcdcabc", "dddcbaab", "abcdabcdabcddabcdabxcdabcd")
texts = st.lists(st.sampled_from([*SECRETS, "a", "b", "c", "d", "ab", "cd", "abcd", "x"]), max_size=30).map("".join)


def half(secret: str) -> int:
    """Characters of a beginning that is hidden where it is cut."""
    return max(SHORTEST, -(-len(secret) // 2))


def hidden(text: str, secrets: Sequence[str]) -> str:
    """What redaction means, character by character: the slow way."""
    spans = sorted({(at, at + len(one)) for one in secrets for at in range(len(text)) if text.startswith(one, at)})
    cut = [n for one in secrets for n in range(half(one), len(one)) if text.endswith(one[:n])]
    spans += [(len(text) - max(cut), len(text))] if cut else []
    told, end = "", 0
    for start, stop in sorted(spans):
        if start >= end:
            told += text[end:start] + MARK
        end = max(end, stop)
    return told + text[end:]


def sliced(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@given(texts, st.lists(st.integers(0, 400), max_size=40))
@example("abcdabcdabcdabdd", [4, 8, 12])
def test_any_slicing_gives_what_the_definition_says(text: str, cuts: list[int]) -> None:
    redactor = Redactor(SECRETS)
    assert redactor.redact(text) == hidden(text, SECRETS)
    held = RedactedStream(redactor)
    assert "".join([*map(held.feed, sliced(text, cuts)), held.end()]) == hidden(text, SECRETS)


@given(texts, st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=40))
def test_a_secret_that_is_interrupted_is_never_told_whole(text: str, cuts: list[tuple[int, bool]]) -> None:
    held = RedactedStream(Redactor(SECRETS))
    interrupted = dict(cuts)
    told, at = "", 0
    for piece in sliced(text, [cut for cut, _ in cuts]):
        told += held.feed(piece)
        at += len(piece)
        if interrupted.get(at):
            told += held.end()
            assert not held.waits
    told += held.end()
    assert not [one for one in SECRETS if one in told]
    assert len(text) - 400 <= len(told.replace(MARK, "")) <= len(text)


@given(texts)
def test_only_the_beginning_of_a_secret_is_withheld(text: str) -> None:
    held = RedactedStream(Redactor(SECRETS))
    told = ""
    for at, character in enumerate(text, start=1):
        told += held.feed(character)
        begins = any(text[:at].endswith(one[:n]) for one in SECRETS for n in range(1, len(one)))
        assert held.empty is not begins
        assert begins or told == hidden(text[:at], SECRETS)


WRITTEN = [KEY, new_token(), 'qu"ote\\and\nsecond-line-7', "schlüssel-ä-ö-1", "p%ss w/rd?99"]


@pytest.mark.parametrize("secret", WRITTEN, ids=["key", "token", "quoted", "not ASCII", "punctuated"])
def test_every_way_to_write_a_secret_is_known(secret: str) -> None:
    redactor = Redactor([secret])
    for written in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), quote(secret, safe="")):
        told = redactor.redact(f"<{written}>")
        assert MARK in told
        assert not [line for line in secret.splitlines() if line in told or json.dumps(line)[1:-1] in told]


@pytest.mark.parametrize("value", ["", "short", "1234567", "aaaaaaaaaaaa", "********", "  \n ", "-----BEGIN KEY-----"])
def test_what_ordinary_text_is_full_of_is_no_secret(value: str) -> None:
    assert Redactor([value]).redact(f"a {value} b") == f"a {value} b"


def test_a_token_is_known_by_its_shape() -> None:
    redactor = Redactor()
    token = new_token()
    assert redactor.redact(f"Bearer {token}, dgm_short.") == f"Bearer {MARK}, dgm_short."
    held = RedactedStream(redactor)
    assert "".join(map(held.feed, token + " ")) == f"{MARK} "
    assert redactor.redact(token[:-1]) == MARK  # cut by a limit
    assert redactor.redact(f"{token[:-1]} ") == f"{token[:-1]} "


def test_a_secret_that_is_added_later_counts_from_then_on() -> None:
    redactor = Redactor()
    held = RedactedStream(redactor)
    assert held.feed(KEY) == KEY
    redactor.add(KEY)
    assert held.feed(KEY) == MARK


ENVIRONMENT = {
    "OPENAI_API_KEY": "one-of-keys",
    "github_token": "two-tokens",
    "JWT_SECRET_2": "three-secrets",
    "PGPASSWORD": "four-passwords",
    "SMTP_PASS": "five-passes",
    "DATABASE_URL": "postgres://me:six-in-url@db/name",
    "PWD": "/home/somebody",
    "KEYBOARD": "german-layout",
    "MAX_TOKENS": "100000000",
    "HOME": "/home/somebody",
}


def test_the_names_of_variables_tell_which_are_secret() -> None:
    assert list(secrets_in(ENVIRONMENT)) == [
        *("one-of-keys", "two-tokens", "three-secrets", "four-passwords", "five-passes", "six-in-url"),
    ]


def test_everything_inside_a_value_is_looked_at() -> None:
    redactor = Redactor([KEY, "1234567890"])
    call = AskedCall("c1", KEY, {KEY: [{"a": KEY}, 1234567890, 1, 12, True, None, 1.5, 10**400]}, "native")
    told = redactor.redact_value(Message("assistant", KEY, (call,), reasoning=f"x{KEY}", shown=KEY))
    arguments = {MARK: [{"a": MARK}, MARK, 1, 12, True, None, 1.5, 10**400]}
    assert told == Message(
        "assistant", MARK, (AskedCall("c1", MARK, arguments, "native"),), None, None, f"x{MARK}", MARK
    )


def test_json_in_a_row_stays_json() -> None:
    redactor = Redactor([KEY, "1234567890", 'quo"ted-secret'])
    arguments = json.dumps({"pin": 1234567890, "key": f'{KEY} quo"ted-secret'})
    row = ApprovalRow("r", "c", "s", "p", "bash", arguments, "f", f"because {KEY}", 1.0, 2.0)
    told = redacted_row(row, redactor)
    assert isinstance(told, ApprovalRow)
    assert json.loads(told.arguments) == {"pin": MARK, "key": f"{MARK} {MARK}"}
    assert told.reason == f"because {MARK}"
    plain = SessionRow("s", "p", 1.0, "Good morning")
    assert redacted_row(plain, redactor) == plain


def through(*events: AgentEvent) -> list[AgentEvent]:
    redacted = RedactedEvents(Redactor([KEY]))
    return [told for event in events for told in redacted.add(event)]


USAGE = Usage(1, 1, 1, 1, True)


@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta, lambda text: ToolDelta("c1", text)])
def test_a_secret_in_pieces_is_hidden_in_every_kind_of_delta(kind: type[TextDelta]) -> None:
    told = through(*map(kind, f"It is {KEY}, yes"), USAGE)
    assert all(isinstance(one, type(kind("x"))) for one in told[:-1])
    assert "".join(getattr(one, "text", "") for one in told) == f"It is {MARK}, yes"


def test_streams_that_are_woven_into_each_other_hide_it_each() -> None:
    woven = [make(character) for character in KEY for make in (TextDelta, ReasoningDelta)]
    told = through(*woven, *[TextDelta(character) for character in KEY], USAGE)
    for kind in (TextDelta, ReasoningDelta):
        text = "".join(one.text for one in told if isinstance(one, kind))
        assert KEY not in text
        assert KEY[SHORTEST:] not in text
        assert MARK in text


def test_a_block_of_code_that_is_a_call_keeps_its_call_and_hides_a_secret_across_its_border() -> None:
    block = [TextDelta(one, "c1") for one in (f"{KEY[9:]}; s", "k")]
    told = through(TextDelta(f"a {KEY[:9]}"), *block, TextDelta(" b"), TextDelta("us"), USAGE)
    texts = {call: "".join(one.text for one in told if isinstance(one, TextDelta) and one.call == call)
             for call in (None, "c1")}  # fmt: skip
    assert texts["c1"].endswith("; sk") and texts[None].endswith(" bus")
    assert KEY not in texts[None] + texts["c1"] and KEY[9:] not in texts["c1"]


def test_what_was_withheld_is_told_before_anything_else() -> None:
    opened = ToolDelta("c1", "", "bash")
    told = through(
        TextDelta("This is a bus"), ReasoningDelta("yes"), opened, ToolDelta("c1", "s"), USAGE, TextDelta("o")
    )
    assert told == [
        *(TextDelta("This is a bu"), TextDelta("s"), ReasoningDelta("ye"), ReasoningDelta("s"), opened),
        *(ToolDelta("c1", "s"), USAGE, TextDelta("o")),
    ]


def test_other_events_are_redacted_whole() -> None:
    pairs: list[tuple[AgentEvent, AgentEvent]] = [
        # the last line of the tail is still being written
        (
            ToolProgress("c", 1.0, ["first", f"x {KEY}", KEY[:-3]], 3, 30),
            ToolProgress("c", 1.0, ["first", f"x {MARK}", MARK], 3, 30),
        ),
        (ToolStarted("c", KEY, {"a": KEY}, "native"), ToolStarted("c", MARK, {"a": MARK}, "native")),
        (RunFailed("model_auth", f"bad key {KEY}.", False), RunFailed("model_auth", f"bad key {MARK}.", False)),
        (ToolDelta("c", "", KEY), ToolDelta("c", "", MARK)),
    ]
    for event, told in pairs:
        assert through(event) == [told]


LOGGED: list[tuple[object, ...]] = [
    (f"the key is {KEY}",),
    ("the key is %s", KEY),
    ("%(key)s and %(more)r", {"key": KEY, "more": [KEY]}),
    ("headers %r, %d of them", [(b"authorization", KEY.encode())], 1),
    ("it failed: %s", ValueError(f"no {KEY}")),
]


@pytest.mark.parametrize("said", LOGGED, ids=lambda row: str(row[0])[:20])
def test_no_log_shows_it_whatever_prints_it(said: tuple[object, ...]) -> None:
    printed = io.StringIO()
    handlers = [logging.StreamHandler(printed) for _ in range(3)]
    handlers[1].setFormatter(ColourizedFormatter("%(levelprefix)s %(message)s", use_colors=True))
    handlers[2].setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
    logger = logging.Logger("test")
    for handler in handlers:
        logger.addHandler(handler)
    with redacted_logs(Redactor([KEY])):
        logger.error(*said)
        try:
            raise ValueError(f"no {KEY}") from KeyError(KEY)
        except ValueError:
            logger.exception(*said)
        logger.warning("nothing secret in %d", 1)
    assert KEY not in printed.getvalue()
    assert printed.getvalue().count(f"ValueError: no {MARK}") >= len(handlers)
    assert "nothing secret in 1" in printed.getvalue()


def test_an_access_log_s_formatter_finds_its_arguments() -> None:
    printed = io.StringIO()
    handler = logging.StreamHandler(printed)
    handler.setFormatter(AccessFormatter("%(client_addr)s %(request_line)s %(status_code)s", use_colors=False))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    with redacted_logs(Redactor([KEY])):
        logger.info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:1", "GET", f"/runs/{KEY}", "1.1", 404)
    assert printed.getvalue() == f"127.0.0.1:1 GET /runs/{MARK} HTTP/1.1 404 Not Found\n"
    assert logging.getLogRecordFactory() is logging.LogRecord


def files_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


@pytest.mark.anyio
async def test_whatever_the_journal_writes_is_redacted_before(tmp_path: Path) -> None:
    store = await SQLiteStore.open(tmp_path / "test.db")
    async with asyncio.timeout(30), EventWriter(store, Redactor([KEY])) as journal:
        log = RunLog("r", journal, lambda: None)
        journal.put(SessionRow("s", "p", 1.0, f"Use {KEY}"))
        log.put(InboxRow("r", 0, KEY))
        for character in KEY:
            log.add(TextDelta(character))
        log.add(RunFailed("model_auth", KEY, False))
        await journal.flush()
        rows = await log.after(Watcher(0)) or []
        session = await store.session("s")
        assert session
        assert session.title == f"Use {MARK}"
        assert [row.text for row in await store.inbox("r")] == [MARK]
        assert [json.loads(row.data).get("text") for row in rows] == [MARK, None]
        log.fail(f"The disk is full: {KEY}")
        assert log.failure
        assert KEY not in log.failure.data
        written = files_in(tmp_path)
    await store.close()
    assert MARK.encode() in written
    assert KEY.encode() not in written


def test_a_number_is_hidden_only_where_it_holds_a_secret() -> None:
    redactor = Redactor(["4711081547"])
    assert redactor.redact_value({"lines": 4, "bytes": 47, "code": 4711081547}) == {
        "lines": 4,
        "bytes": 47,
        "code": MARK,
    }


@pytest.mark.parametrize("number", [-1234567, 12345678, 4711081599])
def test_a_secret_of_digits_is_hidden_where_it_is_a_number(number: int) -> None:
    redactor = Redactor([str(number)])
    assert redactor.redact_value({"n": [number, 4242, 7]}) == {"n": [MARK, 4242, 7]}


values = st.recursive(
    texts | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(values, max_size=4))
def test_a_value_is_redacted_in_each_of_its_texts(value: list[object]) -> None:
    redactor = Redactor(SECRETS)
    redacted = redactor.redact_value(value)
    assert redacted == in_each_text(value)


def in_each_text(value: object) -> object:
    """What redaction of a value means: that of each text in it."""
    match value:
        case str():
            return hidden(value, SECRETS)
        case dict():
            return {in_each_text(key): in_each_text(one) for key, one in value.items()}
        case list():
            return [in_each_text(one) for one in value]
    return value


def test_nobody_can_guess_a_secret_character_by_character() -> None:
    redactor = Redactor([KEY])
    told = [redactor.redact(KEY[:length]) for length in range(len(KEY) + 1)]
    assert told == [KEY[:length] if length < half(KEY) else MARK for length in range(len(KEY) + 1)]


@pytest.mark.parametrize("secret", ['qu"ote-4711-Zeisig', "back\\slash-4711", "schlüssel-4711"])
def test_a_secret_in_json_inside_of_json_is_hidden(secret: str) -> None:
    inside = json.dumps({"key": secret})
    whole = json.dumps({"tail": [inside]})
    redactor = Redactor([secret])
    assert json.loads(redactor.redact_json(whole)) == {"tail": [json.dumps({"key": MARK})]}
    row = ApprovalRow("r", "c", "s", "p", "bash", whole, "f", "because", 1.0, 2.0)
    told = redacted_row(row, redactor)
    assert isinstance(told, ApprovalRow)
    assert json.loads(told.arguments) == {"tail": [json.dumps({"key": MARK})]}
    plain = json.dumps({"text": 'a "quoted" \\ word'}, indent=1)
    assert redactor.redact_json(plain) is plain
