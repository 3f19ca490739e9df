"""No file that configures the server, or is it, lies where a tool can write: then it does not start, and says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.config.settings import load_settings
from app.config.sources import SettingsError
from tests import ROOT
from tests.support.sandbox.accounts import needs_root
from tools.base.containment import lies_in
from tools.mcp.config.entries import parse_config

Flags = dict[str, str]


def problems(folder: Path, flags: Flags, environ: dict[str, str] | None = None, here: Path | None = None) -> str:
    """What is wrong, in a home beside the workspace `work`."""
    usual = {"workspace": str(folder / "work"), "data_dir": str(folder / "data")}
    try:
        load_settings(usual | flags, {"HOME": str(folder / "home")} | (environ or {}), folder=here or folder)
    except SettingsError as error:
        return str(error)
    return ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("work/.venv/bin", "work/people/ann", "home", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "to-work").symlink_to(tmp_path / "work")
    (tmp_path / "work" / "out.toml").symlink_to(tmp_path / "outside.toml")
    (tmp_path / "outside.toml").touch()
    return tmp_path


CASES: dict[str, tuple[Callable[[Path], Flags], str]] = {
    "the settings file": (lambda at: {"config": made(at / "work/dragoman.toml")}, "The settings file"),
    "of a principal": (lambda at: {"config": made(at / "work/people/ann/dragoman.toml")}, "The settings file"),
    "by a link": (lambda at: {"config": made(at / "to-work/dragoman.toml")}, "The settings file"),
    "by dots": (
        lambda at: {"config": f"{at}/work/.venv/../{Path(made(at / 'work/x.toml')).name}"},
        "The settings file",
    ),
    "a link that lies there": (lambda at: {"config": str(at / "work/out.toml")}, "The settings file"),
    "the servers": (lambda at: {"mcp_config": str(at / "work/mcp.json")}, "mcp_config"),
    "the servers by a link": (lambda at: {"mcp_config": str(at / "to-work/mcp.json")}, "mcp_config"),
    "the data": (lambda at: {"data_dir": str(at / "work/data")}, "data_dir"),
    "the data by a link": (lambda at: {"data_dir": str(at / "to-work/data")}, "data_dir"),
    "the data is it": (lambda at: {"data_dir": str(at / "work")}, "data_dir"),
    "the tokenizer": (lambda at: {"tokenizer": str(at / "work/tokenizer.json")}, "tokenizer"),
    "a key": (lambda at: {"endpoints": endpoint(at / "work/key")}, "The key_file of a"),
    "the code": (lambda _: {"workspace": str(ROOT)}, "The code that runs"),
    "its environment": (lambda _: {"workspace": sys.prefix}, "The code that runs"),
    "its packages": (lambda _: {"workspace": str(Path(pytest.__file__).parent.parent)}, "The code that runs"),
}


def made(path: Path) -> str:
    path.touch()
    return str(path)


def endpoint(key_file: Path) -> str:
    return json.dumps({"a": {"url": "http://127.0.0.1:1/v1", "key_file": [str(key_file)]}})


@pytest.mark.parametrize("case", CASES)
def test_nothing_of_the_server_lies_where_tools_can_write(folder: Path, case: str) -> None:
    flags, what = CASES[case]
    told = problems(folder, flags(folder))
    assert f"{what} (" in told, told
    assert "is inside the workspace" in told and "where tools could change it" in told
    assert told.splitlines()[0].rstrip(".").split(". ")[-1], "it says what to do"


def test_beside_the_workspace_all_is_well(folder: Path) -> None:
    (folder / "dragoman.toml").touch()
    (folder / "data" / "persona").mkdir()
    assert problems(folder, {}, {"PATH": f"/usr/bin:{folder}/home/bin"}) == ""


@pytest.mark.parametrize("name", ["work", "to-work", "work/people/ann"])
def test_what_is_not_there_yet_would_count_at_the_next_start(folder: Path, name: str) -> None:
    assert "The current folder (" in problems(folder, {}, here=folder / name)
    elsewhere = {"config": made(folder / "dragoman.toml")}
    assert "The current folder (" in problems(folder, elsewhere, here=folder / name)


def test_what_counts_from_the_current_folder_is_said_of_that_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable installation has a place on Python's path that is no folder at all."""
    monkeypatch.chdir(folder / "work")
    monkeypatch.setattr(sys, "path", ["", "__editable__.finder.__path_hook__", *sys.path])
    told = problems(folder, {}, here=folder / "work")
    assert "The current folder (" in told and "The code that runs" not in told


