"""Keys of the terminal client on a real one: Esc, Shift-Tab, the menus; and the lines that say how things stand."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from app.models.scripted import Pause, Scripted
from routes.texts import text
from tests.support.server.serving import serving
from tests.support.terminal.terminals import terminal

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PROMPT = "\n>"
BACK_TAB = "\x1b[Z"
WAITS = "```bash\nuntil [ -e go ]; do sleep 0.01; done\n```"
LONG = "Some words of no interest. " * 200  # enough for a summary
WRITE = "```write_file\nnote.txt\nfirst\n```"


async def test_escape_stops_the_run_once_and_closes_what_is_open(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WAITS, "Again."])) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            about = text("terminal.command.model", {})
            await shown.press_until("/", about)
            shown.press("\x1b")
            await shown.until_holds(lambda window: about not in window)
            shown.press("\x1b\x15Go.\r")  # nothing to stop
            await shown.until("▶ bash")
            shown.press("half a word\x1b\x1bb")  # what follows at once belongs to it: Alt-B
            await shown.until("» half a word")
            assert "Stopping" not in shown.shown
            shown.press("\x1b")
            await shown.until("Stopping the run.")
            shown.press("\x1b")  # it never leaves
            await shown.until("■ Stopped.")
            await shown.ends_with("\n> half a word")
            shown.press("\x05\x15One\x1b\rNext.\r")  # Alt-Enter is a new line still
            await shown.until("Again.")
            assert "> One\n  Next." in shown.shown and shown.process.returncode is None


async def test_escape_during_a_command_stops_no_run_that_is_over(tmp_path: Path) -> None:
    provider = Scripted([f"{LONG}Done.", f"{LONG}Done again.", ("So far.", Pause(asyncio.Event()))])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            for words in ("One.", "Two."):
                shown.press(f"{words}\r")
                await shown.until("again." if words == "Two." else "Done.")
                await shown.ends_with(PROMPT)
            shown.press("/compact\r")
            await shown.ends_with("\n»")
            shown.press("\x1b")
            with pytest.raises(TimeoutError):  # a lone Esc is one after a moment
                async with asyncio.timeout(1):
                    await shown.until("Stopping")
            shown.press("so")
            await shown.until("» so")


async def test_escape_withdraws_a_question(tmp_path: Path) -> None:
    server = serving(tmp_path, Scripted([WRITE, "Done."]), approval_admin="ask")
    async with asyncio.timeout(LIMIT_S), server as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("Go.\r")
            await shown.ends_with("answer:")
            shown.press("\x1b")
            await shown.until("■ write_file did not run")
            await shown.ends_with(PROMPT)
    assert not (tmp_path / "work/note.txt").exists()


async def test_letters_of_a_sentence_do_not_answer_a_question_that_comes_meanwhile(tmp_path: Path) -> None:
    go = asyncio.Event()
    script = (("So,\n\n", Pause(go), WRITE), "Done.")
    server = serving(tmp_path, Scripted(script), approval_admin="ask")
    async with asyncio.timeout(LIMIT_S), server as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("Go.\r")
            await shown.until("So,")
            shown.press("anyone can sa")
            await shown.until("» anyone can sa")
            go.set()
            await shown.ends_with("answer:")
            shown.press("y")
            await shown.press_until("\x1b[B", "❯ s")  # it was taken, and was no answer
            assert "approved" not in shown.shown
            while "approved" not in shown.shown:  # without a key for a moment it is one
                shown.press("y")
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.8):
                        await shown.until("approved")
            await shown.ends_with("\n> anyone can sa")


async def test_shift_tab_changes_the_mode_from_the_next_message_on(tmp_path: Path) -> None:
    provider = Scripted([WAITS, "Done.", "Planned.", "Denied."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.until("· sandboxed")
            shown.press("Go.\r")
            await shown.until("▶ bash")
            shown.press(BACK_TAB)
            await shown.until("! Approvals: ask, from your next message on.")
            (tmp_path / "work/go").touch()
            await shown.ends_with(PROMPT)
            await shown.until_holds(lambda window: window.endswith("· ask"))
            for mode in ("plan", "deny", "auto", "sandboxed", "ask", "plan"):
                shown.press(BACK_TAB)
                await shown.until_holds(lambda window: window.endswith(f"· {mode}"))  # noqa: B023
            shown.press("Plan.\r")
            await shown.until("Planned.")
            await shown.ends_with(PROMPT)
            shown.press(BACK_TAB)
            await shown.until_holds(lambda window: window.endswith("· deny"))
            shown.press("Deny.\r")
            await shown.until("Denied.")
        [session] = (await served.client.get("/sessions")).json()["sessions"]
        log = (await served.client.get(f"/sessions/{session['id']}/log")).json()
    starts = [event for run in log["runs"] for event in run["events"] if event["type"] == "run.started"]
    assert [event["limits"]["approval"] for event in starts] == ["sandboxed", "sandboxed", "deny"]
    assert ["submit_plan" in event["tools"] for event in starts] == [False, True, False]


async def test_guests_and_users_are_not_offered_what_is_for_admins(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Done."])) as served:
        token = (await served.client.post("/tokens", json={"name": "ann", "role": "user"})).json()["token"]
        url = str(served.client.base_url)
        async with terminal("chat", "--url", url, "--token", token, home=tmp_path) as shown:
            await shown.until_holds(lambda window: window.endswith("· sandboxed"))
            for mode in ("ask", "plan", "deny", "sandboxed"):
                shown.press(BACK_TAB)
                await shown.until_holds(lambda window: window.endswith(f"· {mode}"))  # noqa: B023


async def test_the_greeting_and_the_status_line_say_how_things_stand(tmp_path: Path) -> None:
    server = serving(tmp_path, Scripted(["Done."]), prices={"*": {"input": 1000, "output": 2000}})
    async with asyncio.timeout(LIMIT_S), server as served:
        url = str(served.client.base_url)
        async with terminal("chat", "--url", url, columns=100, home=tmp_path) as shown:
            window = await shown.until_holds(lambda window: window.endswith("\n  scripted · ~/work · sandboxed"))
            assert window.startswith("scripted · ~/work · sandbox: ") and "· New conversation\n" in window
            shown.press("Hello.\r")
            window = await shown.until_holds(lambda window: "% · cost " in window and window.count("\n>") > 1)
            assert "  scripted · ~/work · Context: " in window
            for columns, line in ((40, "  scripted · Context: "), (24, "  scripted · sandboxed"), (12, "  sandboxed")):
                shown.resize(columns, 60)
                await shown.until_holds(lambda window: window.splitlines()[-1].startswith(line))  # noqa: B023
            shown.resize(100, 60)
            shown.press("/new\r")
            await shown.until_holds(lambda window: window.endswith("\n  scripted · ~/work · sandboxed"))
            shown.press("/plan\r")
            await shown.until_holds(lambda window: window.endswith("· plan"))
        [session] = (await served.client.get("/sessions")).json()["sessions"]
        async with terminal("chat", "--url", url, "--continue", columns=120, home=tmp_path) as shown:
            assert f"· Conversation {session['id']}\n" in await shown.ends_with(PROMPT)
        async with terminal("chat", "--url", url, home=tmp_path, variables={"NO_COLOR": "1"}) as shown:
            assert (await shown.ends_with(PROMPT)).endswith("· sandboxed")
        async with terminal("chat", "--url", url, term="dumb", home=tmp_path) as shown:
            assert "· sandboxed" not in await shown.ends_with(PROMPT)


async def test_each_command_and_mode_in_the_menu_says_what_it_is_for(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Done."])) as served:
        url = str(served.client.base_url)
        for columns in (80, 30):
            async with terminal("chat", "--url", url, columns=columns, home=tmp_path) as shown:
                await shown.ends_with(PROMPT)
                shown.press("/re")
                window = await shown.until("/retry")
                assert f"/retry   {text('terminal.command.retry', {})[:10]}" in window
                shown.press("\x15/approve a")
                await shown.until(f"ask    {text('terminal.approve.ask', {})[:15]}")
