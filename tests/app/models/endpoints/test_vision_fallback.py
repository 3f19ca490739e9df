"""Pictures for models that may not see them: sent, told of in words, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.context.compaction.summary import goal_text, transcript
from app.context.history_search import search_hit
from app.core.attachments import PDF, Attachment
from app.core.messages import Message, in_words
from app.core.provider import Ability, ModelRequest, Piece, ProviderFailed, ProviderNotice, Source, TextChunk
from app.models.endpoints.vision_fallback import VisionFallback, can_see
from app.models.scripted import Raise, Reply, Scripted
from app.policy.judges import requests_of
from tests.support.models.endpoints import opened, running_server

pytestmark = pytest.mark.anyio

CAT = Attachment("a" * 64, "image/png", 1, "cat.png", 800, 600)
LAW = Attachment("b" * 64, PDF, 1, "law.pdf", pages=2)
WORDS = "[picture cat.png, 800 x 600, image/png: this model cannot see it]\nWhat is it?"
ASKED = ModelRequest([Message("user", "What is it?", attachments=(CAT,))])
DESCRIBED = replace(ASKED, describe_files=True)


class Knowing(Scripted):
    """A scripted model of which something is known."""

    def __init__(self, replies: Sequence[Reply], *known: Ability) -> None:
        super().__init__(replies)
        self.known = {one.name: one for one in known}

    def abilities(self) -> Sequence[Ability]:
        return list(self.known.values())

    def show(self, name: str, value: bool | str, detail: str) -> None:
        self.known[name] = Ability(name, value, "answer", detail)


def fails(status: int | None, message: str = "image input is not supported", code: str = "model_failed") -> list[Raise]:
    return [Raise(ProviderFailed(code, message, retryable=True, status=status))]


async def heard(provider: Scripted, request: ModelRequest, **more: object) -> list[Piece]:
    looking = VisionFallback("there/model", provider, **more)  # type: ignore[arg-type]
    async with aclosing(looking.stream(request)) as pieces:
        return [piece async for piece in pieces]


def sent(provider: Scripted) -> list[Message]:
    return [request.messages[-1] for request in provider.requests]


@pytest.mark.parametrize("source", ["setting", "server", "answer"])
@pytest.mark.parametrize("ability", ["images", "pdf"])
async def test_a_model_that_cannot_see_is_not_asked(source: Source, ability: str) -> None:
    provider = Knowing(["Hello"], Ability(ability, False, source))
    file = CAT if ability == "images" else LAW
    request = ModelRequest([Message("user", "x", attachments=(file,)), Message("assistant", "y"), Message("user", "z")])
    with pytest.raises(ProviderFailed) as refused:
        await heard(provider, request, models_with=lambda one: ["a/eye", "b/eye"] if one == ability else [])
    failure = refused.value
    assert (failure.code, failure.retryable, provider.requests) == ("no_vision", False, [])
    said = ("there/model", file.name, "ask a/eye or b/eye", "without_vision: describe")
    assert all(one in failure.message for one in said)


async def test_what_it_cannot_see_is_told_of_in_words_as_the_request_says() -> None:
    provider = Knowing(["Hello", "Hello"], Ability("images", False, "server"))
    told = set[str]()
    first = await heard(provider, DESCRIBED, described=told)
    assert [one.code for one in first if isinstance(one, ProviderNotice)] == ["no_vision"]
    assert TextChunk("Hello") in first
    second = await heard(provider, DESCRIBED, described=told)
    assert not any(isinstance(one, ProviderNotice) for one in second), "once in a run"
    assert sent(provider) == [Message("user", WORDS)] * 2
    assert DESCRIBED.messages[0].attachments, "the history stays as it is"


async def test_only_what_it_cannot_see_is_described() -> None:
    provider = Knowing(["Hello"], Ability("images", True, "server"), Ability("pdf", False, "server"))
    await heard(provider, replace(DESCRIBED, messages=[Message("user", "x", attachments=(CAT, LAW))]))
    [message] = sent(provider)
    assert message.attachments == (CAT,)
    assert message.text == "[PDF law.pdf, 2 pages, application/pdf: this model cannot see it]\nx"


TOLD = [(400, "no image input"), (422, "Vision is not supported"), (500, "you may need to provide the mmproj")]
REFUSALS = [*TOLD, (400, "whatever it says"), (415, ""), (422, ""), (400, "this picture is against the rules")]


@pytest.mark.parametrize(("status", "said"), REFUSALS)
async def test_a_refusal_is_learned_and_described_at_once(status: int, said: str) -> None:
    provider = Knowing([fails(status, said), "In words", "Again"])
    pieces = await heard(provider, DESCRIBED)
    assert TextChunk("In words") in pieces
    assert can_see(provider, "images") is False
    await heard(provider, DESCRIBED)
    assert [bool(message.attachments) for message in sent(provider)] == [True, False, False]


@pytest.mark.parametrize(("status", "said"), REFUSALS)
async def test_a_refusal_is_told_as_one_and_remembered_if_it_says_so(status: int, said: str) -> None:
    provider = Knowing([fails(status, said)] * 2)
    for _ in range(2):
        with pytest.raises(ProviderFailed) as refused:
            await heard(provider, ASKED)
        assert refused.value.code == "no_vision"
        assert "ask a model that can" in refused.value.message
    assert len(provider.requests) == (1 if (status, said) in TOLD else 2)


# As servers say it of a picture that is broken or too large.
BROKEN = [
    (400, "Could not process image"),
    (400, "cannot identify image file <_io.BytesIO object at 0x7f>"),
    (400, "You uploaded an unsupported image. Please make sure your image is valid."),
    (400, "image exceeds 5 MB maximum"),
    (500, "Failed to load image or audio file"),
    (400, "The PDF specified was not valid."),
    (400, "A maximum of 100 PDF pages may be provided."),
]


@pytest.mark.parametrize(("status", "said"), BROKEN)
@pytest.mark.parametrize("known", [None, True])
async def test_one_broken_picture_says_nothing_of_the_model_s_sight(status: int, said: str, known: bool | None) -> None:
    """It fails where it was sent, is words in the session's next turns, and other people's are sent as before."""
    abilities = [] if known is None else [Ability("images", known, "server")]
    provider = Knowing([fails(status, said), fails(status, said), "In words", "I see"], *abilities)
    with pytest.raises(ProviderFailed, match=said.split()[0]) as refused:
        await heard(provider, ASKED)
    assert refused.value.code != "no_vision"
    assert TextChunk("In words") in await heard(provider, DESCRIBED)
    assert can_see(provider, "images") is known
    await heard(provider, ASKED)
    assert [bool(message.attachments) for message in sent(provider)] == [True, True, False, True]


OTHERS = [(500, "out of memory"), (503, "no image"), (401, "image"), (None, "image"), (429, "picture")]


@pytest.mark.parametrize(("status", "said"), OTHERS)
@pytest.mark.parametrize("request_", [ASKED, DESCRIBED], ids=["refuse", "describe"])
async def test_other_failures_say_nothing_of_sight(status: int | None, said: str, request_: ModelRequest) -> None:
    provider = Knowing([fails(status, said)])
    with pytest.raises(ProviderFailed, match=said):
        await heard(provider, request_)
    assert (can_see(provider, "images"), len(provider.requests)) == (None, 1)


async def test_a_prompt_that_is_too_long_says_nothing_of_sight() -> None:
    provider = Knowing([fails(400, "image too long", "model_context")])
    with pytest.raises(ProviderFailed, match="too long"):
        await heard(provider, DESCRIBED)
    assert can_see(provider, "images") is None


async def test_a_server_that_refuses_the_words_too_had_another_reason() -> None:
    provider = Knowing([fails(400, "first"), fails(400, "second")])
    with pytest.raises(ProviderFailed, match="first"):
        await heard(provider, DESCRIBED)
    assert can_see(provider, "images") is None


async def test_after_the_first_word_nothing_is_asked_again() -> None:
    provider = Knowing([["I see", *fails(400)], "Never"])
    with pytest.raises(ProviderFailed, match="not supported"):
        await heard(provider, DESCRIBED)
    assert (can_see(provider, "images"), len(provider.requests)) == (True, 1)


# As servers say that their model can see nothing.
BLIND = [
    (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
    (400, "org/plain is not a multimodal model"),
    (400, "This model does not support image input"),
    (400, "Invalid content type. image_url is only supported by certain models."),
    (404, "No endpoints found that support image input"),
    (400, "At most 0 image(s) may be provided in one prompt."),
    (422, "unknown variant `image_url`, expected `text`"),
]


@pytest.mark.parametrize(("status", "said"), BLIND)
@pytest.mark.parametrize("source", ["name", "answer"])
async def test_a_promise_of_a_name_or_of_another_model_is_found_out(status: int, said: str, source: Source) -> None:
    provider = Knowing([fails(status, said), "In words"], Ability("images", True, source))
    assert TextChunk("In words") in await heard(provider, DESCRIBED)
    assert can_see(provider, "images") is False


@pytest.mark.parametrize("said", ["bad request", "The image holds something that is against the rules."])
@pytest.mark.parametrize("request_", [ASKED, DESCRIBED], ids=["refuse", "describe"])
async def test_another_refusal_breaks_no_promise(said: str, request_: ModelRequest) -> None:
    provider = Knowing([fails(400, said)], Ability("images", True, "name"))
    with pytest.raises(ProviderFailed, match=said) as refused:
        await heard(provider, request_)
    assert (refused.value.code, can_see(provider, "images")) == ("model_failed", True)


async def test_one_that_is_known_to_see_is_not_described_to_for_any_refusal() -> None:
    provider = Knowing([fails(400, "bad request")], Ability("images", True, "server"))
    with pytest.raises(ProviderFailed, match="bad request"):
        await heard(provider, DESCRIBED)
    assert provider.known["images"].source == "server"


GUESSES: list[tuple[bool | None, Source, bool | None]] = [
    (True, "name", True),
    (False, "name", None),
    (False, "answer", False),
    (True, "setting", True),
    (False, "server", False),
    (None, "unknown", None),
]


@pytest.mark.parametrize(("value", "source", "seen"), GUESSES)
def test_a_name_alone_refuses_nobody(value: bool | None, source: Source, seen: bool | None) -> None:
    provider = Knowing([], Ability("images", value, source))
    assert (can_see(provider, "images"), can_see(provider, "pdf")) == (seen, None)


async def test_words_alone_go_through_as_they_are() -> None:
    provider, plain = Knowing(["Hello"], Ability("images", False, "server")), ModelRequest([Message("user", "x")])
    await heard(provider, plain)
    assert sent(provider) == [Message("user", "x")]


async def test_who_cannot_see_names_models_that_can(tmp_path: Path) -> None:
    """As their settings say, as their names suggest, as their answers have shown; nobody is asked for that."""
    endpoints = {
        "blind": running_server(model="m", images=False),
        "stated": running_server(model="m", images=True),
        "guessed": running_server(models=["gpt-4o", "gpt-3.5-turbo"]),
        "doubted": running_server(model="llava", images=False),
        "shown": running_server(models=["plain", "other"]),
    }
    async with opened(tmp_path, endpoints=endpoints) as there:
        route = there.models.route("shown/plain", "ann")
        route.show("images", True, "a test")
        with pytest.raises(ProviderFailed) as refused:
            async with aclosing(there.models.route("blind", "ann").stream(ASKED)) as pieces:
                await anext(pieces)
    assert refused.value.code == "no_vision"
    assert "ask guessed/gpt-4o or shown/plain or stated/m, or send descriptions" in refused.value.message


def test_a_message_in_words() -> None:
    assert in_words(Message("user", "See", attachments=(CAT, LAW))).splitlines() == [
        "[picture cat.png, 800 x 600, image/png]",
        "[PDF law.pdf, 2 pages, application/pdf]",
        "See",
    ]
    assert in_words(Message("user", "Plain")) == "Plain"


def test_who_reads_texts_only_is_told_of_files() -> None:
    """Summaries, judges, and what a search finds."""
    message = Message("user", "See", attachments=(CAT,))
    text = "[picture cat.png, 800 x 600, image/png]\nSee"
    assert transcript([message]) == f"Person: {text}"
    assert goal_text([message], 1, 4000) == text
    assert requests_of([message]) == text
    assert search_hit(0, message, ["cat"]).text == text
