"""What is typed in a real terminal while a run goes on: for the command, for the agent, and what is never shown."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.sandbox.processes import all_gone, endless
from tests.support.server.serving import serving
from tests.support.terminal.terminals import terminal

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PROMPT = "\n>"


async def test_a_command_gets_its_input_and_the_agent_its_messages(tmp_path: Path) -> None:
    sleeper = endless()
    asks = "stty size; read -p 'Name? ' name; read -s -p 'Word? ' word; echo; echo \"${#word} letters for $name\""
    provider = Scripted([f"```bash\n{asks}; {sleeper}\n```", "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        url = str(served.client.base_url)
        async with terminal("chat", "--url", url, home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("/stop\r")
            await shown.until("No command is running.")
            shown.press("Do it.\r")
            await shown.until("│ Name?")
            shown.press("/input Zoo\x7fe")
            await shown.until("bash asks › /input Zoe")
            shown.press("\r")
            await shown.until("The command asks for hidden input")
            shown.press("sesame\r")
            await shown.until("Not sent")
            shown.press("/input\r")
            await shown.until("input (not shown):")
            shown.press("sesame\r")
            await shown.until("6 letters for Zoe")
            shown.press("Be brief.\r")
            await shown.until("/input types into")
            shown.press("/help\r")
            await shown.until("/input [WORDS]")
            shown.press("/stop\r")
            await shown.until("  [stopped by the person")
            whole = await shown.ends_with(PROMPT)
            session = (await served.client.get("/sessions")).json()["sessions"][0]["id"]
        log = json.dumps((await served.client.get(f"/sessions/{session}/log")).json())
    assert all_gone(sleeper)
    assert "60 76" in whole and "> Be brief." in whole
    assert "sesame" not in whole and "sesame" not in log
    assert any(message.text == "Be brief." for message in provider.requests[-1].messages)


async def test_words_answer_the_program_that_asks_and_a_key_turns_them_to_the_agent(tmp_path: Path) -> None:
    sleeper = endless()
    asks = "read -p 'Name? ' name; read -p 'Go on? [y/N] ' go; read -p 'Press Enter'; read -p '> ' path"
    provider = Scripted([f"```bash\n{asks}; echo It is $name $go $path.; {sleeper}\n```", "Done.", "Again."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("Do it.\r")
            await shown.until("Enter answers bash · Ctrl-T: to the agent")
            await shown.ends_with("\nbash asks ›")
            shown.press("\x14")
            await shown.ends_with("\n»")
            shown.press("Be brief.\r")
            await shown.until("Queued: the agent reads it")
            shown.press("\x14Zoe\r")
            await shown.until("│ Go on? [y/N]")
            await shown.ends_with("\nbash asks ›")
            shown.press("y\r")
            await shown.until("│ Press Enter")
            await shown.ends_with("\nbash asks ›")
            shown.press("\r")
            await shown.until("│ >")
            await shown.ends_with("\nbash asks ›")
            shown.press("/tmp\r")  # a command of ours stays one, what is none is an answer
            await shown.until("It is Zoe y /tmp.")
            await shown.ends_with("\n»")
            shown.press("\x03")
            await shown.until("> Be brief.")
            await shown.until("■ Stopped. Your message came too late for this run; the agent reads it with your")
            await shown.ends_with(PROMPT)
            shown.press("And?\r")
            await shown.until("Done.")
    assert all_gone(sleeper)
    sent = [message.text for message in provider.requests[-1].messages if message.role == "user"]
    assert sent[-2:] == ["Be brief.", "And?"] and "Zoe" not in sent


async def test_words_begun_before_a_program_asks_stay_the_agents(tmp_path: Path) -> None:
    asks = "until [ -e go ]; do sleep 0.01; done; read -p 'Delete all? [y/N] ' go; echo \"It is <$go>.\""
    provider = Scripted([f"```bash\n{asks}\n```", "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("Do it.\r")
            await shown.until("▶ bash")
            shown.press("yes but")
            await shown.until("» yes but")
            (tmp_path / "work/go").touch()
            await shown.until("Enter writes to the agent · Ctrl-T: to bash")
            shown.press(" not all\r")
            await shown.until("Queued: the agent reads it")
            shown.press("\x14n\r")
            await shown.until("It is <n>.")
            await shown.until("Done.")
    assert "yes but not all" in [message.text for message in provider.requests[-1].messages]


async def test_what_is_not_sent_begins_the_next_message(tmp_path: Path) -> None:
    provider = Scripted(["```bash\nuntil [ -e go ]; do sleep 0.01; done\n```", "Done.", "Again."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("Go.\r")
            await shown.until("▶ bash")
            shown.press("And th")
            await shown.until("» And th")
            (tmp_path / "work/go").touch()
            await shown.until("2 steps")
            await shown.ends_with("\n> And th")
            shown.press("en?\r")
            await shown.until("Again.")
    assert provider.requests[-1].messages[-1].text == "And then?"
