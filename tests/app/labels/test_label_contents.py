"""Labels by content: what is found in texts, and that no endpoint that may not have the label gets such a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.config.settings import load_settings
from app.config.sources import SettingsError
from app.core.attachments import Attachment
from app.core.labels import LabelSource, policy_of
from app.core.messages import Message
from app.labels.contents import Contents
from tests.support.access.labelled import added, labelled

pytestmark = pytest.mark.anyio
IBAN = "DE89 3704 0044 0532 0130 00"  # the example of the registry

FOUND = {
    "iban": [
        IBAN,
        IBAN.replace(" ", ""),
        f"Pay to {IBAN.lower()} please, today.",
        "(GB29-NWBK-6016-1331-9268-19)",
        "NO9386011117947\nx",
        f"Invoice RE24 {IBAN}",
        IBAN.replace(" ", "\u00a0"),
        "\u4ed8\u6b3e\u5230DE89370400440532013000\u3002",
    ],
    "card_number": [
        "4111 1111 1111 1111",
        "card 5555-5555-5555-4444.",
        "378282246310005",
        "4111 1111 1111 1111 12/26",
        "4111 1111 1111 1111 123",
        "Order 12 4111 1111 1111 1111",
        "\u53614111111111111111\u3002",
    ],
    "email_address": ["ann@example.org", "<ann.b+c@mail.example.co.uk>", "mailto:ann@example.org?x"],
}
NOT_FOUND = {
    "iban": [
        "DE89 3704 0044 0532 0130 01",
        "DE89 3704 0044 0532 0130",
        "ad12 this is a sentence of some length and more",
        "XX89370400440532013000",
        "aDE89370400440532013000",
        "commit de89370400440532013000ffab",
        "DE89 3704 0044 0532 0130 0\u017f and more",  # a letter that is an S where case does not count
    ],
    "card_number": [
        "4111 1111 1111 1112",
        "0000 0000 0000 0000",
        "1234567890123456",
        "x4111111111111111",
        "2026-11-29 12:00",
    ],
    "email_address": ["@ann", "ann@", "ann@example", "git@host:repo", "a @ b.org", "@pytest.fixture"],
}


def found(text: str, **source: tuple[str, ...]) -> bool:
    policy = policy_of([LabelSource.model_validate({"label": "x", **source})], [])
    return bool(Contents.of(policy).labels([Message("tool", "before"), Message("user", text)], frozenset()))


def test_content_is_found_by_its_form_and_check_digits() -> None:
    assert [(kind, text) for kind, texts in FOUND.items() for text in texts if not found(text, contains=(kind,))] == []
    assert [(kind, text) for kind, texts in NOT_FOUND.items() for text in texts if found(text, contains=(kind,))] == []
    assert found("Order KD-123456", patterns=(r"\bKD-\d{6}\b",)) and not found("KD-12", patterns=(r"\bKD-\d{6}\b",))


def test_a_pattern_that_takes_too_long_counts_as_found() -> None:
    assert found("a" * 40_000, patterns=(r"(?:a|aa|a*?)*?b\1?$|(a+)+c",))


def test_long_texts_are_read_in_linear_time() -> None:
    for hostile in ("DE89 " * 40_000, "4 " * 100_000, "a." * 100_000, "a@" * 100_000, "A1-" * 70_000, "4444 " * 20_000):
        assert not found(hostile, contains=("iban", "card_number", "email_address")), hostile[:10]


def test_patterns_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    for pattern, words in (("(", "is no regular expression"), ("x*", "matches the empty text")):
        (tmp_path / "dragoman.toml").write_text(f'labels = [{{label = "a", patterns = ["{pattern}"]}}]')
        with pytest.raises(SettingsError, match=words):
            load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path)


LABELS = """
[[labels]]
label = "bank"
contains = ["iban"]

[[label_rules]]
label = "bank"
endpoints = ["local"]
"""


async def test_a_message_or_a_result_with_such_content_goes_to_the_allowed_endpoint_only(tmp_path: Path) -> None:
    write = "```bash\nprintf 'DE89 3704 0044 %s' '0532 0130 00'\n```"
    async with labelled(tmp_path, [write, "Hello."], ["Fine.", "Paid.", "Again."], toml=LABELS) as one:
        events = await one.served.chat("Print it.", approval="auto")
        assert added(events) == [(["bank"], "content")] and one.holds(IBAN) == ["local"]
        again = await one.served.chat("And now?", session=events[0]["session"])
        assert added(again) == [] and await one.labels(events[0]["session"]) == ["bank"]
        assert added(await one.served.chat(f"Pay {IBAN}.")) == [(["bank"], "content")]
        assert added(await one.served.chat("Hello.")) == [] and one.holds(IBAN) == ["local"]


def test_the_text_of_a_document_counts() -> None:
    policy = policy_of([LabelSource.model_validate({"label": "mine", "patterns": ("beeswax",)})], [])
    file = Attachment("a" * 64, "application/pdf", 1, "a.pdf", text="of beeswax")
    assert Contents.of(policy).labels([Message("user", "Read.", attachments=(file,))], frozenset()) == {"mine"}
