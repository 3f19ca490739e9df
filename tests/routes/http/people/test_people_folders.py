"""The folder of somebody who is no admin lies in the admins' workspace, and leads nowhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import LIMIT_S, bearer
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("link", ["people/eve", "people"])
async def test_a_command_of_an_admin_s_leads_nobody_out_of_the_sandbox(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    (outside / "eve").mkdir(parents=True)
    provider = Scripted(
        [
            f"```bash\nmkdir -p $(dirname {link}) && ln -s {outside} {link}\n```",
            "Done.",
            "```bash\ntouch out\n```",
            "Done.",
        ]
    )
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        served.client.headers |= await bearer(served, "root", "admin")
        await served.chat()
        assert (tmp_path / "work" / link).is_symlink()
        eve = await bearer(served, "eve")
        answer = await served.client.post("/chat", json={"message": "x"}, headers=eve)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "folder_unsafe")
        (tmp_path / "work" / link).unlink()
        answer = await served.client.post("/chat", json={"message": "x"}, headers=eve)
        assert answer.status_code == 200
    assert not [*outside.rglob("out")]
    assert (tmp_path / "work" / "people" / "eve" / "out").exists()


async def test_where_there_are_tokens_no_command_of_an_admin_s_changes_people_s_folders(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        root = await bearer(served, "root", "admin")
    provider = Scripted(["```bash\nln -s / people/eve; mv people moved; ls\n```", "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        if served.services.factory.sandbox.level != "bubblewrap":
            pytest.skip("Landlock gives a right to a directory for everything below it")
        served.client.headers |= root
        await served.chat()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["people"]
    assert not [*(tmp_path / "work" / "people").iterdir()]
