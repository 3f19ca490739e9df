"""Header of a GGUF file, read without its weights: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.

A file is untrusted: every length is compared to what is left of the header's bound before anything is read, and values
that are not needed are skipped.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from app.models.serving.refusals import UnfitFile

MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEADER_BYTES = 64 << 20  # the longest known headers, of vocabularies with 260,000 words, have 15 MB
MOST_VALUES = 4096
MOST_TENSORS = 1 << 17
MOST_WORDS = 1 << 21  # texts of a list, such as the vocabulary
LONGEST_KEY = 256
LONGEST_TEXT = 4 << 20  # chat templates have up to 100 KB
LONGEST_NAME = 120
KEPT_LIST = 4096  # lists of numbers per layer; longer ones are skipped
MOST_DIMENSIONS = 4
MOST_PARTS = 512

TEMPLATE = "tokenizer.chat_template"
TEXT, LIST = 8, 9
# type -> format of `struct`
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Names by `general.file_type`: https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h
FILE_TYPES = (
    "F32 F16 Q4_0 Q4_1 - - - Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ2_XXS IQ2_XS "
    "Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16 - - - TQ1_0 TQ2_0 MXFP4"
)
SPLIT_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


class Header(Struct, frozen=True):
    """Facts of a model in its header; 0 and empty where it says nothing. `context` is the one it was trained for.

    `cells` are the numbers that one token takes in the key-value cache of all layers, `window_cells` those of layers
    that look back no further than `window` tokens. `bytes` are those of all parts.
    """

    name: str
    architecture: str
    quantisation: str
    context: int
    template: bool
    bytes: int
    parts: int = 1
    layers: int = 0
    embedding: int = 0
    vocabulary: int = 0
    cells: int = 0
    window_cells: int = 0
    window: int = 0


def read_header(path: Path) -> Header:
    """Read the header, and check that all parts of the file are there and whole. Raises UnfitFile."""
    fields, size, words = _read_part(path)
    parts = _count(fields, "split.count") or 1
    if parts > 1:
        size = _size_of_parts(path, fields, parts)
    return _header(path, fields, size, parts, words)


def read_templates(path: Path) -> dict[str, str]:
    """Return the chat templates in the header by their names, "" for the one without. Raises UnfitFile."""
    with open_model(path) as file:
        fields, _ = _Reader(file, path, min(os.fstat(file.fileno()).st_size, HEADER_BYTES)).values()
    named = ((key.removeprefix(TEMPLATE).lstrip("."), text) for key, text in fields.items() if key.startswith(TEMPLATE))
    return {name: text for name, text in named if isinstance(text, str)}


def _read_part(path: Path) -> tuple[dict[str, Any], int, int]:
    """Return the values, the size of the file, and the length of the vocabulary."""
    with open_model(path) as file:
        size = os.fstat(file.fileno()).st_size
        reader = _Reader(file, path, min(size, HEADER_BYTES))
        fields, words = reader.values()
        end = reader.end_of_weights(_count(fields, "general.alignment") or 32)
    if end > size:
        raise UnfitFile(f"{path} is cut off: it has {size:,} bytes, and its tensors need {end:,}. Fetch it again.")
    return fields, size, words


def open_model(path: Path) -> BinaryIO:
    """Open a regular file, never a device or a pipe, which could block. Raises UnfitFile."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise UnfitFile(f"{path} cannot be read ({why}). Name a GGUF file that this account may read.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnfitFile(f"{path} is no regular file. Name a GGUF file.")
    return os.fdopen(handle, "rb", buffering=1 << 20)


