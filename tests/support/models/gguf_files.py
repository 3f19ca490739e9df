"""GGUF files for tests: headers of any kind, with weights that are zeros."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

Value = str | int | bool | Sequence[str] | Sequence[int]
FIELDS: Mapping[str, Value] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "general.file_type": 15,
    "llama.block_count": 4,
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.ggml.tokens": ["<s>", "a", "b"],
}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value_of(value: Value) -> bytes:
    """A value with its type in front."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case str():
            return struct.pack("<I", 8) + text(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(str(one)) for one in value)
    return struct.pack("<IIQ", 9, 4, len(value)) + b"".join(struct.pack("<I", one) for one in value)


def head(tensors: int, values: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, values)


def field(name: str, value: Value) -> bytes:
    return text(name) + value_of(value)


def tensor(name: str, offset: int, dimensions: int = 1) -> bytes:
    return text(name) + struct.pack(f"<I{dimensions}QIQ", dimensions, *([4] * dimensions), 0, offset)


def gguf(fields: Mapping[str, Value] = FIELDS, weights: int = 4096) -> bytes:
    """A whole file with one tensor at its end."""
    header = head(1, len(fields)) + b"".join(field(name, value) for name, value in fields.items())
    header += tensor("w", weights - 16)
    return header + bytes(-len(header) % 32) + bytes(weights)


def written(path: Path, content: bytes | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf() if content is None else content)
    return path
