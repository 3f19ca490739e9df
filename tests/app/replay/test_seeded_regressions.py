"""A regression that is put into the code is found by the recordings: each row is one, in one part of the product.

Our own code is patched, against the rule of this house, because that is what is tried: what a fault would change.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pytest import MonkeyPatch

from app.context.compaction import replay as compaction
from app.context.view import View
from app.models.tokens import counter
from app.policy import call_rows, gate
from app.policy.guards import JUDGE
from app.provenance.quotation import Provenance
from app.redaction.redactor import RedactedStream, Redactor
from app.replay.checking import OTHERWISE
from app.replay.recording import Recording
from app.runs.discipline.limits import Limits
from app.runs.discipline.loop_detector import LoopDetector
from app.runs.tool_results import Results
from app.transcript import reply
from parsing import parser
from routes.lanes.ag_ui.stream import AGUIEncoder
from routes.lanes.anthropic_messages.stream import MessagesEncoder
from routes.lanes.openai_chat.stream import ChatEncoder
from routes.lanes.responses.encoder import ResponseEncoder
from routes.lanes.ui_message_stream.stream import UIStreamEncoder
from tests.support.replays import Seed, golden, lanes_and_secrets, limits_and_repairs, outcomes, without_row

pytestmark = pytest.mark.anyio


def returns(owner: Any, name: str, value: Any) -> Seed:
    """A function returns always the same."""
    return lambda patch: patch.setattr(owner, name, lambda *_, **__: value)


def becomes(owner: Any, name: str, value: Any) -> Seed:
    return lambda patch: patch.setattr(owner, name, value)


def without_fences(patch: MonkeyPatch) -> None:
    before = parser.Parser.__init__

    def begin(self: parser.Parser, tools: Any, **more: Any) -> None:
        before(self, tools, **more | {"fences": False})

    patch.setattr(parser.Parser, "__init__", begin)


def without_calls(patch: MonkeyPatch) -> None:
    before = parser.Parser.__init__

    def begin(self: parser.Parser, tools: Any, **more: Any) -> None:
        before(self, tools, **more | {"calls": False})

    patch.setattr(parser.Parser, "__init__", begin)


async def no_quotations(*_: object) -> dict[str, str]:
    return {}


def shows_beginnings(patch: MonkeyPatch) -> None:
    """Text that may be the beginning of a secret is not held back."""

    before = RedactedStream.feed

    def feed(self: RedactedStream, piece: str) -> str:
        return before(self, piece) + self.end()

    patch.setattr(RedactedStream, "feed", feed)


def changes_frames(encoder: Any) -> Seed:
    """The frames have another form."""

    def seed(patch: MonkeyPatch) -> None:
        before = encoder.frames
        patch.setattr(encoder, "frames", lambda self, row: before(self, row).replace('"', "'", 1))

    return seed


SEEDS: dict[str, Seed] = {
    "parser: fences are no calls": without_fences,
    "parser: tags are text": without_calls,
    "parser: thoughts are lost": becomes(reply, "Thought", type("Nothing", (), {})),
    "parser: arguments are not repaired": becomes(reply, "read_arguments", lambda arguments, _: (arguments, ())),
    "gate: the mode does not ask": without_row(gate, "GATE_ROWS", "mode"),
    "gate: grants do not count": without_row(gate, "GATE_ROWS", "granted"),
    "gate: an unattended run asks": without_row(gate, "GATE_ROWS", "unattended"),
    "gate: quotations run": becomes(Provenance, "quotations", no_quotations),
    "gate: the judge does not count": without_row(call_rows, "CALL_ROWS", JUDGE),
    "trim: not far enough": becomes(compaction, "TARGET", 1.0),
    "trim: messages count more": becomes(counter, "ROLE", 50),
    "trim: no summaries": returns(View, "_due", None),
    "trim: results are whole": becomes(Results, "shown", lambda self, text, *_, **__: text),
    "redaction: nothing is hidden": returns(Redactor, "is_clean", True),
    "redaction: pieces of a secret are shown": shows_beginnings,
    "discipline: no limit of rounds": becomes(Limits, "over", lambda *_: None),
    "discipline: loops go on": returns(LoopDetector, "detects", False),
    "lanes: Chat Completions": changes_frames(ChatEncoder),
    "lanes: Messages": changes_frames(MessagesEncoder),
    "lanes: Responses": changes_frames(ResponseEncoder),
    "lanes: AG-UI": changes_frames(AGUIEncoder),
    "lanes: the AI SDK": changes_frames(UIStreamEncoder),
}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    made = (asyncio.run(make(tmp_path_factory.mktemp("runs"))) for make in (lanes_and_secrets, limits_and_repairs))
    return [*golden().values(), *(one for those in made for one in those)]


async def test_nothing_is_found_where_nothing_was_changed(recordings: list[Recording]) -> None:
    for outcome in await outcomes(recordings):
        assert not outcome.reason
        assert not outcome.differences, "\n".join(one.words for one in outcome.differences)


@pytest.mark.parametrize("name", SEEDS)
async def test_a_seeded_regression_is_found(
    recordings: list[Recording], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    SEEDS[name](monkeypatch)
    found = [one for one in await outcomes(recordings, exact=True) if one.state == OTHERWISE]
    assert found, "no recording goes otherwise"
    for outcome in found:
        for difference in outcome.differences:
            assert difference.words.isprintable(), difference.words
