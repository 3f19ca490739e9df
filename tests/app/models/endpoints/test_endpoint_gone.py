"""Endpoints that are not there any more, or that cannot be reached from here: told, and nobody else answers unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.config.sources import SettingsError
from app.core.endpoint_spec import EndpointSpec
from app.core.provider import ProviderFailed
from app.models.endpoints.registry import endpoint_row
from app.storage.endpoints import EndpointRemoved
from app.storage.sqlite.store import SQLiteStore
from tests.support.models.endpoints import NOWHERE, asked, model_server, opened, running_server
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
HOSTED = "https://api.example.com/v1"


def spec(url: str = NOWHERE, **more: object) -> EndpointSpec:
    return EndpointSpec.model_validate({"url": url, **more})


async def test_a_default_model_that_was_removed_is_not_replaced_by_another(tmp_path: Path) -> None:
    async with model_server("small") as server:
        async with opened(tmp_path, endpoints={"a": running_server(server.base_url)}) as here:
            await here.registry.add("b", spec(model="big"), [], "ann")
        async with opened(tmp_path, endpoints={"a": running_server(server.base_url)}, model="b/big") as here:
            other = await SQLiteStore.open(tmp_path / "data" / "test.db", visitor=True)
            await other.write([EndpointRemoved("b")])
            await other.close()
            await here.registry.reload()
            with pytest.raises(ProviderFailed, match="default model b/big has no endpoint any more") as failed:
                await asked(here.models)
            assert failed.value.code == "model_not_found"
            assert here.models.default.name == "b/big"
            await here.registry.add("b", spec(server.base_url, model="big"), [], "ann")
            await asked(here.models)  # it is back
    assert [one.json["model"] for one in server.asked if one.path.endswith("completions")] == ["big"]


async def test_a_server_whose_last_endpoint_is_removed_goes_on_and_says_so(tmp_path: Path) -> None:
    async with model_server("qwen") as server:
        store = await SQLiteStore.open(tmp_path / "data" / "dragoman.db")
        await store.write([endpoint_row("b", spec(server.base_url), "x")])
        await store.close()
        async with serving(tmp_path, None) as served:
            assert (await served.client.delete("/endpoints/b")).status_code == 204
            listed, *_, failed = (await served.client.get("/endpoints")).json(), *(await served.chat())
            ready = await served.client.get("/readyz")
            body = {"name": "b", "url": server.base_url}
            assert (await served.client.post("/endpoints", json=body)).status_code == 201
            *_, finished = await served.chat()
    assert listed["endpoints"] == []
    assert (ready.status_code, failed["code"]) == (200, "model_not_found")
    assert "Add one with `dragoman endpoint add`" in failed["message"]
    assert finished["reason"] == "answered"


@pytest.mark.parametrize("transport", ["lean", "httpx2"])
@pytest.mark.parametrize(
    ("variable", "value"), [("HTTPS_PROXY", "odd://proxy"), ("HTTPS_PROXY", "a:b:c"), ("SSL_CERT_FILE", "/nowhere")]
)
async def test_surroundings_in_which_no_client_can_be_made_cost_one_endpoint_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, transport: str
) -> None:
    monkeypatch.setenv(variable, value)
    async with opened(tmp_path, endpoints={"a": running_server()}, transport=transport) as here:
        added = await here.registry.add("b", spec(HOSTED), [], "ann")
        assert f"cannot be reached from here: {'' if '/' in value else 'Invalid'}" in added.problem
        assert "HTTPS_PROXY" in added.problem
        with pytest.raises(ProviderFailed, match="The endpoint b cannot be reached from here"):
            await asked(here.models, "b/m")
        await here.registry.reload()
    with pytest.raises(SettingsError, match="HTTPS_PROXY"):
        async with opened(tmp_path, endpoints={"b": running_server(HOSTED)}, transport=transport):
            pass