class _Reader:
    """Reads the header in its order; `most` bytes at most."""

    def __init__(self, file: BinaryIO, path: Path, most: int) -> None:
        self._file = file
        self._path = path
        self._left = most
        self._place = 0
        if self._take(4) != MAGIC:
            raise UnfitFile(f"{path} is no GGUF file: it does not begin with GGUF. Name a model in that format.")
        version = self._number("I")
        if version not in VERSIONS and struct.unpack(">I", struct.pack("<I", version))[0] in VERSIONS:
            raise UnfitFile(f"{path} is a big-endian GGUF file, which this machine cannot use. Fetch the usual one.")
        if version not in VERSIONS:
            raise UnfitFile(f"{path} has GGUF version {version}; those that can be read are 2 and 3. Convert it again.")
        self._tensors = self._number("Q")
        self._values = self._number("Q")
        if self._tensors > MOST_TENSORS or self._values > MOST_VALUES:
            counts = f"{self._tensors:,} tensors and {self._values:,} values"
            raise self._damaged(f"it announces {counts}, and at most {MOST_TENSORS:,} and {MOST_VALUES:,} are read")

    def values(self) -> tuple[dict[str, Any], int]:
        """Return the values that are single or short, and the length of the vocabulary."""
        fields: dict[str, Any] = {}
        words = 0
        for _ in range(self._values):
            name = self._text(LONGEST_KEY)
            kind = self._number("I")
            if kind == LIST:
                length, kept = self._list(name)
                words = length if name == "tokenizer.ggml.tokens" else words
                if kept is not None:
                    fields[name] = kept
            elif kind == TEXT:
                fields[name] = self._text(LONGEST_TEXT)
            elif kind in NUMBERS:
                fields[name] = self._number(NUMBERS[kind])
            else:
                raise self._damaged(f"the value {name!a} of type {kind}")
        return fields, words

    def end_of_weights(self, alignment: int) -> int:
        """Return the offset behind the last tensor, by the start of each; no tensor may begin outside of the file."""
        if not 0 < alignment <= 1 << 20:
            raise self._damaged(f"an alignment of {alignment:,}")
        last = 0
        for _ in range(self._tensors):
            self._text(LONGEST_KEY)
            dimensions = self._number("I")
            if dimensions > MOST_DIMENSIONS:
                raise self._damaged(f"a tensor with {dimensions:,} dimensions")
            self._take(8 * dimensions + 4)
            last = max(last, self._number("Q") + 1)
        start = -(-self._place // alignment) * alignment
        return start + last if self._tensors else 0

    def _list(self, name: str) -> tuple[int, list[Any] | None]:
        kind, length = self._number("I"), self._number("Q")
        if kind in NUMBERS:
            size = struct.calcsize(NUMBERS[kind])
            if length > KEPT_LIST:
                self._skip(length * size)
                return length, None
            return length, list(struct.unpack(f"<{length}{NUMBERS[kind]}", self._take(length * size)))
        if kind != TEXT:
            raise self._damaged(f"the list {name!a} of type {kind}")
        if length > MOST_WORDS:
            raise self._damaged(f"the list {name!a} of {length:,} texts, and at most {MOST_WORDS:,} are read")
        for _ in range(length):
            self._skip(self._number("Q"))
        return length, None

    def _text(self, most: int) -> str:
        length = self._number("Q")
        if length > most:
            raise self._damaged(f"a text of {length:,} bytes where at most {most:,} can be")
        return self._take(length).decode("utf-8", "replace")

    def _number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))[0]

    def _take(self, count: int) -> bytes:
        self._count(count)
        taken = self._file.read(count)
        if len(taken) < count:
            raise self._damaged("it ends in the middle of its header")
        return taken

    def _skip(self, count: int) -> None:
        self._count(count)
        self._file.seek(count, os.SEEK_CUR)

    def _count(self, count: int) -> None:
        if count > self._left:
            raise self._damaged("its header is cut off, or longer than a header can be")
        self._left -= count
        self._place += count

    def _damaged(self, what: str) -> UnfitFile:
        return UnfitFile(f"{self._path} is damaged: {what}. Fetch it again.")


