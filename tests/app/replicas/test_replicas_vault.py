"""Secrets that servers share through their database: the same at each, and nothing without the key."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.core.endpoint_spec import EndpointSpec
from app.mcp.sign_ins import SealedTokens
from app.models.endpoints.key_sources import KeyFolder, read_keys
from app.notifications.key_files import TRIGGERS, VAPID, KeyFiles
from app.replicas.secret_store import SecretStore, opened_vault
from app.storage.changes import StoreFailed
from tests.support.databases.postgres import Cluster
from tools.mcp.auth.token_file import TokenFile, TokenFolder

pytestmark = pytest.mark.anyio
KEY, OTHER = "the first key of tests: 32 characters", "another key of tests, in 32 characters"


NEW = "a new key of tests without a comma: 32 characters"


@asynccontextmanager
async def database(postgres: Cluster) -> AsyncGenerator[Any, None]:
    from app.storage.postgres.store import PostgresStore

    store = await PostgresStore.open(postgres.database())
    try:
        yield store
    finally:
        await store.close()


async def vault_of(store: Any, key: str) -> SecretStore:
    made = await opened_vault(store, key)
    assert made
    return made


def has_files(folder: Path) -> bool:
    return bool(list(folder.glob("*/*.sent")))


async def test_a_secret_is_encrypted_and_the_same_for_every_server(postgres: Cluster) -> None:
    async with database(postgres) as store:
        one, other = await vault_of(store, KEY), await vault_of(store, KEY)
        assert await one.first("key", "signing", b"a secret") == b"a secret"
        assert await other.first("key", "signing", b"another one") == b"a secret"
        await other.put("endpoint", "near.sent", b"sk-1")
        assert await one.all("endpoint") == {"near.sent": b"sk-1"}
        rows = [content for kind in await store.sealed_kinds() for content in (await store.sealed(kind)).values()]
        assert len(rows) == 3 and not any(b"secret" in row or b"sk-1" in row for row in rows)
        async with one.lock("oauth", "a"), other.lock("oauth", "b"):
            await one.remove("endpoint", ["near.sent"], older_than_s=60)
            assert await one.get("endpoint", "near.sent") == b"sk-1", "it may be just being added"
            await one.remove("endpoint", ["near.sent"])
        assert await other.get("endpoint", "near.sent") is None


async def test_a_wrong_or_missing_key_says_what_to_do(postgres: Cluster) -> None:
    async with database(postgres) as store:
        assert await opened_vault(store, None) is None
        await vault_of(store, KEY)
        with pytest.raises(StoreFailed, match="DRAGOMAN_SECRET_KEY is not the key"):
            await opened_vault(store, OTHER)
        with pytest.raises(StoreFailed, match="set DRAGOMAN_SECRET_KEY"):
            await opened_vault(store, None)


async def test_a_key_is_replaced_by_a_list_of_keys(postgres: Cluster) -> None:
    async with database(postgres) as store:
        await (await vault_of(store, KEY)).put("endpoint", "near.sent", b"sk-1")
        await vault_of(store, f"{NEW}, {KEY}")
        assert await (await vault_of(store, NEW)).get("endpoint", "near.sent") == b"sk-1"
        with pytest.raises(StoreFailed):
            await opened_vault(store, KEY)


async def test_a_secret_cannot_be_put_in_the_place_of_another(postgres: Cluster) -> None:
    async with database(postgres) as store:
        vault = await vault_of(store, KEY)
        await vault.put("endpoint", "near.sent", b"sk-1")
        [sealed] = (await store.sealed("endpoint")).values()
        await store.put_sealed("endpoint", "far.sent", sealed)
        with pytest.raises(StoreFailed, match=r"endpoint far\.sent"):
            await vault.all("endpoint")


async def test_every_server_signs_with_the_keys_of_the_first(tmp_path: Path, postgres: Cluster) -> None:
    async with database(postgres) as store:
        first = KeyFiles(tmp_path / "a")
        signature = first.webhook_secret("whk_1", 1)  # of a time before the database was shared
        await first.share(await vault_of(store, KEY))
        second = KeyFiles(tmp_path / "b")
        await second.share(await vault_of(store, KEY))
        assert second.webhook_secret("whk_1", 1) == first.webhook_secret("whk_1", 1) == signature
        for name in (VAPID, TRIGGERS):
            assert first.read(name, bytes) == second.read(name, bytes) != b""
        assert not (tmp_path / "b").exists()


async def test_a_key_of_an_endpoint_is_read_at_every_server(tmp_path: Path, postgres: Cluster) -> None:
    async with database(postgres) as store:
        vault = await vault_of(store, KEY)
        first, second = (KeyFolder(tmp_path / name, vault) for name in "ab")
        (tmp_path / "a").mkdir()
        (tmp_path / "a/old.1.sent").write_text("sk-old\n")
        spec = EndpointSpec(url="http://near/v1", key_file=(await first.keep("near", ["sk-1", "sk-2"]), "old.1.sent"))
        await first.refresh()
        await second.refresh()
        for folder in (first, second):
            assert read_keys(spec, {}, folder.folder, folder.shared).values == ("sk-1", "sk-2", "sk-old")
        assert not has_files(tmp_path)
        await second.sweep([])
        assert await (await vault_of(store, KEY)).all("endpoint"), "their endpoint may be just being added"


async def test_tokens_of_a_sign_in_are_those_of_every_server(tmp_path: Path, postgres: Cluster) -> None:
    async with database(postgres) as store:
        secrets = list[str]()
        kept = {"tokens": {"access_token": "at-1", "refresh_token": "rt-1"}}
        before = TokenFolder(tmp_path)
        await TokenFile(before, "near-1").write("https://issuer", kept)
        vault = await vault_of(store, KEY)
        first, second = (SealedTokens(vault, place) for place in (before, TokenFolder(tmp_path / "b")))
        assert await TokenFile(first, "near-1", secrets.append).read() == kept
        assert await TokenFile(second, "near-1").read() == {}
        async with first.lock("near-1"):
            await TokenFile(first, "near-1").write("https://issuer", kept | {"ends_at": 2.0})
        assert (await TokenFile(second, "near-1").read())["ends_at"] == 2.0
        assert secrets == ["at-1", "rt-1"]
        await second.remove("near-")
        await first.remove("near-")
        assert await TokenFile(first, "near-1").read() == {} and json.loads(await second.read("near-1") or b"{}") == {}
