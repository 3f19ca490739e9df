"""Rows of served models: checked when a file is added, and turned into an endpoint while it is served."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from app.core.endpoint_spec import SERVED, EndpointSpec, checked_endpoint_name
from app.models.serving.gguf import SPLIT_NAME, Header, read_header
from app.models.serving.memory import CacheType, Estimate, estimate, mib
from app.models.serving.refusals import TooLittleMemory, UnfitFile
from app.storage.served_models import ServedModelRow
from tools.base.containment import lies_in

USUAL_CONTEXT = 8192  # of models that were trained for more: memory grows with it
LEAST_CONTEXT, MOST_CONTEXT = 512, 1 << 22
MOST_SLOTS = 64
MOST_THREADS = 512
MOST_MODELS = 200
MOST_FILES = 200
CACHE_TYPES: tuple[CacheType, ...] = get_args(CacheType)


class ServingOptions(Struct, frozen=True):
    """Values of a model that is to be served; None for what the header suggests."""

    name: str | None = None
    context: int | None = None
    slots: int = 1
    cache_type: CacheType = "f16"
    threads: int = 0
    at_start: bool = False
    forced: bool = False


def checked_row(path: Path, wanted: ServingOptions, by: str, workspace: Path) -> ServedModelRow:
    """Read the header of a file and return its row. Blocks for some 0.1 s. Raises UnfitFile."""
    path = Path(os.path.realpath(path))
    if lies_in(path, workspace):
        raise UnfitFile(f"{path} is inside the workspace, where tools could change it. Move it.")
    header = read_header(path)
    context = wanted.context or min(header.context or USUAL_CONTEXT, USUAL_CONTEXT)
    _check_numbers(header, context, wanted)
    status = path.stat()
    return ServedModelRow(
        name=checked_name(wanted.name or name_of(path)),
        path=str(path),
        size=status.st_size,
        modified=status.st_mtime_ns,
        header=msgspec.json.encode(header).decode(),
        context=context,
        slots=wanted.slots,
        cache_type=wanted.cache_type,
        threads=wanted.threads,
        at_start=wanted.at_start,
        forced=wanted.forced,
        by=by,
        at=time.time(),
    )


def _check_numbers(header: Header, context: int, wanted: ServingOptions) -> None:
    if not LEAST_CONTEXT <= context <= MOST_CONTEXT:
        raise UnfitFile(f"A context of {context:,} tokens cannot be: choose {LEAST_CONTEXT} to {MOST_CONTEXT:,}.")
    if header.context and context > header.context:
        raise UnfitFile(
            f"{header.name} was trained for {header.context:,} tokens of context, and {context:,} are asked for. "
            f"Choose at most {header.context:,}."
        )
    if not 1 <= wanted.slots <= MOST_SLOTS:
        raise UnfitFile(f"{wanted.slots} conversations at a time cannot be: choose 1 to {MOST_SLOTS} slots.")
    if not 0 <= wanted.threads <= MOST_THREADS:
        raise UnfitFile(f"{wanted.threads} threads cannot be: choose 1 to {MOST_THREADS}, or 0 for what suits.")
    if wanted.cache_type not in CACHE_TYPES:
        raise UnfitFile(f"{wanted.cache_type!a} is no type of cache: choose {', '.join(CACHE_TYPES)}.")


def checked_name(name: str) -> str:
    try:
        return checked_endpoint_name(name)
    except ValueError as rule:
        raise UnfitFile(f"{name[:80]!a} cannot be its name: {rule}.") from None


def name_of(path: Path) -> str:
    """Return the name of a file as that of an endpoint."""
    name = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem).lower()
    return re.sub(r"[^a-z0-9._-]+", "-", name).strip("-._")[:64] or "model"


def check_unchanged(row: ServedModelRow) -> None:
    """Raise UnfitFile if the file is gone, or is not the one that was checked."""
    try:
        status = Path(row.path).stat()
    except OSError as error:
        raise UnfitFile(
            f"The file of {row.name} cannot be read ({row.path}: {error.strerror}). Bring it back, or remove the model."
        ) from None
    if (status.st_size, status.st_mtime_ns) != (row.size, row.modified):
        raise UnfitFile(f"The file of {row.name} has changed since it was added ({row.path}). Add it again.")


def header_of(row: ServedModelRow) -> Header:
    return msgspec.json.decode(row.header, type=Header)


def estimate_of(row: ServedModelRow) -> Estimate:
    cache_type: CacheType = next((one for one in CACHE_TYPES if one == row.cache_type), "f16")
    return estimate(header_of(row), row.context, row.slots, cache_type)


def served_spec(row: ServedModelRow) -> EndpointSpec:
    """Return the endpoint of a model that is served."""
    return EndpointSpec(
        url=f"{SERVED}{row.name}", model=header_of(row).name, window=row.context, max_requests=row.slots
    )


def check_folder(file: str, folders: Sequence[str]) -> Path:
    """Return the path of a file that may be added over HTTP, absolute or relative to one of the folders.

    Outside of them the answer is the same for all paths: it must not say which files there are. Raises UnfitFile.
    """
    for folder in folders:
        root = Path(os.path.realpath(folder))
        try:
            path = Path(os.path.realpath(root / file))
        except ValueError:  # a NUL
            break
        if path.is_relative_to(root):
            return path
    where = ", ".join(folders)
    advice = f"Choose one that is there ({where})" if folders else "Set it to the folders of your models"
    raise UnfitFile(f"The file is not in model_folders. {advice}, or use `dragoman model add` on the server's machine.")


def files_in(folders: Sequence[str]) -> list[str]:
    """Return the models in these folders and in the folders inside them, at most 200, as paths."""
    found: list[str] = []
    for folder in folders:
        for pattern in ("*.gguf", "*/*.gguf"):
            for path in islice(Path(folder).glob(pattern), MOST_FILES - len(found)):
                part = SPLIT_NAME.fullmatch(path.name)
                if path.name.isprintable() and (not part or int(part[2]) == 1):
                    found.append(str(path))
    return sorted(found)


def check_memory(row: ServedModelRow, available: int | None, others: Sequence[str] = ()) -> None:
    """Raise TooLittleMemory if a model does not fit into the available bytes; `others` are the models that stay."""
    need = estimate_of(row)
    if row.forced or available is None or need.bytes <= available:
        return
    busy = f" while {', '.join(others)} {'answers' if len(others) == 1 else 'answer'}" if others else ""
    figures = f"{row.name} needs {need}, and {mib(available)} are available{busy}."
    if advice := list(_smaller(row, available)):
        raise TooLittleMemory(f"{figures} Add it again with {' or '.join(advice)}, or start it with --force.")
    raise TooLittleMemory(
        f"{figures} No context is small enough: free some memory, or use a smaller model or quantisation. "
        "--force starts it all the same."
    )


def _smaller(row: ServedModelRow, available: int) -> Iterator[str]:
    """Yield flags with which the model would fit."""
    if fitting := _context_that_fits(row, available):
        yield f"--context {fitting}"
    if row.slots > 1 and estimate_of(replace(row, slots=1)).bytes <= available:
        yield "--slots 1"
    for cache_type in CACHE_TYPES[1:]:
        if row.cache_type == "f16" and estimate_of(replace(row, cache_type=cache_type)).bytes <= available:
            yield f"--cache-type {cache_type}"


def _context_that_fits(row: ServedModelRow, available: int) -> int | None:
    """Return the largest power of two as a context with which the model would fit."""
    context = 1 << (row.context - 1).bit_length() - 1
    while context >= LEAST_CONTEXT:
        if estimate_of(replace(row, context=context)).bytes <= available:
            return context
        context >>= 1
    return None
