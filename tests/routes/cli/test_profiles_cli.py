"""`dragoman profile`, `dragoman config` with a profile, and tokens that are bound to one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from routes.cli.main import main

Shell = Callable[[str], tuple[int, str, str]]
FILE = '[profiles.careful]\nprompt = "Quote lines."\ntools = ["read_*"]\napproval = "ask"\nmax_rounds = 8\n'


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Types a command in a folder with a settings file."""
    (file := tmp_path / "dragoman.toml").write_text(FILE)

    def run(line: str) -> tuple[int, str, str]:
        environ = {"HOME": str(tmp_path), "DRAGOMAN_CONFIG": str(file), "DRAGOMAN_DATA_DIR": str(tmp_path / "data")}
        try:
            code = main([word.replace("_", " ") for word in line.split()], environ)
        except SystemExit as left:
            code = int(str(left.code))
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_profiles_are_set_listed_shown_and_removed(shell: Shell) -> None:
    assert shell("profile set quick --max-rounds 3 --memory off --tools bash --prompt Be_quick.")[0] == 0
    _, listed, _ = shell("profile list")
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["careful", "settings"], ["quick", "shared"]]
    _, shown, _ = shell("profile show quick")
    assert shown.splitlines() == ["max_rounds = 3", "memory = false", 'prompt = "Be quick."', 'tools = ["bash"]']
    assert "is replaced" in shell("profile set quick --seed 7")[1]
    assert shell("profile show quick")[1] == "seed = 7\n"
    assert shell("profile remove quick")[0] == 0
    assert "careful" in shell("profile list")[1] and "quick" not in shell("profile list")[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("profile show nope", "There is no profile 'nope'; there are careful."),
        ("profile remove nope", "There is no profile 'nope'"),
        ("profile remove careful", "careful is in the settings: change it there."),
        ("profile set careful --seed 1", "careful is in the settings: change it there."),
        ("profile set a_b --seed 1", "a profile's name has 1 to 64"),
        ("profile set new --max-rounds 0", "--max-rounds: "),
        ("profile set new --reasoning-effort loud", "--reasoning-effort: "),
        ("profile set new --approval never", "--approval: invalid choice"),
        ("token create --name ann --profile nope", "There is no profile 'nope'"),
        ("token create --name ann --profile a/b", "--profile: a profile's name has"),
        ("config --profile nope", "There is no profile 'nope'"),
        ("config --session ses_0", "There is no session 'ses 0'"),
    ],
)
def test_a_mistake_says_what_to_do(shell: Shell, line: str, words: str) -> None:
    code, _, problem = shell(line)
    assert code != 0 and words in problem, problem


def test_each_value_is_shown_with_its_layer(shell: Shell) -> None:
    assert "from\n" in shell("config")[1] and "option " not in shell("config")[1]
    _, shown, _ = shell("config --profile careful --max-calls 50")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.partition("\n\n")[2].splitlines()}
    assert rows["max_rounds"] == "8 profile careful" and rows["approval"] == "ask profile careful"
    assert rows["max_calls"] == "50 flag --max-calls" and rows["when_absent"] == "wait default"
    assert rows["tools"] == '["read_*"] profile careful' and rows["prompt"] == "Quote lines. profile careful"


def test_a_token_is_bound_and_keeps_its_shared_profile(shell: Shell) -> None:
    shell("profile set ci --max-rounds 3")
    assert shell("token create --name bot --profile ci")[0] == 0
    head, row = shell("token list")[1].splitlines()
    assert row.split()[head.split().index("profile") + 1] == "ci"  # the time of creation is two words
    code, _, problem = shell("profile remove ci")
    assert code == 1 and "revoke bot first" in problem
    shell("token revoke bot")
    assert shell("profile remove ci")[0] == 0
