"""Tokenizer of a model, from the tokenizer.json that comes with its weights."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from app.config.sources import SettingsError
from app.models.http.json_body import encodable

MOST_BYTES = 256 * 1024 * 1024  # ten times the largest known files


async def load_tokenizer(path: Path) -> Callable[[Sequence[str]], Awaitable[list[int]]]:
    """Return a function that counts tokens as the file says. Raises SettingsError if it is not a valid tokenizer."""
    # gather catches: the library raises plain Exception.
    [read] = await asyncio.gather(asyncio.to_thread(_read, path), return_exceptions=True)
    if isinstance(read, BaseException):
        advice = "Set DRAGOMAN_TOKENIZER to the tokenizer.json of your model, or leave it out."
        raise SettingsError([f"tokenizer: {path} cannot be used ({read}). {advice}"])
    read.no_truncation()
    read.no_padding()
    return partial(_count_tokens, read)


async def _count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Count in a worker thread: large texts take long, and the library releases the GIL."""
    return await asyncio.to_thread(_counts, tokenizer, [encodable(text) for text in texts])


def _counts(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    return [len(one.ids) for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def _read(path: Path) -> Tokenizer:
    """Read a regular file of limited size; a pipe would block start-up. Raises Exception."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is not a file")
    if found.st_size > MOST_BYTES:
        raise OSError(f"it has {found.st_size:,} bytes, and {MOST_BYTES:,} are allowed")
    return Tokenizer.from_file(str(path))
