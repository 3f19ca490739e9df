"""Skills: one line each in the prompt, read on demand; those of a workspace only once a person has accepted them."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path

import pytest

from app.context.project_files import read_project_file
from app.context.skills import MOST_SKILLS, each_once, first_names, skill_of
from app.models.scripted import Scripted
from tests.support.server.events import of_kind
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
LIMIT_S = 60


def skill(name: str, description: str = "How to prune roses.", body: str = "Cut above the bud.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}\n"


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(text)


def read(name: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'read_skill', 'arguments': {'name': name}})}</tool_call>"


async def test_trusted_skills_are_read_and_those_of_a_workspace_wait(tmp_path: Path) -> None:
    provider = Scripted(["Hi.", read("roses"), read("tulips"), "Done.", read("tulips"), "Done.", "Few."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("x")
        assert "read_skill" not in events[0]["tools"] and "Skills" not in provider.requests[-1].whole()[0].text
        put(tmp_path / "data" / "skills", "roses", skill("roses"))
        put(tmp_path / "work" / ".agents" / "skills", "tulips", skill("tulips", "How to plant.", "In autumn."))
        events = await served.chat("x")
        prompt = provider.requests[-1].whole()[0].text
        assert "- roses: How to prune roses." in prompt and "tulips" not in prompt and "Cut above" not in prompt
        first, second = of_kind(events, "tool.finished")
        assert "Cut above the bud." in first["text"] and "There is no such skill. There are: roses." in second["text"]

        [file] = (await served.client.get("/project")).json()["files"]
        assert (file["path"], file["state"]) == (".agents/skills/tulips/SKILL.md", "new")
        body = {"path": file["path"], "digest": file["digest"], "decision": "accept"}
        assert (await served.client.post("/project", json=body)).status_code == 200
        events = await served.chat("x")
        assert "- tulips: How to plant." in provider.requests[-1].whole()[0].text
        assert "In autumn." in of_kind(events, "tool.finished")[0]["text"]
        events = await served.chat("x", tools=["read_file"])
        assert events[0]["tools"] == ["read_file"] and "Skills" not in provider.requests[-1].whole()[0].text


@pytest.mark.parametrize(
    "text",
    ["", "no front matter", "---\nname: roses\n---\nx", "---\ndescription: x", skill("../roses"), skill("a b")],
)
def test_what_is_no_skill_is_left_out(text: str) -> None:
    assert skill_of(".agents/skills/roses/SKILL.md", text) is None


def test_names_count_once_and_lists_end(tmp_path: Path) -> None:
    named = skill_of("skills/roses/SKILL.md", "---\ndescription: 'Of roses'\n---\nx")
    assert named is not None and (named.name, named.description) == ("roses", "Of roses")
    many = [skill_of("skills/x/SKILL.md", skill(f"s{number}")) for number in range(2 * MOST_SKILLS)]
    assert len(each_once([named, None, named, *many])) == MOST_SKILLS
    assert len(first_names(f"s{number}" for number in count())) == MOST_SKILLS, "a huge folder delays no run"
    (tmp_path / "secret").write_text(skill("roses"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".agents").symlink_to(tmp_path)
    linked = read_project_file(tmp_path / "work", ".agents/secret")
    assert linked is not None and linked.problem, "links are not followed"
