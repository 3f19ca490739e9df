"""`dragoman doctor model`: its report, its exit codes, and the settings that it writes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from routes.cli.main import main
from tests.support.models.engines import FAULTY, RIGHT, Bend, engine

pytestmark = pytest.mark.anyio
LIMIT_S = 60
LOST = FAULTY["https://github.com/vllm-project/vllm/issues/31501"][1]
SECRET = "sk-of-the-model-4711-Zeisig"


async def command(folder: Path, *words: str) -> int:
    where = ["--data-dir", str(folder / "data"), "--workspace", str(folder / "work")]
    async with asyncio.timeout(LIMIT_S):
        return await asyncio.to_thread(main, [*words, *where], {"HOME": str(folder), "THE_KEY": SECRET})


async def examined(folder: Path, bend: Bend, *flags: str) -> int:
    async with engine(bend) as server:
        added = ["--url", server.base_url, "--key-env", "THE_KEY"]
        assert await command(folder, "endpoint", "add", "mine", *added) == 0
        return await command(folder, "doctor", "model", "mine", "--quick", *flags)


async def test_a_right_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await examined(tmp_path, RIGHT["native"]) == 0
    assert "No defect was seen." in capsys.readouterr().out


async def test_a_fault_is_reported_and_the_settings_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await examined(tmp_path, LOST, "--json", str(tmp_path / "report.json"), "--write") == 1
    shown = capsys.readouterr()
    assert '`tool_calls = "tagged"`' in shown.out
    assert "mine is changed" in shown.out
    report = json.loads((tmp_path / "report.json").read_text())
    assert "arguments_lost" in [found["code"] for found in report["defects"]]
    assert SECRET not in json.dumps(report) + shown.out + shown.err
    assert "127.0.0.1" not in json.dumps(report)
    assert await command(tmp_path, "endpoint", "list") == 0


async def test_the_settings_of_the_toml_file_are_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine(LOST) as server:
        flags = ["--quick", "--write", "--model-url", server.base_url]
        assert await command(tmp_path, "doctor", "model", "default", *flags) == 2
    assert "set these in the settings" in capsys.readouterr().err


async def test_what_cannot_be_examined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await command(tmp_path, "doctor", "model", "none") == 2
    assert "There is no endpoint 'none'; there are: embedded." in capsys.readouterr().err


async def test_a_report_that_cannot_be_written_is_refused_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine(RIGHT["native"]) as server:
        flags = ["--model-url", server.base_url, "--json", str(tmp_path / "none" / "report.json")]
        assert await command(tmp_path, "doctor", "model", "default", *flags) == 2
    shown = capsys.readouterr()
    assert "report.json cannot be written" in shown.err and "# " not in shown.out