def test_a_settings_file_that_a_tool_could_make_counts(folder: Path) -> None:
    (folder / "dragoman.toml").symlink_to("work/dragoman.toml")
    assert "The settings file (" in problems(folder, {})


VARIABLES = {
    "LD_PRELOAD": "/usr/lib/x.so {work}/x.so",
    "LD_LIBRARY_PATH": "/usr/lib:{work}",
    "SSL_CERT_FILE": "{work}/ca.pem",
    "SSL_CERT_DIR": "{work}",
    "TMPDIR": "{work}/tmp",
    "XDG_CONFIG_HOME": "{work}/config",
    "XDG_DATA_DIRS": "/usr/share:{work}",
    "PYTHONSTARTUP": "{work}/start.py",
    "PYTHONUSERBASE": "{work}",
    "PYTHONPYCACHEPREFIX": "{work}/cache",
    "NODE_OPTIONS": "--max-old-space-size=512 --require={work}/x",
    "BASH_ENV": "{work}/env",
    "PERL5OPT": "-I{work} -MX",
    "GIT_CONFIG_GLOBAL": "{work}/gitconfig",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_no_variable_of_the_server_names_code_in_the_workspace(folder: Path, name: str) -> None:
    value = VARIABLES[name].replace("{work}", str(folder / "to-work"))
    assert f"{name}, by which programs find code or settings, (" in problems(folder, {}, {name: value})
    assert problems(folder, {}, {name: VARIABLES[name].replace("{work}", str(folder / "home"))}) == ""


def test_programs_and_homes_in_the_workspace_are_refused(folder: Path) -> None:
    assert "A folder of PATH" in problems(folder, {}, {"PATH": f"/usr/bin:{folder}/work/.venv/bin"})
    assert "HOME, whose files" in problems(folder, {}, {"HOME": str(folder / "work")})


def test_code_that_a_tool_could_bring_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder / "work" / "lib"))
    assert "The code that runs" in problems(folder, {})


@pytest.mark.parametrize("link", ["persona", "persona/local", "persona/local/SOUL.md", "keys", "dragoman.db"])
def test_no_link_of_the_data_directory_leads_into_the_workspace(folder: Path, link: str) -> None:
    at = folder / "data" / link
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(folder / "work" / "x")
    assert "The target of a link in data_dir" in problems(folder, {})


def test_a_mount_of_the_workspace_elsewhere_is_the_workspace(folder: Path) -> None:
    needs_root()
    (folder / "mounted").mkdir()
    code = f"from pathlib import Path; from tools.base.containment import lies_in; at = Path({str(folder)!r})\n"
    code += "print(lies_in(at / 'mounted' / 'mcp.json', at / 'work'), lies_in(at / 'data', at / 'work'))"
    script = f'mount --bind {folder}/work {folder}/mounted && exec {sys.executable} -c "$1"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", code]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if "mount" in ran.stderr or "unshare" in ran.stderr:
        pytest.skip(f"needs to mount: {ran.stderr}")
    assert ran.stdout.split() == ["True", "False"], ran.stderr


def test_links_in_a_circle_lie_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "work").mkdir()
    assert not lies_in(tmp_path / "a", tmp_path / "work")


