"""Resources and prompts of servers: listed within limits, read by models, whatever the server does."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp.faulty_servers import FIXTURES, PATIENT, START_S, managing, news_of, ready, result_of, tool
from tools.mcp.model import MemoryPinStore, ServerConfig, Timeouts
from tools.mcp.names import offer_name, public_name
from tools.mcp.offer_calls import RequestFailed
from tools.mcp.offers import MAX_LISTED
from tools.tool import Context

pytestmark = pytest.mark.anyio
OFFERING = FIXTURES / "offering.py"
HERE = Context(Path("/"))


def offering(fault: str = "none", **more: Any) -> ServerConfig:
    return ServerConfig("s", command=sys.executable, args=(str(OFFERING), fault), **{"timeouts": PATIENT, **more})


async def test_resources_are_listed_and_read_by_one_tool() -> None:
    async with managing(offering()) as manager:
        status = await ready(manager)
        assert status.features == ("resources", "prompts")
        names = [one.name for one in manager.tools()]
        assert names == sorted(["mcp__s__publish", "mcp__s__resources", public_name("s", "resources")])
        resources = tool(manager, "mcp__s__resources")
        assert resources.untrusted
        assert status.notes == ("resources/read was left out: it has the name of a request.",)
        listed = (await result_of(resources)).text.splitlines()
        assert listed == [
            "note://one one: The first note. (text/plain)",
            "note://blob",
            "note://picture",
            "With these forms, the parts in braces filled in:",
            "note://by/{name} by name",
            "[5 more resources are left out: too many, or with odd names.]",
        ]
        assert (await result_of(resources, uri="note://one")).text == "[resource note://one]\nhello from one"
        blob = await result_of(resources, uri="note://blob")
        assert blob.ok and blob.text == "[resource note://blob: application/zip, 3 bytes, not kept]"
        picture = await result_of(resources, uri="note://picture")
        assert picture.text.startswith("[image: image/png") and len(picture.pictures) == 1
        assert (await result_of(resources, uri="note://none")).text == "(no content)"
        missing = await result_of(resources, uri="note://nowhere")
        assert not missing.ok and "no such resource: note://nowhere" in missing.text


async def test_what_is_new_is_listed_once_the_server_says_so() -> None:
    async with managing(offering()) as manager:
        await ready(manager)
        assert (await result_of(tool(manager, "mcp__s__publish"))).ok
        async with asyncio.timeout(START_S):
            while True:
                changed = asyncio.create_task(manager.changed())
                if "note://late" in [one.uri for one in (await manager.offers("s", HERE)).resources]:
                    changed.cancel()
                    break
                await changed
        assert "note://late late" in (await result_of(tool(manager, "mcp__s__resources"))).text


@pytest.mark.parametrize("fault", ["silent", "refuses", "empty"])
async def test_a_server_without_lists_has_its_tools_all_the_same(fault: str) -> None:
    async with managing(offering(fault)) as manager:
        status = await ready(manager)
        assert status.features == ()
        assert [one.name for one in manager.tools()] == sorted(["mcp__s__publish", public_name("s", "resources")])


async def test_a_list_without_end_is_cut() -> None:
    async with managing(offering("endless")) as manager:
        await ready(manager)
        offers = await manager.offers("s", HERE)
        assert len(offers.resources) == len(offers.templates) == MAX_LISTED
        assert offers.notes == [
            "100 more resources are left out: too many, or with odd names.",
            "100 more resource templates are left out: too many, or with odd names.",
        ]


async def test_the_tool_is_known_before_the_server_is_connected_again() -> None:
    pins = MemoryPinStore()
    async with managing(offering(), pins=pins) as manager:
        await ready(manager)
    async with managing(offering(), pins=pins) as manager:
        assert manager.status()[0].pid is None
        assert (await result_of(tool(manager, "mcp__s__resources"), uri="note://one")).ok
    async with managing(offering(exclude=("resources",)), pins=pins) as manager:
        assert [one.name for one in manager.tools()] == ["mcp__s__publish"], "also not that of the same name"


async def test_requests_of_people_are_answered() -> None:
    async with managing(offering()) as manager:
        await ready(manager)
        [content] = (await manager.read_resource("s", "note://one", HERE)).contents
        assert getattr(content, "text", "") == "hello from one"
        greeting = await manager.prompt("s", "greet", {"who": "Ada"}, HERE)
        assert [one.role for one in greeting.messages] == ["user"]
        with pytest.raises(RequestFailed, match="who is missing"):
            await manager.prompt("s", "greet", {}, HERE)


async def test_a_request_of_a_person_that_is_not_answered_fails_in_time() -> None:
    limits = Timeouts(START_S, idle_s=0.5, total_s=START_S)
    async with managing(offering(timeouts=limits)) as manager:
        await ready(manager)
        with pytest.raises(RequestFailed, match="did not answer"):
            await manager.read_resource("s", "note://silent", HERE)
        assert (await news_of(tool(manager, "mcp__s__resources"), uri="note://one"))[-1]


@pytest.mark.parametrize("server", ["s", "a__b", "_odd", "déjà vu", "x" * 80, "resources"])
def test_no_tool_of_a_server_has_the_hosts_name(server: str) -> None:
    own = offer_name(server, "resources")
    assert len(own) <= 64 and own.isascii()
    assert own not in {public_name(server, name) for name in ("resources", "\0resources"[1:], "_resources", "prompts")}
    assert offer_name(server, "prompts") != own
