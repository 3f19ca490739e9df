"""Model files to download: `hf:OWNER/REPO[:QUANT]` of a model hub, or the https URL of a GGUF file.

Not `huggingface_hub`: it compares sizes but no checksums, bounds no size, and neither its redirects nor its second
transport (Xet) pass the check of addresses. https://huggingface.co/docs/hub/api
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import httpx2
import msgspec
from msgspec import Struct

from app.models.serving.catalogue import name_of
from app.models.serving.gguf import MAGIC, MOST_PARTS, SPLIT_NAME
from app.models.serving.refusals import UnfitFile
from tools.base.outcome import ToolFailed
from tools.base.patterns import lazy_pattern
from tools.web.addresses import Address, own_addresses
from tools.web.bodies import Connect, UnknownPacking, connect, read_body, reason_of, sent
from tools.web.public_hosts import HostRefused, OwnAddresses, Resolve, allowed_addresses, host_name, resolve
from tools.web.url_target import PORTS, parsed, same_origin, shown

MAX_REDIRECTS = 5
MOST_LISTED_BYTES = 2 << 20  # a page of the hub's list has 1,000 files; it is decoded in the event loop
MOST_NAMED = 40
PLAN_S = 60.0
TIMEOUT = httpx2.Timeout(60.0, connect=15.0)
HEADERS = {"User-Agent": "dragoman (model add)", "Accept-Encoding": "identity"}
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
PREFIX = "hf:"

_SOURCE = lazy_pattern(r"([a-z0-9][a-z0-9._-]{0,95}/[a-z0-9][a-z0-9._-]{0,95})(?::([a-z0-9._-]{1,64}))?", re.I | re.A)
_PAGE = lazy_pattern(r"(.*?)(/[^/]+/[^/]+)(?:/?|(/(?:blob|resolve)/.+))")
_QUANT = lazy_pattern(r"(?<![A-Z0-9])(?:I?Q[1-8](?:_[0-9A-Z]+)*|T?BF16|F16|F32|MXFP4|TQ[12]_0)(?![A-Z0-9])")
_ASIDE = lazy_pattern(r"mmproj|imatrix|(^|[-_.])lora([-_.]|$)", re.IGNORECASE)
_SHA256 = lazy_pattern(r'"?([0-9a-f]{64})"?')
# Where the source names none, the first of these that the repository has: quality for the size.
PREFERRED = (
    *("Q4_K_M", "Q4_K_XL", "Q4_K_S", "Q4_0", "IQ4_XS", "IQ4_NL", "MXFP4", "Q4_1", "Q5_K_M", "Q5_K_S", "Q5_0"),
    *("Q6_K", "Q8_0", "Q3_K_M", "Q3_K_S", "Q2_K", "BF16", "F16", "F32"),
)
_ADVICE: Mapping[int, str] = {
    401: "there is no such model, or it is gated. Check its name; for a gated one accept its terms on its page, and "
    "set model_hub_token to a token that may read it",
    403: "it may not be read. Accept its terms on its page, and set model_hub_token to a token that may read it",
    404: "nothing is there. Check the name",
}


class Suggestion(Struct, frozen=True):
    """A model to begin with. `bytes` of its file, and the `memory` that it takes with the usual context: about."""

    source: str
    name: str
    bytes: int
    memory: int


SUGGESTIONS = (
    Suggestion("hf:Qwen/Qwen3-1.7B-GGUF:Q8_0", "Qwen3 1.7B", 1_830_000_000, 3_500_000_000),
    Suggestion("hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", "Qwen3 4B", 2_500_000_000, 4_500_000_000),
    Suggestion("hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", "Qwen3 8B", 5_030_000_000, 7_500_000_000),
)


class TryAgain(UnfitFile):
    """A failure that may pass."""


class RemoteFile(Struct, frozen=True):
    """A file of a model. `sha256` is empty, and `size` None, where the server does not say."""

    url: httpx2.URL
    name: str
    size: int | None = None
    sha256: str = ""


class Plan(Struct, frozen=True):
    """The files of one model; `source` is for people, without the query of a URL."""

    source: str
    folder: str
    files: tuple[RemoteFile, ...]

    @property
    def name(self) -> str:
        return name_of(Path(self.files[0].name))

    @property
    def size(self) -> int | None:
        return sum(file.size or 0 for file in self.files) if all(file.size for file in self.files) else None


class _Entry(Struct):
    """A row of the hub's list of files."""

    path: str
    size: int = 0
    lfs: Mapping[str, Any] | None = None


def is_source(text: str) -> bool:
    return text.startswith((PREFIX, "https://", "http://"))


