"""Sources of models: which files they name, under which names they are kept, and to whom the token goes."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile

from app.models.serving.hub import HubClient, Plan, _Entry, chosen, clean_file_name
from app.models.serving.refusals import UnfitFile
from tests.support.models.model_hub import TOKEN, model_hub
from tools.web.addresses import Address

HUB, CDN = "https://hub.example", "https://cdn.example"
QUANTS = ["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-UD-Q4_K_XL.gguf", "m-IQ4_XS.gguf", "m-BF16.gguf", "mmproj-F16.gguf"]
SPLIT = [f"Q6_K/m-Q6_K-0000{n}-of-00003.gguf" for n in (3, 1, 2)]
CHOICES: dict[str, tuple[list[str], str | None, list[str] | str]] = {
    "the preferred one": (QUANTS, None, ["m-Q4_K_M.gguf"]),
    "any case": (QUANTS, "iq4_xs", ["m-IQ4_XS.gguf"]),
    "with a prefix": (QUANTS, "UD-Q4_K_XL", ["m-UD-Q4_K_XL.gguf"]),
    "without its prefix": (QUANTS, "Q4_K_XL", ["m-UD-Q4_K_XL.gguf"]),
    "next best": (["m.Q8_0.gguf", "m.Q5_K_M.gguf"], None, ["m.Q5_K_M.gguf"]),
    "the only one": (["readme.md", "odd.gguf"], None, ["odd.gguf"]),
    "by folder": (["Q8_0/m.gguf", "Q4_0/m.gguf"], "Q8_0", ["Q8_0/m.gguf"]),
    "all parts in order": (SPLIT, "Q6_K", sorted(SPLIT)),
    "a part is missing": (SPLIT[1:], "Q6_K", "does not have all parts"),
    "unknown": (QUANTS, "Q2_K", "has no Q2_K. There are: BF16 (0.0 GB), IQ4_XS (0.0 GB), Q4_K_M"),
    "part of a name": (QUANTS, "K_M", "Q4_K_M"),
    "several odd ones": (["a.gguf", "b.gguf"], None, "has several models. There are: a (0.0 GB), b"),
    "no model": (["mmproj-F16.gguf", "model.safetensors"], None, "has no GGUF file"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_quantisation_chooses_the_files(name: str) -> None:
    paths, quant, expected = CHOICES[name]
    entries = [_Entry(path, 10) for path in paths]
    if isinstance(expected, list):
        assert [one.path for one in chosen(entries, "ann/m", quant)] == expected
        return
    try:
        found = [one.path for one in chosen(entries, "ann/m", quant)]
    except UnfitFile as failure:
        found = [str(failure)]
    assert expected in found[0]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/../../../etc/passwd", "passwd.gguf"),
        ("..", "model.gguf"),
        (".gguf", "gguf.gguf"),
        ("-rf.gguf", "rf.gguf"),
        ("a\\..\\b\0\n;$(id).GGUF", "a-..-b-id-.gguf"),
        ("ü" * 400 + ".gguf", "model.gguf"),
        ("x" * 400 + ".gguf", "x" * 150 + ".gguf"),
    ],
)
def test_names_of_files_are_cleaned(path: str, name: str) -> None:
    assert clean_file_name(path) == name


async def public(host: str, port: int) -> list[Address]:
    return [ip_address({"hub.example": "93.184.216.34", "cdn.example": "93.184.216.35"}[host])]


class Web:
    """Answers by host and path in place of the network; `asked` are the requests."""

    def __init__(self, answers: dict[str, httpx2.Response]) -> None:
        self.answers = answers
        self.asked: list[httpx2.Request] = []

    async def connect(self) -> httpx2.AsyncBaseTransport:
        return httpx2.MockTransport(self._answer)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        return self.answers.get(request.headers["host"] + request.url.path, httpx2.Response(404))

    async def plan(self, source: str, token: str = TOKEN) -> Plan:
        client = HubClient(HUB, token, resolve=public, connect=self.connect, own_addresses=frozenset)
        return await client.plan(source)


def weights(**headers: str) -> httpx2.Response:
    return httpx2.Response(
        200, stream=httpx2.ByteStream(b"GGUF" + bytes(9)), headers={"content-length": "13", **headers}
    )


@pytest.mark.anyio
async def test_the_token_goes_to_no_other_host() -> None:
    sha256 = "ab" * 32
    moved = httpx2.Response(302, headers={"location": f"{CDN}/blob?secret=1", "x-linked-etag": f'"{sha256}"'})
    web = Web(
        {"hub.example/ann/m/resolve/main/m.gguf": moved, "cdn.example/blob": weights(**{"x-linked-etag": "cd" * 32})}
    )
    plan = await web.plan(f"{HUB}/ann/m/blob/main/m.gguf")
    assert (plan.files[0].size, plan.files[0].sha256, plan.files[0].name) == (13, sha256, "m.gguf")
    assert [one.headers.get("authorization") for one in web.asked] == [f"Bearer {TOKEN}", None]
    assert [one.extensions["sni_hostname"] for one in web.asked] == ["hub.example", "cdn.example"]
    assert [one.url.host for one in web.asked] == ["93.184.216.34", "93.184.216.35"]
    web = Web({"cdn.example/m.gguf": weights()})
    plan = await web.plan(f"{CDN}/m.gguf?key=1")
    assert (plan.source, plan.folder, web.asked[0].headers.get("authorization")) == (
        f"{CDN}/m.gguf",
        "cdn.example",
        None,
    )


LIST = b'[{"path": "m-Q8_0.gguf", "type": "file", "size": 7, "lfs": {"oid": "no hash"}}, {"path": "x", "size": 3}]'
BAD: dict[str, tuple[str, str]] = {
    "no repository": ("hf:ann", "names no model: write hf:OWNER/REPO"),
    "a path": ("hf:ann/../..", "names no model"),
    "http": ("http://hub.example/m.gguf", "is not encrypted"),
    "a password": ("https://a:b@hub.example/m.gguf", "leave out what stands before the @"),
    "private": ("https://10.0.0.1/m.gguf", "10.0.0.1 is not on the public internet"),
    "metadata": ("https://169.254.169.254/m.gguf", "is not on the public internet"),
    "odd": ("https:" + "//0x7f.1/m.gguf", "is an address in an odd spelling"),
    "no such": ("hf:ann/nothing", "answers 404: nothing is there"),
    "no list": ("hf:ann/page", "list of files cannot be read"),
    "no model": (f"{HUB}/page.html", "is no GGUF file"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", BAD)
async def test_a_source_that_cannot_be_used_says_why(name: str) -> None:
    source, words = BAD[name]
    answers = {
        "hub.example/api/models/ann/page/tree/main": httpx2.Response(200, text="<html>"),
        "hub.example/page.html": httpx2.Response(200, stream=httpx2.ByteStream(b"<html>")),
    }
    with pytest.raises(UnfitFile) as failed:
        await Web(answers).plan(source)
    assert words in str(failed.value)


@pytest.mark.anyio
async def test_the_page_of_a_repository_is_a_source_and_odd_rows_do_no_harm() -> None:
    answers: dict[str, Any] = {"hub.example/api/models/ann/m/tree/main": httpx2.Response(200, content=LIST)}
    for source in ("hf:ann/m", f"{HUB}/ann/m", f"{HUB}/ann/m/", "hf:ann/m:q8_0", "ann/m"):
        [file] = (await Web(answers).plan(source)).files
        assert (str(file.url), file.size, file.sha256) == (f"{HUB}/ann/m/resolve/main/m-Q8_0.gguf", 7, "")


@pytest.mark.anyio
async def test_the_hub_of_the_tests_speaks_with_the_client_that_hubs_are_made_for(tmp_path: Path) -> None:
    content = b"GGUF" + bytes(300_000)

    def real_client(url: str) -> list[object]:
        listed = HfApi(endpoint=url, token=TOKEN).list_repo_tree("ann/m", recursive=True)
        with (tmp_path / "m.gguf").open("wb") as file:
            url = hf_hub_url("ann/m", "m.gguf", endpoint=url)
            http_get(url, file, headers={"authorization": f"Bearer {TOKEN}"}, expected_size=len(content))
        return [(one.path, one.size, one.lfs and one.lfs.sha256) for one in listed if isinstance(one, RepoFile)]

    async with model_hub({"ann/m": {"m.gguf": content}}, gated=True) as there:
        listed = await asyncio.to_thread(real_client, there.url)
        [file] = (await HubClient(there.url, TOKEN).plan("hf:ann/m")).files
    assert (tmp_path / "m.gguf").read_bytes() == content
    assert listed == [("m.gguf", file.size, file.sha256)]
