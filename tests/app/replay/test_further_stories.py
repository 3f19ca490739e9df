"""Stories of other tests, recorded and replayed: each is told once more, and its runs go the same way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from app.models.scripted import Scripted
from app.replay.checking import SAME, UNUSABLE
from tests.routes.http.approvals import test_approvals as approvals
from tests.routes.http.client_tools import test_relay_faults as relays
from tests.routes.http.delegation import test_helpers as helpers
from tests.routes.http.discipline import test_discipline as discipline
from tests.routes.http.discipline import test_discipline_verifier as verifier
from tests.routes.http.documents import test_documents_over_http as documents
from tests.routes.http.mcp import test_mcp as servers
from tests.routes.http.mcp import test_mcp_questions as questions
from tests.routes.http.policy import test_prompt_canary as canary
from tests.routes.lanes import test_lanes_taint as taint
from tests.routes.lanes.responses import test_responses_kept as responses
from tests.support.replays import replayed_at_the_end
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
Story = Callable[[Path], Awaitable[None]]


async def instructions_too_long(folder: Path) -> None:
    (folder / "work").mkdir()
    (folder / "work" / "AGENTS.md").write_text("Be brief. " * 20_000)
    async with serving(folder, Scripted(["Hello."])) as served:
        events = await served.chat("Hi")
    assert [one for one in events if one["type"] == "notice"], "the run says that it has not all of the instructions"


SAME_AGAIN: dict[str, Story] = {
    "a tool of a server asks": servers.test_unclassified_tools_belong_to_admins_and_ask,
    "a question of a server ends with its run": questions.test_a_question_ends_with_its_run,
    "nobody decides in time": approvals.test_nobody_decided_in_time,
    "a target changes, and arguments": approvals.test_changed_arguments_over_a_file_that_has_changed_ask_again,
    "a target changes each time": approvals.test_a_file_that_never_stays_the_same_is_not_written,
    "a restart while a person decides": approvals.test_a_pending_approval_survives_a_restart,
    "a restart within limits": discipline.test_limits_hold_after_a_restart,
    "helpers are cancelled": partial(
        helpers.test_what_ends_a_run_reaches_its_helpers_at_once, path="/runs/{run}/cancel", reason="cancelled"
    ),
    "another model is asked": helpers.test_another_model_is_asked_without_tools,
    "a message during a synthesis": partial(
        discipline.test_a_message_is_taken_until_it_is_sure_that_the_run_ends, at="synthesis"
    ),
    "a message during a check": verifier.test_a_message_during_the_check_is_answered,
    "a message with a file": taint.test_a_pdf_taints_a_conversation_of_the_servers_own_api,
    "a relay goes on": partial(responses.test_a_response_goes_on_from_any_other, model="scripted"),
    "a budget of tool seconds": relays.test_a_relay_needs_no_tool_seconds,
    "words that are no code": canary.test_each_run_has_a_code_of_its_own_and_plain_words_pass,
    "long instructions": instructions_too_long,
}


@pytest.mark.parametrize("name", SAME_AGAIN)
async def test_a_story_goes_the_same_way_again(tmp_path: Path, monkeypatch: MonkeyPatch, name: str) -> None:
    outcomes = replayed_at_the_end(monkeypatch)
    await SAME_AGAIN[name](tmp_path)
    played = [one for one in outcomes if one.state != UNUSABLE]
    assert played
    assert [(one.state, one.differences) for one in played if one.state != SAME] == []


REFUSED: dict[str, tuple[Story, str]] = {
    "a log was deleted": (responses.test_deleting_one_response_leaves_the_others_of_its_session, "no events"),
    "a document was edited": (
        documents.test_an_edit_in_the_middle_of_a_run_reaches_its_next_round,
        "changed documents",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_replayed_is_said(tmp_path: Path, monkeypatch: MonkeyPatch, name: str) -> None:
    story, words = REFUSED[name]
    outcomes = replayed_at_the_end(monkeypatch)
    await story(tmp_path)
    assert any(one.state == UNUSABLE and words in one.reason for one in outcomes)
