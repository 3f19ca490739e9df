"""Endpoints: what models are called, which of them answers by default, what a server is known to have."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.core.endpoint_spec import EndpointSpec
from app.models.capabilities.server_profiles import Profile
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.model_names import find_model, resolve_alias
from app.models.endpoints.model_registry import Models, UnknownModel
from app.models.endpoints.server_state import ServerState
from app.models.providers import provider_kind
from app.models.scripted import Scripted
from app.models.server_connection import ConnectionOptions, FixedConnection
from tests.support.models.endpoints import LIMIT_S, NOWHERE, listing, model_server, opened, running_server
from tests.support.models.upstream import Paths, answer, upstream

pytestmark = pytest.mark.anyio


def endpoint(name: str, *, only: str | None = None, **spec: object) -> Endpoint:
    made = EndpointSpec.model_validate({"url": NOWHERE, **spec})
    return Endpoint(name, made, "settings", FixedConnection(Scripted([], only or "m")), ServerState(name))


HOUSE = {
    "local": running_server(model="qwen", models=["qwen", "org/llama", "hosted"]),
    "hosted": running_server(model="big"),
    "org": running_server(models=["small"]),
}
ALIASES = {"fast": "local/qwen", "faster": "fast", "hosted/odd": "org/small", "sharp": "hosted"}
PLACES = [
    ("qwen", "local/qwen"),
    ("local/qwen", "local/qwen"),
    ("local", "local/qwen"),
    ("fast", "local/qwen"),
    ("faster", "local/qwen"),
    ("big", "hosted/big"),
    ("hosted/any/thing", "hosted/any/thing"),  # nobody has said which models there are
    ("local/org/llama", "local/org/llama"),
    ("org/llama", "local/org/llama"),  # `org` has no such model, but a model is called so
    ("hosted", "local/hosted"),  # a model before an endpoint
    ("sharp", "local/hosted"),
    ("org", "org/small"),
    ("hosted/odd", "org/small"),  # an alias before all
    ("local/other", None),  # `models` are all that there are
    ("hosted/", None),
    ("/big", None),
    ("Qwen", None),
    ("", None),
]


@pytest.mark.parametrize(("name", "place"), PLACES)
async def test_what_a_model_may_be_called(tmp_path: Path, name: str, place: str | None) -> None:
    async with opened(tmp_path, endpoints=HOUSE, aliases=ALIASES) as here:
        if place is not None:
            assert here.models.route(name, "ann").handles[0].name == place
            return
        with pytest.raises(UnknownModel, match="there is no"):
            here.models.route(name, "ann")


async def test_one_model_is_one_target_whatever_it_is_called(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints=HOUSE, aliases=ALIASES) as here:
        names = (None, "qwen", "local/qwen", "local", "fast", "faster")
        handles = {here.models.route(name, "ann").handles[0] for name in names}
        others = {here.models.route(name, "ann").handles[0] for name in ("hosted/x", "hosted/x", "hosted/y")}
        hosts = {handle.server for handle in others}
    assert (len(handles), len(others), len(hosts)) == (1, 2, 1)


async def test_who_misspells_a_name_is_told_the_nearest(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints=HOUSE, aliases={"fast": "qwen"}) as here:
        with pytest.raises(UnknownModel) as unknown:
            here.models.route("qwem", "ann")
        with pytest.raises(UnknownModel) as hostile:
            here.models.route("\x1b" * 200, "ann")
    there = "there are fast, local/qwen, local/org/llama, local/hosted, hosted/big, org/small"
    assert str(unknown.value) == f"there is no 'qwem'; {there}; did you mean local/qwen?"
    assert str(hostile.value).isprintable() and len(str(hostile.value)) < 600


@given(some.text(max_size=40), some.lists(some.sampled_from(["a", "a/b", "b", "b/c", "c"]), unique=True))
def test_a_name_leads_to_one_place_or_none(name: str, models: list[str]) -> None:
    endpoints = {one: endpoint(one) for one in ("a", "b")}
    aliases = {model: "a" for model in models if model != "a"}
    place = find_model(name, aliases, endpoints)
    if place is None:
        assert name not in (*endpoints, *models)
    else:
        assert place[0] in endpoints.values()
        assert place[1] is None or place[0].takes(place[1])


CYCLES: list[dict[str, str]] = [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}]


@pytest.mark.parametrize("aliases", CYCLES, ids=lambda aliases: " ".join(aliases))
def test_cyclic_aliases_are_refused(aliases: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"aliases form a cycle: a -> .*Let one of them name a model"):
        resolve_alias("a", aliases)
    with pytest.raises(ValueError, match="a cycle"):
        Models({"one": endpoint("one")}, aliases)


@given(some.dictionaries(some.sampled_from("abcd"), some.sampled_from("abcdm")))
def test_every_alias_leads_to_a_name_or_is_refused(aliases: dict[str, str]) -> None:
    for alias in aliases:
        try:
            assert resolve_alias(alias, aliases) not in aliases
        except ValueError:
            continue  # a cycle


async def test_names_that_are_made_up_do_not_pile_up() -> None:
    one = endpoint("local", only="m")
    for number in range(2000):
        one.handle(f"model {number}")
    gc.collect()
    assert len(one.handles()) < 400


async def test_stand_ins_follow_the_wanted_model_each_once(tmp_path: Path) -> None:
    fallback = "org/small,fast,hosted"
    async with opened(tmp_path, endpoints=HOUSE, aliases={"fast": "local/qwen"}, fallback=fallback) as here:
        route = here.models.route("org", "ann")
        assert [handle.name for handle in route.handles] == ["org/small", "local/qwen", "local/hosted"]
        assert here.models.utility(route) is route


async def test_a_model_has_fallbacks_of_its_own(tmp_path: Path) -> None:
    fallbacks = {"hosted/*": ["org"], "local/qwen": []}
    async with opened(tmp_path, endpoints=HOUSE, fallback="hosted", fallbacks=fallbacks) as here:
        chains = {
            name: [one.name for one in here.models.route(name, "ann").handles] for name in ("hosted/big", "qwen", "org")
        }
    assert chains == {
        "hosted/big": ["hosted/big", "org/small"],
        "qwen": ["local/qwen"],
        "org": ["org/small", "local/hosted"],
    }


async def test_the_utility_model_has_the_runs_own_behind_it(tmp_path: Path) -> None:
    async with opened(tmp_path, endpoints=HOUSE, utility="hosted/tiny", fallback="org") as here:
        route = here.models.utility(here.models.route("qwen", "ann"))
    assert [handle.name for handle in route.handles] == ["hosted/tiny", "local/qwen", "org/small"]
    assert route.principal == "ann"


DEFAULTS = [
    ({"endpoints": HOUSE}, "local/qwen"),
    ({"endpoints": HOUSE, "model": "org/small"}, "org/small"),
    ({"endpoints": HOUSE, "model": "big"}, "hosted/big"),
    ({"endpoints": HOUSE, "model": "sharp", "aliases": {"sharp": "hosted/big"}}, "hosted/big"),
    ({"endpoints": {"a": running_server()}, "model": "org/llama"}, "a/org/llama"),  # no endpoint is called org
    ({"endpoints": HOUSE, "model_url": NOWHERE, "model": "qwen"}, "default/qwen"),
    ({"endpoints": HOUSE, "model_url": NOWHERE, "model": "x/y"}, "default/x/y"),
    ({"endpoints": HOUSE, "model_url": NOWHERE, "model": "local/qwen"}, "local/qwen"),
    ({"endpoints": HOUSE, "model_url": "scripted:"}, "default/scripted"),
    ({"endpoints": {"tiny": running_server("scripted:", model="toy")}}, "tiny/toy"),
]


@pytest.mark.parametrize(("flags", "name"), DEFAULTS, ids=[name for _, name in DEFAULTS])
async def test_which_model_answers_whoever_names_none(tmp_path: Path, flags: dict[str, object], name: str) -> None:
    async with opened(tmp_path, **flags) as here:  # type: ignore[arg-type]
        assert here.models.default.name == name
        assert here.models.route(None, "ann").handles[0] is here.models.default


async def test_what_is_found_on_a_port_is_called_after_its_server(tmp_path: Path) -> None:
    async with model_server("qwen", "llama") as server:
        async with opened(tmp_path, found=Profile("llama.cpp", port=server.port)) as here:
            assert list(here.models.endpoints) == ["llama-cpp"]
            assert here.models.default.name == "llama-cpp/qwen"


async def test_nothing_is_looked_for_where_endpoints_are_configured(tmp_path: Path) -> None:
    async with model_server("qwen") as server:
        async with opened(
            tmp_path, found=Profile("Ollama", port=server.port), endpoints={"a": running_server()}
        ) as here:
            assert list(here.models.endpoints) == ["a"]
        assert not server.asked


async def at_once() -> None:
    """Nothing is paused."""


async def test_a_list_is_learned_in_the_background_and_again_after_a_failure() -> None:
    paths = Paths({"/v1/models": answer("{}", 503)})
    async with asyncio.timeout(LIMIT_S), upstream(paths, repeat=True) as server:
        paths.server = server
        spec = EndpointSpec(url=server.base_url)
        one = Endpoint(
            "a", spec, "settings", provider_kind(spec.url).connect(spec, None, ConnectionOptions()), ServerState("a")
        )
        task = asyncio.create_task(one.learn_forever(at_once, soon_s=0.01, often_s=0))
        try:
            while "status 503" not in one.last_error:
                await give_way()
            paths.acts = {"/v1/models": listing("qwen")}
            await until_listed(one, "qwen")
            paths.acts = {"/v1/models": listing("qwen", "llama")}
            one.refresh()  # somebody asked for a model that is not there
            await until_listed(one, "llama")
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await one.close()


async def give_way() -> None:
    await asyncio.sleep(0)


async def until_listed(one: Endpoint, model: str) -> None:
    while model not in one.models():
        await give_way()


async def test_models_that_a_server_lists_can_be_asked_by_their_names_alone(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), model_server("qwen") as first, model_server("qwen", "llama") as second:
        endpoints = {"a": running_server(first.base_url, model="x"), "b": running_server(second.base_url, model="y")}
        async with opened(tmp_path, endpoints=endpoints) as here:
            await until_listed(here.models.endpoints["a"], "qwen")
            await until_listed(here.models.endpoints["b"], "llama")
            named = {name: here.models.route(name, "ann").handles[0].name for name in ("qwen", "llama")}
    assert named == {"qwen": "a/qwen", "llama": "b/llama"}


async def test_a_long_list_and_odd_names_are_bounded() -> None:
    names = ["ok", "", "x" * 300, "a\x1b[2J", *map(str, range(9000))]
    async with asyncio.timeout(LIMIT_S), upstream(listing(*names)) as server:
        spec = EndpointSpec(url=server.base_url)
        one = Endpoint(
            "a", spec, "settings", provider_kind(spec.url).connect(spec, None, ConnectionOptions()), ServerState("a")
        )
        assert await one.learn()
        await one.close()
    assert one.models()[:2] == ("ok", "0")
    assert len(one.models()) == 5000
