"""`dragoman rules backtest`: its exit codes, its words, and files that cannot be tried."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.cli.main import main
from tests.support.server.serving import serving

RULE = '[[rules]]\ntool = "bash"\ncommands = ["ls"]\naction = "deny"\nreason = "No."\nname = "lists"\n'
SECRET = "sk-verysecretvalue12"
CASES = (
    ("colour = 1\n", "There is no key colour"),
    ("[[rules]\n", "is not valid TOML"),
    ("max_rounds = 3\n", "has neither rules nor tools"),
    (RULE + 'colour = "red"\n', "its 'colour'"),
    (RULE.replace('"bash"', '"bsh"'), "names no tool with 'bsh'"),
    ('[[tools]]\nmatch = "bash"\nrisk = "none"\n', "tools (file"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("past")

    async def chat() -> None:
        async with asyncio.timeout(30), serving(made, Scripted([f"```bash\nls {SECRET}\n```", "Done."])) as served:
            await served.chat("Go.")

    asyncio.run(chat())
    (made / "other.toml").write_text(RULE)
    return made


def backtest(folder: Path, *words: str) -> int:
    places = ["--data-dir", str(folder / "data"), "--workspace", str(folder / "work")]
    environ = {"HOME": str(folder), "DRAGOMAN_MODEL_KEY": SECRET}
    return main(["rules", "backtest", *words, *places], environ)


def test_the_rules_in_force_change_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest(folder) == 0
    assert "1 conversations, 1 calls decided again" in (out := capsys.readouterr().out)
    assert "0 would go otherwise." in out


def test_a_file_shows_what_it_would_change_without_secrets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest(folder, str(folder / "other.toml")) == 1
    out = capsys.readouterr().out
    assert "1 x bash: allowed (policy) -> refused (rule lists)" in out
    assert '{"command":"ls ' in out
    assert SECRET not in out
    assert backtest(folder, str(folder / "other.toml"), "--json", "--days", "1") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["changed"], len(report["changes"]), report["changes"][0]["rule"]) == (1, 1, "lists")


def test_what_cannot_be_tried_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, why in CASES:
        (folder / "wrong.toml").write_text(text)
        assert backtest(folder, str(folder / "wrong.toml")) == 2
        assert why in capsys.readouterr().err, text
    others = (
        (["--days", "0"], "--days is"),
        (["--days", "-3"], "--days is"),
        (["--days", "1e99"], "--days is"),
        (["--days", "nan"], "--days is"),
        (["--principal", "ann"], "There are no stored calls of 'ann'"),
        ([str(folder / "none.toml")], "cannot be read"),
    )
    for words, why in others:
        assert backtest(folder, *words) == 2
        assert why in capsys.readouterr().err, words
    assert backtest(folder / "nowhere") == 2
    assert "there is no database" in capsys.readouterr().err
