"""Endpoints: their keys, what is added and removed while the server runs, and settings that cannot be right."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import stat
from contextlib import aclosing
from pathlib import Path

import pytest

from app.endpoints.endpoint import Endpoint
from app.endpoints.host import Host
from app.endpoints.key_sources import keys_of
from app.endpoints.models import UnknownModel
from app.endpoints.registry import EndpointOfSettings, NoSuchEndpoint, UnfitEndpoint, row_of
from app.endpoints.spec import EndpointSpec
from app.provider import ProviderFailed
from app.providers.connections import Given
from app.providers.scripted import Scripted
from app.redaction import Redactor
from app.settings_sources import SettingsError
from app.store import EndpointGone, EndpointRow, StoreFailed
from app.store.sqlite import SQLiteStore
from tests.endpoints import HELLO, LIMIT_S, NOWHERE, asked, model_server, opened, server_at
from tests.serving import settings_in

pytestmark = pytest.mark.anyio
KEY = "sk-a-secret-that-nobody-sees"


def spec(url: str = NOWHERE, **more: object) -> EndpointSpec:
    return EndpointSpec.model_validate({"url": url, **more})


async def test_keys_come_from_variables_and_files_and_are_secrets_from_then_on(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}-two\n\n{KEY}-three\n")
    redactor = Redactor()
    async with model_server("qwen") as server:
        hosted = server_at(server.base_url, key_env="ONE", key_file=[str(tmp_path / "key")])
        async with opened(tmp_path, {"ONE": f"{KEY}-one"}, endpoints={"a": hosted}, redactor=redactor) as here:
            await asked(here.models)
            keys = here.models.endpoints["a"].host.keys
    assert [key.value for key in keys.keys] == [f"{KEY}-{which}" for which in ("one", "two", "three")]
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}-one"}
    assert redactor.redact(f"{KEY}-three.") == "[redacted]."
    assert KEY not in repr(keys) + repr(here.models.endpoints["a"].host)


FILES = {
    "missing": (None, "is not there"),
    "a folder": ("folder", "is no file"),
    "a pipe": ("pipe", "is no file"),
    "empty": (b" \n", "is empty"),
    "no text": (b"\xff\xfe", "is not text"),
    "a novel": (b"x" * 100_000, "it cannot be a key"),
    "two words": (f"{KEY} {KEY}".encode(), "holds no key"),
    "an odd letter": (f"{KEY}\u00e9".encode(), "holds no key"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_holds_no_key_is_named_and_never_told(tmp_path: Path, name: str) -> None:
    written, why = FILES[name]
    file = tmp_path / "key"
    match written:
        case bytes():
            file.write_bytes(written)
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
    keys = keys_of(spec(key_file=[str(file)]), {}, tmp_path)
    assert keys.values == ()
    assert len(keys.problems) == 1 and str(file) in keys.problems[0] and why in keys.problems[0]
    assert KEY not in keys.problems[0]


async def test_without_its_keys_the_default_endpoint_refuses_to_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the variable NOT_SET is not set"):
        async with opened(tmp_path, endpoints={"a": server_at(key_env="NOT_SET")}):
            pass


async def test_without_its_keys_another_endpoint_says_so_to_whoever_asks_it(tmp_path: Path) -> None:
    endpoints = {"a": server_at(model="m"), "b": server_at(model="n", key_env="NOT_SET")}
    async with opened(tmp_path, endpoints=endpoints) as here:
        assert "the variable NOT_SET is not set" in here.models.endpoints["b"].last_error
        with pytest.raises(ProviderFailed, match="the variable NOT_SET is not set"):
            await asked(here.models, "b")


async def test_with_some_of_its_keys_an_endpoint_works(tmp_path: Path) -> None:
    async with model_server("qwen") as server:
        endpoints = {"a": server_at(), "b": server_at(server.base_url, key_env=["NOT_SET", "SET"])}
        async with opened(tmp_path, {"SET": KEY}, endpoints=endpoints) as here:
            await asked(here.models, "b")
            assert "NOT_SET" in here.models.endpoints["b"].problem


WRONG = {
    "fallback": ({"fallback": "a/x,nowhere"}, "fallback names 'nowhere', which no endpoint is sure to have"),
    "utility": ({"utility": "b/x"}, "utility names 'b/x'"),
    "alias": ({"aliases": {"fast": "lost"}}, "aliases names 'fast'"),
    "closed": ({"fallback": "c/other"}, "fallback names 'c/other'"),
    "several": ({"fallback": "x", "utility": "y"}, "utility names 'y'"),
    "model": ({"model": "b/x", "aliases": {"b/x": "lost"}}, "model names 'b/x'"),
    "no key": ({"model": "k"}, "the variable NOT_SET is not set"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_settings_that_name_no_model_are_told_at_start(tmp_path: Path, name: str) -> None:
    flags, told = WRONG[name]
    endpoints = {"a": server_at(), "c": server_at(models=["one"]), "k": server_at(key_env="NOT_SET")}
    with pytest.raises(SettingsError, match=re.escape(told)):
        async with opened(tmp_path, endpoints=endpoints, **flags):  # type: ignore[arg-type]
            pass


def test_a_key_in_the_settings_is_never_repeated(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as wrong:
        settings_in(tmp_path, endpoints=json.dumps({"a": server_at(key=KEY)}))
    assert "wrong is 'a', its 'key'" in str(wrong.value)
    assert KEY not in str(wrong.value)


TABLES = [
    ({"a/b": server_at()}, "endpoints (flag --endpoints)"),
    ({"a": server_at("ftp://h/v1")}, "wrong is 'a', its 'url'"),
    ({"a": server_at("http://user:pw@h/v1")}, "wrong is 'a', its 'url'"),
    ({"a": server_at("http://h/v1?key=1")}, "wrong is 'a', its 'url'"),
    ({"a": server_at(window=1)}, "wrong is 'a', its 'window'"),
    ({"a": server_at(format="grpc")}, "wrong is 'a', its 'format'"),
    ({"a": server_at(model="a\x1bb")}, "wrong is 'a', its 'model'"),
    ({"a": {}}, "wrong is 'a', its 'url'"),
    ({"a": server_at(key_file="work/key")}, "is inside the workspace"),
]


@pytest.mark.parametrize(("endpoints", "told"), TABLES)
def test_an_endpoint_that_cannot_be_one_is_pointed_at(tmp_path: Path, endpoints: object, told: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        settings_in(tmp_path, endpoints=json.dumps(endpoints))
    assert told in str(wrong.value)
    assert str(wrong.value).isascii() and "pw@" not in str(wrong.value)


def test_aliases_in_a_circle_are_told_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as wrong:
        settings_in(tmp_path, aliases=json.dumps({"b": "c", "c": "b", "a": "b"}))
    assert wrong.value.problems == ("aliases lead in a circle: b -> c -> b. Let one of them name a model.",)


def test_the_server_of_model_url_has_its_name_for_itself(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="model_url is the endpoint default"):
        settings_in(tmp_path, model_url=NOWHERE, endpoints=json.dumps({"default": server_at()}))


def test_key_files_count_from_where_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text('[endpoints.a]\nurl = "http://h/v1"\nkey_file = ["keys/a", "~/b", "/c"]\n')
    files = settings_in(tmp_path).endpoints["a"].key_file
    assert files == (f"{tmp_path}/keys/a", f"{tmp_path}/b", "/c")


def kept_keys(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "keys").glob("*"))


async def test_an_endpoint_that_is_added_is_there_after_a_restart_with_its_keys(tmp_path: Path) -> None:
    redactor = Redactor()
    async with model_server("qwen") as server:
        async with opened(tmp_path, endpoints={"a": server_at()}) as here:
            await here.registry.add("b", spec(server.base_url), [KEY], "ann")
        async with opened(tmp_path, endpoints={"a": server_at()}, redactor=redactor) as here:
            await asked(here.models, "b")
        assert server.asked[-1].headers["authorization"] == f"Bearer {KEY}"
    [file] = kept_keys(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert KEY not in (tmp_path / "data" / "test.db").read_bytes().decode("latin-1")
    assert redactor.redact(KEY) == "[redacted]"


async def test_a_key_goes_with_its_endpoint(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": server_at()}) as here:
        await here.registry.add("b", spec(), [KEY], "ann")
        await here.registry.add("b", spec("http://127.0.0.1:10/v1"), [], "ann")  # which was sent no key
        assert [key.value for key in here.models.endpoints["b"].host.keys.keys] == [None]
        await here.registry.add("c", spec(), [KEY], "ann")
        assert [file.name.partition(".")[0] for file in kept_keys(tmp_path)] == ["c"]
        await here.registry.remove("c", "ann")
        assert kept_keys(tmp_path) == []


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
    async with opened(tmp_path, endpoints={"a": server_at()}) as here:
        with pytest.raises(UnfitEndpoint, match=told) as unfit:
            await here.registry.add(name, spec(url), keys, "ann")
        assert list(here.models.endpoints) == ["a"]
    assert KEY not in str(unfit.value)
    assert kept_keys(tmp_path) == []


async def test_endpoints_of_the_settings_are_changed_there(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": server_at()}) as here:
        for change in (here.registry.add("a", spec(), [], "ann"), here.registry.remove("a", "ann")):
            with pytest.raises(EndpointOfSettings):
                await change
        with pytest.raises(NoSuchEndpoint):
            await here.registry.remove("b", "ann")


async def test_what_settings_need_is_known(tmp_path: Path) -> None:
    flags = {"endpoints": {"a": server_at()}, "fallback": "a/x"}
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
    async with model_server("qwen") as server, opened(tmp_path, endpoints={"a": server_at()}) as here:
        await here.registry.add("b", spec(server.base_url, model="qwen"), [], "ann")
        route = here.models.route("b", "ann")
        await here.registry.remove("b", "ann")
        with pytest.raises(UnknownModel):
            here.models.route("b", "ann")
        async with asyncio.timeout(LIMIT_S), aclosing(route.stream(HELLO)) as pieces:
            assert [piece async for piece in pieces]


async def test_what_is_removed_is_closed_once_nobody_uses_it() -> None:
    model = Scripted(["Hi"])
    one = Endpoint("a", spec(), "added", Given(model), Host("a"))
    used = [one.target()]
    async with asyncio.timeout(LIMIT_S):
        leaving = asyncio.create_task(one.retire(look_s=0))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not model.closed
        used.clear()
        gc.collect()
        await leaving
    assert model.closed


async def test_what_another_process_has_changed_is_taken_in(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": server_at()}) as here:
        other = await SQLiteStore.open(tmp_path / "data" / "test.db")
        await other.write([row_of("b", spec(model="m"), "x"), row_of("a", spec(model="ours"), "x")])
        await here.registry.reload()
        assert list(here.models.endpoints) == ["a", "b"]
        assert here.models.endpoints["a"].spec.model is None  # the settings' own
        before = here.models.endpoints["b"]
        await here.registry.reload()
        assert here.models.endpoints["b"] is before
        await other.write([EndpointGone("b")])
        await here.registry.reload()
        assert list(here.models.endpoints) == ["a"]
        await other.close()


async def test_a_row_that_cannot_be_read_costs_nobody_else_anything(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": server_at()}) as here:
        await here.registry.add("b", spec(), [KEY], "ann")
        other = await SQLiteStore.open(tmp_path / "data" / "test.db")
        await other.write([EndpointRow("c", '{"url": "http://h/v1", "from": "the future"}', "x", 1.0)])
        await here.registry.reload()
        assert list(here.models.endpoints) == ["a", "b"]
        await other.close()
    assert len(kept_keys(tmp_path)) == 1


async def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints={"a": server_at()}) as here:
        (tmp_path / "data" / "keys").write_text("a file where the folder should be")
        with pytest.raises(StoreFailed, match="The keys cannot be kept"):
            await here.registry.add("b", spec(), [KEY], "ann")
        assert list(here.models.endpoints) == ["a"]