class HubClient:
    """Requests to the hub and to the hosts that it redirects to: each https, looked up once, and public.

    The hub itself may be private, and http on this machine. Its token goes to it alone. Methods raise UnfitFile.
    """

    def __init__(
        self,
        hub: str,
        token: str = "",
        *,
        resolve: Resolve = resolve,
        connect: Connect = connect,
        own_addresses: OwnAddresses = own_addresses,
    ) -> None:
        self._hub, self._base, self._token = httpx2.URL(hub), hub.rstrip("/"), token
        self._resolve, self._connect, self._own = resolve, connect, own_addresses

    async def plan(self, source: str) -> Plan:
        """Find the files of a source."""
        try:
            async with asyncio.timeout(PLAN_S):
                return await self._plan(source.strip())
        except (httpx2.HTTPError, TimeoutError) as error:
            raise UnfitFile(f"{shown(source)} cannot be reached ({reason_of(error)}). Try again later.") from error
        except (UnknownPacking, msgspec.DecodeError) as error:
            raise UnfitFile(f"{shown(source)}: the hub's list of files cannot be read ({reason_of(error)}).") from error

    async def _plan(self, source: str) -> Plan:
        if "://" in source:
            url = _parsed(source)
            page = _PAGE.fullmatch(url.path) if same_origin(self._hub, url) else None
            if not page or page[1] != self._hub.path.rstrip("/"):
                return await self._plan_of_url(url)
            if page[3]:  # the page of a file, as people copy it
                return await self._plan_of_url(url.copy_with(path=url.path.replace("/blob/", "/resolve/", 1)))
            source = PREFIX + page[2].strip("/")
        found = _SOURCE.fullmatch(source.removeprefix(PREFIX))
        if not found:
            raise UnfitFile(f"{shown(source)!a} names no model: write hf:OWNER/REPO, hf:OWNER/REPO:Q4_K_M or a URL.")
        repo, quant = found.groups()
        async with self.opened(_parsed(f"{self._base}/api/models/{repo}/tree/main?recursive=true")) as (response, _):
            body, cut = await read_body(response, MOST_LISTED_BYTES)
        if cut:
            raise UnfitFile(f"{repo} has too many files to choose from: give the https URL of one.")
        files = chosen(msgspec.json.decode(body, type=list[_Entry]), repo, quant)
        remote = tuple(self._remote(repo, one) for one in files)
        return Plan(f"{PREFIX}{found[0]}", _clean(repo.replace("/", "--")), remote)

    async def _plan_of_url(self, url: httpx2.URL) -> Plan:
        async with self.opened(url) as (response, sha256):
            length = response.headers.get("content-length", "")
            start = await anext(response.aiter_raw(len(MAGIC)), b"")
        check_magic(start, url)
        name = clean_file_name(url.path)
        files = [RemoteFile(url, name, int(length) if length.isdecimal() else None, sha256)]
        if (part := SPLIT_NAME.fullmatch(name)) and 1 < int(part[3]) <= MOST_PARTS:
            names = [f"{part[1]}-{number:05}-of-{part[3]}.gguf" for number in range(1, int(part[3]) + 1)]
            paths = [url.path.removesuffix(PurePosixPath(url.path).name) + one for one in names]
            files = [RemoteFile(url.copy_with(path=path), one) for path, one in zip(paths, names, strict=True)]
        return Plan(str(url.copy_with(query=None, fragment=None)), _clean(url.host), tuple(files))

    def _remote(self, repo: str, entry: _Entry) -> RemoteFile:
        path = entry.path.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
        url = _parsed(f"{self._base}/{repo}/resolve/main/{path}")
        found = _SHA256.fullmatch(str((entry.lfs or {}).get("oid")))
        return RemoteFile(url, clean_file_name(entry.path), max(entry.size, 0) or None, found[1] if found else "")

    @asynccontextmanager
    async def opened(
        self, url: httpx2.URL, headers: Mapping[str, str] = NO_HEADERS
    ) -> AsyncGenerator[tuple[httpx2.Response, str], None]:
        """Follow redirects to an answer, and yield it with the SHA-256 that the hub names on the way, or "".

        Raises httpx2.HTTPError, too.
        """
        sha256 = ""
        for _ in range(MAX_REDIRECTS + 1):
            addresses = await self._check(url)
            own = {"Authorization": f"Bearer {self._token}"} if self._token and _is_of(self._hub, url) else {}
            request = httpx2.Request("GET", url, headers={**HEADERS, **headers, **own})
            async with sent(request, addresses, self._connect, TIMEOUT) as response:
                linked = _SHA256.fullmatch(response.headers.get("x-linked-etag", ""))
                if linked and same_origin(self._hub, url):
                    sha256 = linked[1]
                if not response.has_redirect_location:
                    _check_status(url, response.status_code)
                    yield response, sha256
                    return
                url = _parsed(response.headers["location"], url)
        raise UnfitFile(f"{_public(url)} redirects more than {MAX_REDIRECTS} times. Use another address.")

    async def _check(self, url: httpx2.URL) -> Sequence[Address]:
        if url.scheme != "https" and not _is_of(self._hub, url):
            raise UnfitFile(f"{_public(url)} is not encrypted: models are fetched over https only.")
        try:
            host, port = host_name(url.raw_host.decode("ascii")), url.port or PORTS[url.scheme]
            private = (f"{host}:{port}",) if _is_of(self._hub, url) else ()
            return await allowed_addresses(host, port, private, self._resolve, self._own)
        except HostRefused as refused:
            advice = "Nothing was fetched from there; a private mirror is named by model_hub"
            raise UnfitFile(f"{shown(url.host)} {refused}. {advice}.") from None