def _header(path: Path, fields: Mapping[str, Any], size: int, parts: int, words: int) -> Header:
    architecture = fields.get("general.architecture")
    if not isinstance(architecture, str) or not re.fullmatch(r"[a-z0-9_.-]{1,64}", architecture):
        raise UnfitFile(f"{path} names no architecture: it is no whole model. Name the file of the model itself.")
    layers = _count(fields, f"{architecture}.block_count")
    if not layers:
        raise UnfitFile(f"{path} has no layers: it is an adapter or a projector, and no model. Name the model itself.")
    cells, window_cells = _cells(fields, architecture, layers)
    return Header(
        name=_name(path, fields),
        architecture=architecture,
        quantisation=_quantisation(fields),
        context=_count(fields, f"{architecture}.context_length"),
        template=isinstance(fields.get(TEMPLATE), str),
        bytes=size,
        parts=parts,
        layers=layers,
        embedding=_count(fields, f"{architecture}.embedding_length"),
        vocabulary=words or _count(fields, f"{architecture}.vocab_size"),
        cells=cells,
        window_cells=window_cells,
        window=_count(fields, f"{architecture}.attention.sliding_window") if window_cells else 0,
    )


# Of each so many layers the last one sees everything, and the others no further than the window. Of architectures that
# are not here, all layers are counted as if they saw everything.
WINDOW_PATTERN = {"gemma2": 2, "gemma3": 6}


def _cells(fields: Mapping[str, Any], architecture: str, layers: int) -> tuple[int, int]:
    """Return the numbers that a token takes in the cache of all layers that see everything, and of the others."""
    if layers > KEPT_LIST:
        return 0, 0
    heads = _per_layer(fields, f"{architecture}.attention.head_count", layers)
    shared = _per_layer(fields, f"{architecture}.attention.head_count_kv", layers) or heads
    embedding = _count(fields, f"{architecture}.embedding_length")
    most_heads = max(heads, default=0)
    usual = embedding // most_heads if most_heads else 0
    length = (_count(fields, f"{architecture}.attention.key_length") or usual) + (
        _count(fields, f"{architecture}.attention.value_length") or usual
    )
    pattern = WINDOW_PATTERN.get(architecture, 0) if f"{architecture}.attention.sliding_window" in fields else 0
    whole = [one for place, one in enumerate(shared, 1) if not pattern or place % pattern == 0]
    return sum(whole) * length, (sum(shared) - sum(whole)) * length


def _per_layer(fields: Mapping[str, Any], name: str, layers: int) -> list[int]:
    """Return a number for each layer: some architectures have a list, of which zeros are layers without a cache."""
    value = fields.get(name)
    if isinstance(value, list):
        return [one for one in value if isinstance(one, int) and 0 <= one < 1 << 16][:layers]
    return [count] * layers if (count := _count(fields, name)) else []


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32 else 0


def _quantisation(fields: Mapping[str, Any]) -> str:
    names = FILE_TYPES.split()
    number = _count(fields, "general.file_type") if "general.file_type" in fields else len(names)
    return names[number].strip("-") if number < len(names) else ""


def _name(path: Path, fields: Mapping[str, Any]) -> str:
    """Return the name in the header, else the file's, in one word that is fit for requests."""
    said = fields.get("general.name")
    split = SPLIT_NAME.fullmatch(path.name)
    for text in (said if isinstance(said, str) else "", split[1] if split else path.stem):
        if name := re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:LONGEST_NAME]:
            return name
    return "model"


def _size_of_parts(path: Path, fields: Mapping[str, Any], parts: int) -> int:
    """Return the bytes of all parts of a split model, and check each."""
    named = SPLIT_NAME.fullmatch(path.name)
    if parts > MOST_PARTS or not named or int(named[3]) != parts:
        expected = "MODEL-00001-of-00003.gguf"
        raise UnfitFile(f"{path} is a part of a model in {parts:,} files, which must be named as in {expected}.")
    if _count(fields, "split.no") != 0 or int(named[2]) != 1:
        raise UnfitFile(f"{path} is not the first part of its model: name {named[1]}-00001-of-{named[3]}.gguf.")
    total = 0
    for number in range(1, parts + 1):
        part = path.with_name(f"{named[1]}-{number:05}-of-{parts:05}.gguf")
        if not part.exists():
            raise UnfitFile(f"{part.name} is missing beside {path}: all {parts} parts must be in one folder.")
        total += _read_part(part)[1]
    return total