def test_what_this_account_may_not_look_into_is_no_error(tmp_path: Path) -> None:
    """As with root's PATH in `sudo -u`; also a name that no file can have."""
    closed, work = tmp_path / "closed", tmp_path / "work"
    closed.mkdir(0o700)
    assert not lies_in(Path("/" + "x" * 300), work)
    code = "import os, sys; from pathlib import Path; from tools.base.containment import lies_in\n"
    code += "os.geteuid() or os.seteuid(65534); Path(sys.argv[1]).chmod(0) if os.geteuid() != 65534 else None\n"
    code += "print(lies_in(Path(sys.argv[1]) / 'bin', Path(sys.argv[2])))"
    words = [sys.executable, "-c", code, str(closed), str(work)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.split() == ["False"], ran.stderr


def test_the_server_does_not_start_and_says_which_file_and_what_to_do(folder: Path) -> None:
    (folder / "work" / "dragoman.toml").write_text("unsafe_no_sandbox = true")
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "routes.cli.main", "serve", "--workspace", ".", "--port", "0"]
    ran = subprocess.run(
        command, cwd=folder / "work", env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 2
    assert f"The settings file ({folder}/work/dragoman.toml) is inside the workspace" in ran.stderr
    assert "name it with --config" in ran.stderr and "Traceback" not in ran.stderr


ENTRIES = {
    "command": {"command": "{work}/bin/server"},
    "cwd": {"command": "npx", "args": ["server"], "cwd": "{work}"},
    "envFile": {"command": "srv", "envFile": "{work}/.env"},
    "args[0]": {"command": "python3", "args": ["{work}/server.py"]},
    "args[1]": {"command": "uv", "args": ["run", "--script={work}/server.py"]},
    "env.PATH": {"command": "srv", "env": {"PATH": "/usr/bin:{work}/bin"}},
    "env.PYTHONPATH": {"command": "srv", "env": {"PYTHONPATH": "{work}"}},
    "env.NODE_OPTIONS": {"command": "srv", "env": {"NODE_OPTIONS": "-r {work}/x"}},
    "env.BASH_ENV": {"command": "srv", "env": {"BASH_ENV": "{work}/x"}},
    "env.LD_AUDIT": {"command": "srv", "env": {"LD_AUDIT": "{work}/x.so"}},
}
# The argument that an interpreter runs, whatever it is called, and none that it only works on.
RUN_FIRST = {
    "node, a file": (["node", "{work}/server"], 0),
    "python, a package": (["/usr/bin/python3.11", "-u", "{work}/pkg"], 1),
    "an option's value before it": (["node", "--title", "x", "{work}/server"], 2),
    "what is not there yet": (["node", "{work}/later"], 0),
    "behind a launcher": (["env", "A=1", "python3", "{work}/pkg"], 2),
    "a package of npx": (["npx", "-y", "{work}/pkg"], 1),
}
WORKED_ON = (
    ["node", "{home}/server.js", "{work}"],
    ["node", "{home}/server", "{work}"],
    ["python3", "-m", "server", "{work}"],
    ["bash", "-c", "server", "{work}"],
    ["npx", "-y", "server", "{work}"],
    ["server", "{work}", "node", "--root={work}"],
)


@pytest.mark.parametrize("field", ENTRIES)
def test_no_part_of_an_mcp_server_lies_in_the_workspace(folder: Path, field: str) -> None:
    work = folder / "work"
    (work / "bin").mkdir()
    for name in ("bin/server", ".env", "server.py"):
        (work / name).touch(0o755)
    entry = json.loads(json.dumps(ENTRIES[field]).replace("{work}", str(folder / "to-work")))
    whole = {"mcpServers": {"x": entry, "fs": {"command": "npx", "args": ["server-filesystem", str(work)]}}}
    bad, good = parse_config(json.dumps(whole), {}, folder / "mcp.json", work).configs
    assert bad.problem.startswith(f"{field}: ") and "is inside the workspace" in bad.problem
    assert good.problem == ""


def problem_of(folder: Path, words: list[str]) -> str:
    filled = [one.replace("{work}", str(folder / "work")).replace("{home}", str(folder / "home")) for one in words]
    whole = {"mcpServers": {"x": {"command": filled[0], "args": filled[1:]}}}
    [config] = parse_config(json.dumps(whole), {}, folder / "mcp.json", folder / "work").configs
    return config.problem


@pytest.mark.parametrize("case", RUN_FIRST)
def test_what_an_interpreter_runs_does_not_lie_in_the_workspace(folder: Path, case: str) -> None:
    (folder / "work" / "pkg").mkdir()
    (folder / "work" / "server").touch()
    words, place = RUN_FIRST[case]
    assert problem_of(folder, words).startswith(f"args[{place}]: ")


def test_what_a_server_works_on_may_lie_in_the_workspace(folder: Path) -> None:
    (folder / "home" / "server.js").touch()
    for words in WORKED_ON:
        assert problem_of(folder, words) == "", words