def _parsed(written: str, base: httpx2.URL | None = None) -> httpx2.URL:
    try:
        return parsed(str(base.join(written)) if base else written)
    except (ToolFailed, httpx2.InvalidURL) as wrong:
        raise UnfitFile(str(wrong)) from None


def _is_of(hub: httpx2.URL, url: httpx2.URL) -> bool:
    return url.scheme == hub.scheme and same_origin(hub, url)


def _public(url: httpx2.URL) -> str:
    """Shorten a URL for a message, without its query: that can be a signature or a key."""
    return shown(url.copy_with(query=None, fragment=None))


def _check_status(url: httpx2.URL, status: int) -> None:
    if status in (200, 206, 416):
        return
    if status in (408, 429) or status >= 500:
        raise TryAgain(f"{shown(url.host)} answers {status}: try again later.")
    raise UnfitFile(f"{_public(url)} answers {status}: {_ADVICE.get(status, 'use another address')}.")


def check_magic(start: bytes, url: httpx2.URL) -> None:
    if start[: len(MAGIC)] != MAGIC:
        raise UnfitFile(f"{_public(url)} is no GGUF file: it does not begin with GGUF. Use the address of such a file.")


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+|^\.+", "-", text)[:150]


def clean_file_name(path: str) -> str:
    """Return a name without folders or anything that a file system or shell could take for more."""
    name = _clean(PurePosixPath(path).name).strip("-")
    stem = name[:-5] if name.lower().endswith(".gguf") else name
    return f"{stem or 'model'}.gguf"


def chosen(entries: Sequence[_Entry], repo: str, quant: str | None) -> Sequence[_Entry]:
    """Return the files of the quantisation that is asked for, or of the best known one: several if it is split."""
    models: dict[str, list[_Entry]] = {}
    for entry in sorted(entries, key=lambda one: (one.path.count("/"), one.path)):
        name = PurePosixPath(entry.path).name
        if name.endswith(".gguf") and not _ASIDE.search(name):
            part = SPLIT_NAME.fullmatch(entry.path)
            models.setdefault(part[1] if part else entry.path.removesuffix(".gguf"), []).append(entry)
    if not models:
        raise UnfitFile(f"{repo} has no GGUF file. Look for a repository of the model with GGUF in its name.")
    stem = _stem(models, quant)
    if stem is None:
        sizes = [f"{_label(one)} ({sum(e.size for e in files) / 1e9:.1f} GB)" for one, files in models.items()]
        lack = f"has no {quant}" if quant else "has several models"
        raise UnfitFile(f"{repo} {lack}. There are: {', '.join(sizes[:MOST_NAMED])}. Write hf:{repo}:QUANT with one.")
    files = models[stem]
    part = SPLIT_NAME.fullmatch(files[0].path)
    if len(files) != (int(part[3]) if part else 1):
        raise UnfitFile(f"{repo} does not have all parts of {stem}. Choose another.")
    return files


def _label(stem: str) -> str:
    found = _QUANT.findall(stem.upper())
    return found[-1] if found else stem


def _stem(models: Mapping[str, object], quant: str | None) -> str | None:
    labels = {stem: _label(stem).upper() for stem in models}
    if quant:
        wanted = quant.upper()
        ends = [one for one in models if re.search(rf"(^|[-._/]){re.escape(wanted)}$", one.upper())]
        return next(iter(ends or [stem for stem, label in labels.items() if label == wanted]), None)
    best = (stem for one in PREFERRED for stem, label in labels.items() if label == one)
    return next(best, next(iter(models)) if len(models) == 1 else None)
