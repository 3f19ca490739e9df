"""A tokenizer file: it counts as the model does, and what is none is said when the server starts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from app.config.sources import SettingsError
from app.core.messages import Message
from app.models.scripted import Scripted
from app.models.tokens.counter import ROLE, create_counter
from routes.services import open_services
from tests.support.models.endpoints import opened, running_server
from tests.support.models.scripted_models import Letters
from tests.support.server.serving import chosen, settings_in

pytestmark = pytest.mark.anyio


async def test_a_tokenizer_file_counts_before_the_server_does(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    words = "the cat sat on the mat and the dog sat on the cat"
    tokenizer.train_from_iterator(
        [words] * 9, trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    )
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer.no_truncation()
    provider = Letters()
    counter = await create_counter(provider, None, tmp_path / "tokenizer.json")
    for text in (words, "le chat \U0001f600 \ud800", "x" * 3000):
        await counter.prepare([Message("user", text)])
        exact = len(tokenizer.encode(text.replace("\ud800", "\ufffd")).ids)
        assert counter.measure(Message("user", text)) == exact + ROLE
    assert provider.asked == []


async def test_with_a_tokenizer_file_it_is_still_known_what_the_model_cannot_see(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    blind = {"a": running_server(images=False)}
    async with opened(tmp_path, endpoints=blind, model="a/m", tokenizer=str(tmp_path / "tokenizer.json")) as here:
        assert here.models.default.counter.sees("images") is False


@pytest.mark.parametrize("content", [None, "", "{}", "not JSON", '{"model": {"type": "BPE"}}'])
async def test_a_tokenizer_file_that_is_none_is_said_at_start(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    settings = settings_in(tmp_path, tokenizer=str(path))
    with pytest.raises(SettingsError) as wrong:
        async with open_services(settings, lambda _: chosen(Scripted([]))):
            pass
    [problem] = wrong.value.problems
    assert f"tokenizer: {path} cannot be used" in problem and "DRAGOMAN_TOKENIZER" in problem


@pytest.mark.parametrize("kind", ["pipe", "folder", "endless"])
async def test_a_tokenizer_that_is_no_file_does_not_keep_the_server_from_starting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tokenizer.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(10**12)  # takes no room
    async with asyncio.timeout(30):
        with pytest.raises(SettingsError, match="cannot be used"):
            await create_counter(Letters(), None, path)
