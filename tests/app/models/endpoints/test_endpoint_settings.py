"""Endpoints as the settings have them: their keys, and what cannot be right."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from app.config.sources import SettingsError
from app.core.endpoint_spec import EndpointSpec
from app.core.provider import ProviderFailed
from app.models.endpoints.key_sources import read_keys
from app.redaction.redactor import Redactor
from tests.support.models.endpoints import NOWHERE, asked, model_server, opened, running_server
from tests.support.server.serving import settings_in

pytestmark = pytest.mark.anyio
KEY = "sk-a-secret-that-nobody-sees"


async def test_keys_come_from_variables_and_files_and_are_secrets_from_then_on(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}-two\n\n{KEY}-three\n")
    redactor = Redactor()
    async with model_server("qwen") as server:
        hosted = running_server(server.base_url, key_env="ONE", key_file=[str(tmp_path / "key")])
        async with opened(tmp_path, {"ONE": f"{KEY}-one"}, endpoints={"a": hosted}, redactor=redactor) as here:
            await asked(here.models)
            keys = here.models.endpoints["a"].server.keys
    assert [key.value for key in keys.keys] == [f"{KEY}-{which}" for which in ("one", "two", "three")]
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}-one"}
    assert redactor.redact(f"{KEY}-three.") == "[redacted]."
    assert KEY not in repr(keys) + repr(here.models.endpoints["a"].server)


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
    keys = read_keys(EndpointSpec(url=NOWHERE, key_file=(str(file),)), {}, tmp_path)
    assert keys.values == ()
    assert len(keys.problems) == 1 and str(file) in keys.problems[0] and why in keys.problems[0]
    assert KEY not in keys.problems[0]


async def test_without_its_keys_the_default_endpoint_refuses_to_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="the variable NOT_SET is not set"):
        async with opened(tmp_path, endpoints={"a": running_server(key_env="NOT_SET")}):
            pass


async def test_without_its_keys_another_endpoint_says_so_to_whoever_asks_it(tmp_path: Path) -> None:
    endpoints = {"a": running_server(model="m"), "b": running_server(model="n", key_env="NOT_SET")}
    async with opened(tmp_path, endpoints=endpoints) as here:
        assert "the variable NOT_SET is not set" in here.models.endpoints["b"].last_error
        with pytest.raises(ProviderFailed, match="Admins see the reason") as failed:
            await asked(here.models, "b")
        assert "NOT_SET" not in failed.value.message  # what the server's environment is like is not for everybody


async def test_with_some_of_its_keys_an_endpoint_works(tmp_path: Path) -> None:
    async with model_server("qwen") as server:
        endpoints = {"a": running_server(), "b": running_server(server.base_url, key_env=["NOT_SET", "SET"])}
        async with opened(tmp_path, {"SET": KEY}, endpoints=endpoints) as here:
            await asked(here.models, "b")
            assert "NOT_SET" in here.models.endpoints["b"].problem


WRONG = {
    "fallback": ({"fallback": "a/x,nowhere"}, "fallback names 'nowhere', which no endpoint has"),
    "fallbacks": ({"fallbacks": {"c/*": ["nowhere"]}}, "fallbacks names 'nowhere', which no endpoint has"),
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
    endpoints = {"a": running_server(), "c": running_server(models=["one"]), "k": running_server(key_env="NOT_SET")}
    with pytest.raises(SettingsError, match=re.escape(told)):
        async with opened(tmp_path, endpoints=endpoints, **flags):  # type: ignore[arg-type]
            pass


def test_a_key_in_the_settings_is_never_repeated(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as wrong:
        settings_in(tmp_path, endpoints=json.dumps({"a": running_server(key=KEY)}))
    assert "wrong is 'a', its 'key'" in str(wrong.value)
    assert KEY not in str(wrong.value)


TABLES = [
    ({"a/b": running_server()}, "endpoints (flag --endpoints)"),
    ({"a": running_server("ftp://h/v1")}, "wrong is 'a', its 'url'"),
    (
        {"a": running_server("http://user:pw@h/v1")},
        "wrong is 'a', its 'url' (is not a plain http(s) URL such as http://127",
    ),
    (
        {"a": running_server("http://u:secret\u2100@h/v1")},
        "wrong is 'a', its 'url' (is no URL: its host or port cannot be read)",
    ),
    ({"a": running_server("http://h/v1?key=1")}, "wrong is 'a', its 'url'"),
    ({"a": running_server(window=1)}, "wrong is 'a', its 'window'"),
    ({"a": running_server(format="grpc")}, "wrong is 'a', its 'format'"),
    ({"a": running_server(model="a\x1bb")}, "wrong is 'a', its 'model'"),
    ({"a": {}}, "wrong is 'a', its 'url'"),
    ({"a": running_server(key_file="work/key")}, "is inside the workspace"),
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
    assert wrong.value.problems == ("aliases form a cycle: b -> c -> b. Let one of them name a model.",)


def test_the_server_of_model_url_has_its_name_for_itself(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="model_url is the endpoint default"):
        settings_in(tmp_path, model_url=NOWHERE, endpoints=json.dumps({"default": running_server()}))


def test_key_files_count_from_where_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text('[endpoints.a]\nurl = "http://h/v1"\nkey_file = ["keys/a", "~/b", "/c"]\n')
    files = settings_in(tmp_path).endpoints["a"].key_file
    assert files == (f"{tmp_path}/keys/a", f"{tmp_path}/b", "/c")
