"""Endpoints that are added and removed while the server runs, and their keys."""

from __future__ import annotations

import asyncio
import gc
import stat
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from app.core.endpoint_spec import EndpointSpec
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.model_registry import UnknownModel
from app.models.endpoints.registry import InvalidEndpoint, ReadOnlyEndpoint, UnknownEndpoint, endpoint_row
from app.models.endpoints.server_state import ServerState
from app.models.scripted import Scripted
from app.models.server_connection import FixedConnection
from app.redaction.redactor import Redactor
from app.storage.changes import StoreFailed
from app.storage.endpoints import EndpointRemoved, EndpointRow
from app.storage.sqlite.store import SQLiteStore
from tests.support.models.endpoints import HELLO, LIMIT_S, NOWHERE, asked, model_server, opened, running_server

pytestmark = pytest.mark.anyio
KEY = "sk-a-secret-that-nobody-sees"


def spec(url: str = NOWHERE, **more: object) -> EndpointSpec:
    return EndpointSpec.model_validate({"url": url, **more})


def kept_keys(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "keys").glob("*"))


async def test_an_endpoint_that_is_added_is_there_after_a_restart_with_its_keys(tmp_path: Path) -> None:
    redactor = Redactor()
    async with model_server("qwen") as server:
        async with opened(tmp_path, endpoints={"a": running_server()}) as here:
            await here.registry.add("b", spec(server.base_url), [KEY], "ann")
        async with opened(tmp_path, endpoints={"a": running_server()}, redactor=redactor) as here:
            await asked(here.models, "b")
        assert server.asked[-1].headers["authorization"] == f"Bearer {KEY}"
    [file] = kept_keys(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert KEY not in (tmp_path / "data" / "test.db").read_bytes().decode("latin-1")
    assert redactor.redact(KEY) == "[redacted]"


async def test_a_key_goes_with_its_endpoint(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": running_server()}) as here:
        await here.registry.add("b", spec(), [KEY], "ann")
        await here.registry.add("b", spec("http://127.0.0.1:10/v1"), [], "ann")  # which was sent no key
        assert [key.value for key in here.models.endpoints["b"].server.keys.keys] == [None]
        await here.registry.add("c", spec(), [KEY], "ann")
        assert [file.name.partition(".")[0] for file in kept_keys(tmp_path)] == ["c"]
        (tmp_path / "data" / "keys" / "mine").write_text(KEY)
        await here.registry.remove("c", "ann")
        assert [file.name for file in kept_keys(tmp_path)] == ["mine"]  # whoever put that there still needs it


@pytest.mark.parametrize(
    ("name", "url", "keys", "told"),
    [
        ("a/b", NOWHERE, [], "an endpoint's name has 1 to 64"),
        ("", NOWHERE, [], "an endpoint's name has 1 to 64"),
        ("../b", NOWHERE, [], "an endpoint's name has 1 to 64"),
        ("b", NOWHERE, [f"{KEY} {KEY}"], "One of the keys holds no key"),
        ("b", NOWHERE, [""], "One of the keys holds no key"),
    ],
)
async def test_what_cannot_be_added_changes_nothing(
    tmp_path: Path, name: str, url: str, keys: list[str], told: str
) -> None:
    async with opened(tmp_path, endpoints={"a": running_server()}) as here:
        with pytest.raises(InvalidEndpoint, match=told) as unfit:
            await here.registry.add(name, spec(url), keys, "ann")
        assert list(here.models.endpoints) == ["a"]
    assert KEY not in str(unfit.value)
    assert kept_keys(tmp_path) == []


async def test_endpoints_of_the_settings_are_changed_there(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": running_server()}) as here:
        for change in (here.registry.add("a", spec(), [], "ann"), here.registry.remove("a", "ann")):
            with pytest.raises(ReadOnlyEndpoint):
                await change
        with pytest.raises(UnknownEndpoint):
            await here.registry.remove("b", "ann")


async def test_what_settings_need_is_known(tmp_path: Path) -> None:
    flags = {"endpoints": {"a": running_server()}, "fallback": "a/x"}
    async with opened(tmp_path, **flags) as here:  # type: ignore[arg-type]
        await here.registry.add("b", spec(), [], "ann")
        assert (here.models.needed_by("a"), here.models.needed_by("b")) == ("fallback", None)


async def test_what_is_added_answers_where_nothing_was_configured(tmp_path: Path) -> None:
    async with model_server("qwen") as server:
        async with opened(tmp_path, model_url="scripted:") as here:
            await here.registry.add("b", spec(server.base_url), [], "ann")
            assert here.models.default.name == "default/scripted"  # somebody has named that one
        async with opened(tmp_path) as here:
            assert here.models.default.name == "b/qwen"
            await here.registry.add("b", spec(server.base_url, model="other"), [], "ann")
            assert here.models.default.name == "b/other"


async def test_a_run_keeps_the_endpoint_that_is_removed(tmp_path: Path) -> None:
    async with model_server("qwen") as server, opened(tmp_path, endpoints={"a": running_server()}) as here:
        await here.registry.add("b", spec(server.base_url, model="qwen"), [], "ann")
        route = here.models.route("b", "ann")
        await here.registry.remove("b", "ann")
        with pytest.raises(UnknownModel):
            here.models.route("b", "ann")
        async with asyncio.timeout(LIMIT_S), aclosing(route.stream(HELLO)) as pieces:
            assert [piece async for piece in pieces]


async def test_what_is_removed_is_closed_once_nobody_uses_it() -> None:
    model = Scripted(["Hi"])
    one = Endpoint("a", spec(), "added", FixedConnection(model), ServerState("a"))
    used = [one.handle()]
    async with asyncio.timeout(LIMIT_S):
        leaving = asyncio.create_task(one.retire(check_s=0))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not model.closed
        used.clear()
        gc.collect()
        await leaving
    assert model.closed


async def test_what_another_process_has_changed_is_taken_in(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": running_server()}) as here:
        other = await SQLiteStore.open(tmp_path / "data" / "test.db", visitor=True)
        await other.write([endpoint_row("b", spec(model="m"), "x"), endpoint_row("a", spec(model="ours"), "x")])
        await here.registry.reload()
        assert list(here.models.endpoints) == ["a", "b"]
        assert here.models.endpoints["a"].spec.model is None  # the settings' own
        before = here.models.endpoints["b"]
        await here.registry.reload()
        assert here.models.endpoints["b"] is before
        await other.write([EndpointRemoved("b")])
        await here.registry.reload()
        assert list(here.models.endpoints) == ["a"]
        await other.close()


async def test_a_row_that_cannot_be_read_costs_nobody_else_anything(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": running_server()}) as here:
        await here.registry.add("b", spec(), [KEY], "ann")
        other = await SQLiteStore.open(tmp_path / "data" / "test.db", visitor=True)
        await other.write([EndpointRow("c", '{"url": "http://h/v1", "from": "the future"}', "x", 1.0)])
        await here.registry.reload()
        assert list(here.models.endpoints) == ["a", "b"]
        await other.close()
    assert len(kept_keys(tmp_path)) == 1


async def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": running_server()}) as here:
        (tmp_path / "data" / "keys").write_text("a file where the folder should be")
        with pytest.raises(StoreFailed, match="The keys cannot be stored"):
            await here.registry.add("b", spec(), [KEY], "ann")
        assert list(here.models.endpoints) == ["a"]


CHANGES = some.lists(
    some.tuples(some.sampled_from(["add", "add with a key", "remove", "restart"]), some.sampled_from(["b", "c"])),
    max_size=8,
)


@settings(max_examples=20, deadline=None)
@given(changes=CHANGES)
async def test_what_is_there_is_what_was_said_last(
    changes: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, said = tmp_path_factory.mktemp("endpoints"), dict[str, str | None]()
    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack:
        here = await stack.enter_async_context(opened(folder, endpoints={"a": running_server()}))
        for number, (change, name) in enumerate(changes):
            match change:
                case "remove":
                    with suppress(UnknownEndpoint):
                        await here.registry.remove(name, "ann")
                    said.pop(name, None)
                case "restart":
                    await stack.aclose()
                    here = await stack.enter_async_context(opened(folder, endpoints={"a": running_server()}))
                case _:
                    key = f"{KEY}-{number}" if change == "add with a key" else None
                    await here.registry.add(name, spec(), [key] if key else [], "ann")
                    said[name] = key
            added = {one.name: one.server.keys.keys[0].value for one in here.models.endpoints.values()}
            assert added == {"a": None, **said}
            assert len(kept_keys(folder)) == sum(key is not None for key in said.values())
