"""Trying again from inside a run: the dialog and what it sends, comparing with the original, taking over files."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route

from app.models.scripted import Scripted
from tests.support.models.replies import native_bash
from tests.support.page.browser import Browsing, Page, browsing, expect, home, shot
from tests.support.page.stories import too_wide
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")

DIFF = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-old\n+new\n"
CHANGES = {
    "state": "kept",
    "note": "",
    "files": [{"path": "notes.txt", "change": "changed", "kind": "file", "diff": DIFF}],
    "more_files": 0,
    "left_out": [],
    "undone_files": [],
    "fingerprint": "f1",
}


@asynccontextmanager
async def one_run(folder: Path) -> AsyncGenerator[tuple[Served, Browsing, Page, list[dict[str, Any]]]]:
    """A page with a conversation of one run, in which a command was run, and its events."""
    script = [("I look.\n\n", native_bash("echo one")), "It is one.", "It is two."]
    async with serving(folder, Scripted(script)) as served, browsing() as browser:
        events = await served.chat("What is it?", approval="auto")
        page = await browser.page()
        await page.goto(f"{home(served)}/#{events[0]['session']}")
        await expect(page.locator(".turn-foot")).to_be_visible()
        yield served, browser, page, events


def seq_of(events: list[dict[str, Any]], kind: str) -> int:
    return next(place for place, event in enumerate(events, 1) if event["type"] == kind)


async def test_another_try_sends_what_was_changed_and_opens_its_conversation(tmp_path: Path) -> None:
    async with one_run(tmp_path) as (served, browser, page, events):
        run, session = events[0]["run"], events[0]["session"]
        branch = (await served.client.post(f"/sessions/{session}/fork", json={"before": run})).json()["id"]
        sent: list[tuple[str, Any, str | None]] = []

        async def answer(route: Route) -> None:
            request = route.request
            sent.append((request.url.removeprefix(home(served)), request.post_data_json, request.headers.get("prefer")))
            refusal = {"error": {"code": "no_such_event", "message": "Calls of helpers cannot be tried again."}}
            if len(sent) == 1:
                await route.fulfill(status=409, json=refusal)
            else:
                await route.fulfill(status=202, json={"run": "run_x", "session": branch, "state": "queued"})

        await page.route("**/runs/*/fork", answer)
        browser.expected.append("409")
        card = page.locator(".card")
        await card.locator(".card-fold").click()
        await card.get_by_role("button", name="Try from here").click()
        dialog = page.get_by_role("dialog", name="Try from here")
        await dialog.get_by_label("command").fill("echo two")
        await dialog.get_by_label("Further message").fill("Be brief.")
        await dialog.get_by_label("Model").select_option("default/scripted")
        await shot(page, "try-from-here")
        await dialog.get_by_role("button", name="Try", exact=True).click()
        await expect(dialog.get_by_text("Calls of helpers cannot be tried again.")).to_be_visible()
        await dialog.get_by_role("button", name="Try", exact=True).click()
        await expect(dialog).to_have_count(0)
        await expect(page).to_have_url(f"{home(served)}/#{branch}")
        edit = {"arguments": {"command": "echo two"}, "call": events[seq_of(events, "tool.started") - 1]["call"]}
        body = {"at": seq_of(events, "tool.started"), "model": "default/scripted", "edit": edit, "message": "Be brief."}
        assert sent == [(f"/runs/{run}/fork", body, "respond-async")] * 2


async def test_the_cursor_says_what_can_be_changed(tmp_path: Path) -> None:
    async with one_run(tmp_path) as (_, browser, page, events):
        sent: list[Any] = []

        async def answer(route: Route) -> None:
            sent.append(route.request.post_data_json)
            await route.fulfill(status=422, json={"error": {"code": "invalid", "message": f"No {len(sent)}."}})

        await page.route("**/runs/*/fork", answer)
        browser.expected.append("422")
        call = events[seq_of(events, "tool.started") - 1]["call"]
        rows = [
            ("tool.finished", "Result of the call", {"result": "two"}),
            ("round.started", "Message of this run", {"message": "two"}),
            ("tool.started", "command", {"arguments": {"command": "two"}, "call": call}),
        ]
        for count, (kind, label, edit) in enumerate(rows, 1):
            seq = seq_of(events, kind)
            await page.evaluate("(link) => (location.hash = link)", f"{events[0]['session']}/{events[0]['run']}/{seq}")
            await expect(page.locator(".replay-bar")).to_contain_text(f"You see event {seq} of")
            timeline = page.get_by_role("region", name="Timeline")
            await timeline.get_by_role("button", name="Try from here").click()
            dialog = page.get_by_role("dialog")
            await dialog.get_by_label(label).fill("two")
            await dialog.get_by_role("button", name="Try", exact=True).click()
            await expect(dialog.get_by_text(f"No {count}.")).to_be_visible()
            assert sent[-1] == {"at": seq, "edit": edit}
            await page.keyboard.press("Escape")
            await expect(dialog).to_have_count(0)
            await expect(page.locator(".replay-bar")).to_be_visible()


def branched(log: dict[str, Any], own: str) -> dict[str, Any]:
    """The same log as that of a branch, in which the command has printed something else."""
    run = log["runs"][0] | {"run": "run_0123456789abcdef0123", "session": own}
    run["events"] = json.loads(
        json.dumps(run["events"]).replace("echo one", "echo two").replace("It is one", "It is 2")
    )
    run["events"].insert(3, {"seq": 3, "type": "notice", "code": "fork", "message": "It goes on from event 3."})
    turns = [{"run": log["runs"][0]["run"], "session": log["session"]}, {"run": run["run"], "session": own}]
    return log | {"session": own, "runs": [run], "branches": [{"after": None, "turns": turns}], "cursor": None}


@asynccontextmanager
async def branch_page(folder: Path) -> AsyncGenerator[tuple[Browsing, Page, str]]:
    """A page with a branch that was begun inside the run."""
    async with one_run(folder) as (served, browser, page, events):
        session, run = events[0]["session"], events[0]["run"]
        branch: str = (await served.client.post(f"/sessions/{session}/fork", json={"before": run})).json()["id"]
        log = (await served.client.get(f"/sessions/{session}/log")).json()
        await page.route(f"**/sessions/{branch}/log?*", lambda route: route.fulfill(json=branched(log, branch)))
        await page.evaluate("(session) => (location.hash = session)", branch)
        await expect(page.locator(".branch-count")).to_have_text("2 / 2")
        yield browser, page, branch


async def choose(page: Page, action: str) -> None:
    await page.get_by_role("button", name="More about this branch").click()
    await page.get_by_role("menuitem", name=action).click()


async def test_a_branch_is_compared_with_its_original_from_where_they_part(tmp_path: Path) -> None:
    async with branch_page(tmp_path) as (_, page, _):
        await choose(page, "Compare with the original")
        dialog = page.get_by_role("dialog", name="Compare with the original")
        columns = dialog.locator(".parted-column")
        await expect(columns.first).to_contain_text("It is one.")
        await expect(columns.last).to_contain_text("It is 2.")
        await expect(columns.first.locator(".card-title")).to_have_text("echo one")
        await expect(columns.last.locator(".card-title")).to_have_text("echo two")
        await expect(dialog.get_by_text("I look.")).to_have_count(0)
        await shot(page, "parted")
        left, right = await columns.first.bounding_box(), await columns.last.bounding_box()
        assert left and right and left["x"] + left["width"] <= right["x"] and round(left["y"]) == round(right["y"])
        await page.set_viewport_size({"width": 390, "height": 844})
        await expect(columns.first).to_be_hidden()
        await dialog.get_by_role("button", name="Original").click()
        await expect(columns.first).to_be_visible()
        await expect(columns.last).to_be_hidden()
        assert not await too_wide(page)
        await shot(page, "parted-phone")


async def test_a_branch_of_a_branch_is_compared_with_that_one(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["The first.", "The second.", "The third."])) as served:
        events, sessions = list[dict[str, Any]](), list[str]()
        for number in range(3):
            before = {"before": events[0]["run"]} if events else {}
            if before:
                made = await served.client.post(f"/sessions/{sessions[-1]}/fork", json=before)
                sessions.append(made.json()["id"])
            events = await served.chat(f"Question {number}", **({"session": sessions[-1]} if sessions else {}))
            sessions = sessions or [events[0]["session"]]
        async with browsing() as browser:
            page = await browser.page()
            await page.goto(f"{home(served)}/#{sessions[-1]}")
            await expect(page.locator(".branch-count")).to_have_text("3 / 3")
            await choose(page, "Compare with the original")
            columns = page.locator(".parted-column")
            await expect(columns.last).to_contain_text("The third.")
            await expect(columns.first).to_contain_text("The second.")


async def test_the_files_of_a_branch_are_taken_over(tmp_path: Path) -> None:
    async with branch_page(tmp_path) as (browser, page, branch):
        sent: list[Any] = []

        async def answer(route: Route) -> None:
            sent.append(route.request.post_data_json)
            refusal: dict[str, Any] = {"code": "take_over_refused", "message": f"Refused {len(sent)}."}
            if len(sent) == 2:
                refusal["files"] = [{"path": "notes.txt", "reason": "it has changed since"}]
            done = len(sent) > 2
            await route.fulfill(status=200 if done else 409, json=CHANGES if done else {"error": refusal})

        shown = 0

        async def changes(route: Route) -> None:
            nonlocal shown
            shown += 1
            await route.fulfill(json=CHANGES | {"fingerprint": f"f{shown}"})

        await page.route(f"**/sessions/{branch}/changes", changes)
        await page.route(f"**/sessions/{branch}/take-over", answer)
        browser.expected.append("40[49]")
        await choose(page, "Copy the files to the workspace")
        dialog = page.get_by_role("dialog", name="Copy the files of this branch to the workspace")
        await expect(dialog.locator(".diff")).to_contain_text("new")
        await shot(page, "take-over")
        outcome = dialog.locator(".outcome")
        take = dialog.get_by_role("button", name="Copy to the workspace", exact=True)
        await take.click()
        await dialog.get_by_role("button", name="Copy all").click()
        await expect(outcome).to_have_text("Refused 1.")
        await take.click()  # the changes are shown anew
        await dialog.get_by_role("button", name="Copy all").click()
        await expect(dialog.locator("ul.problem")).to_have_text("notes.txt: it has changed since")
        await dialog.get_by_role("button", name="Copy all").click()
        await expect(outcome).to_contain_text("The files are in the workspace now")
        assert sent == [{"fingerprint": "f1"}, {"fingerprint": "f2"}, {"fingerprint": "f2"}]
        await dialog.get_by_role("button", name="Close").click()
        await page.unroute(f"**/sessions/{branch}/changes")
        await choose(page, "Copy the files to the workspace")
        await expect(dialog).to_contain_text("This branch works in the workspace itself")
