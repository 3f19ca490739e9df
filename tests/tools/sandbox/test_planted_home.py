"""What a repository has planted does not run inside a harmless command: no home, no path, no settings of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.sandbox.jobs import LEVELS, UNBOXED, end_of, opened, started
from tools.base.outcome import Result
from tools.builtin.shell import running
from tools.sandbox.command import GitAuthor
from tools.sandbox.sandbox import Sandbox, Unboxed, find_sandbox
from tools.tool import Context

bash, python = running("bash", "command"), running("python3", "code")
levels = pytest.mark.parametrize("box", LEVELS, ids=lambda box: box.level)
RUN = "open('/dev/stdout', 'a').write('PLANTED\\n')"
PLANTED = {
    "sitecustomize.py": RUN,
    "usercustomize.py": RUN,
    "json.py": RUN,
    "site.py": RUN,
    ".gitconfig": "[core]\n\tfsmonitor = echo PLANTED >&2\n[alias]\n\tplanted = !echo PLANTED",
    ".config/git/config": "[alias]\n\tplanted = !echo PLANTED",
    ".curlrc": "write-out = PLANTED",
    ".npmrc": "node-options=--require=./planted.js",
    ".bashrc": "echo PLANTED",
    ".bash_profile": "echo PLANTED",
    ".profile": "echo PLANTED",
    ".bash_env": "echo PLANTED",
    ".wgetrc": "input = PLANTED",
}
HARMLESS = """
python3 -c 'import sys'; git status --short > /dev/null; git planted
curl -s file:///etc/os-release > out; grep PLANTED out; bash -c true
env | grep -E '^(BASH_ENV|ENV|PYTHON.*PATH)='; true
"""


def told(box: Sandbox, workspace: Path, code: str, *, with_python: bool = False) -> Result:
    async def main() -> Result:
        run, name = (python, "code") if with_python else (bash, "command")
        async with asyncio.timeout(60), aclosing(run({name: code}, Context(workspace, 60, box))) as news:
            *_, last = [seen async for seen in news]
        assert isinstance(last, Result)
        return last

    return asyncio.run(main())


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository of somebody else."""
    for name, text in PLANTED.items():
        (path := tmp_path / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    libraries = tmp_path / "work/.local/lib"
    for minor in range(8, 16):
        (site := libraries / f"python3.{minor}/site-packages").mkdir(parents=True)
        (site / "usercustomize.py").write_text(RUN)
    if shutil.which("git"):
        subprocess.run(["git", "init", "-q", tmp_path / "work"], check=True)
    return tmp_path / "work"


@levels
def test_nothing_planted_runs_inside_harmless_commands(hostile: Path, box: Sandbox) -> None:
    assert "PLANTED" not in told(box, hostile, HARMLESS).text
    code = "import json, subprocess, sys\nsubprocess.run([sys.executable, '-c', '1'])\nprint(json.__name__)"
    assert told(box, hostile, code, with_python=True).text == "json"  # Python's own

    async def job() -> tuple[str, ...]:
        async with opened(hostile.parent) as jobs:
            return (await end_of(jobs, (await started(jobs, hostile.parent, HARMLESS, box)).id)).tail

    assert "PLANTED" not in "\n".join(asyncio.run(job()))


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, where another account has put a module under the name of one of Python's own."""
    (folder := tmp_path / "temporary").mkdir()
    folder.chmod(0o1777)
    (folder / "json.py").write_text("import sys\nsys.stdout.write('PLANTED ')\n")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


ITS_PATH = "import json, sys\nprint(json.__name__, *sys.path)"


@levels
def test_no_module_comes_from_the_folder_of_temporary_files(tmp_path: Path, planted: Path, box: Sandbox) -> None:
    (tmp_path / "work").mkdir()
    name, *path = told(box, tmp_path / "work", ITS_PATH, with_python=True).text.split()
    assert name == "json" and not {str(planted), "/", "/tmp", "/run"} & set(path)


def test_an_older_python_passes_over_the_folder_of_its_script(tmp_path: Path, planted: Path) -> None:
    assert isinstance(UNBOXED, Unboxed)
    with tempfile.TemporaryFile() as script:
        script.write(ITS_PATH.encode())
        script.flush()
        command = UNBOXED.command("python3", script.fileno(), tmp_path)
        env = {name: value for name, value in command.env.items() if name != "PYTHONSAFEPATH"}  # since 3.11
        said = subprocess.check_output(command.argv, env=env, pass_fds=command.fds, cwd=tmp_path, text=True, timeout=30)
    assert said.startswith(f"json {planted}")


@levels
def test_the_workspace_comes_after_pythons_own_modules(tmp_path: Path, box: Sandbox) -> None:
    (tmp_path / "mine.py").write_text("def twice(n):\n    return 2 * n\n")
    code = """import mine, os, sys
gone = map(os.environ.get, ("PYTHONPATH", "PYTHONSAFEPATH"))
print(mine.twice(21), *gone, sys.path[-1] == "", __name__, sys.argv[1:])
def fails():
    raise ValueError("it fails")
fails()
"""
    lines = told(box, tmp_path, code, with_python=True).text.splitlines()
    assert lines[0] == "42 None None False __main__ []"
    # As Python itself tells it: the script's own lines, and nothing that started it.
    assert lines[1] == "Traceback (most recent call last):"
    assert [line.partition(", ")[2] for line in lines if line.startswith("  File")] == [
        "line 6, in <module>",
        "line 5, in fails",
    ]


@levels
def test_processes_of_python_find_what_it_finds(tmp_path: Path, box: Sandbox) -> None:
    if box.level == "landlock":
        pytest.skip("Python's multiprocessing needs /dev/shm")
    (tmp_path / "mine.py").write_text("def twice(n):\n    return 2 * n\n")
    script = """import multiprocessing, mine
def work(n):
    return mine.twice(n)
if __name__ == "__main__":
    for way in ("fork", "spawn"):
        with multiprocessing.get_context(way).Pool(1) as pool:
            print(way, pool.map(work, [21]))
"""
    told(box, tmp_path, f"open('script.py', 'w').write({script!r})", with_python=True)
    assert told(box, tmp_path, "python3 script.py").text == "fork [42]\nspawn [42]"
    if box.level == "bubblewrap":  # elsewhere the script is an open file, which another process does not find
        assert told(box, tmp_path, script, with_python=True).text == "fork [42]\nspawn [42]"


@levels
def test_a_home_is_empty_and_gone_afterwards(tmp_path: Path, box: Sandbox) -> None:
    first = told(box, tmp_path, "cd; pwd; ls -A; touch left; stat -c %a .; echo ~").text.splitlines()
    second = told(box, tmp_path, "cd; ls -A; echo $HOME").text.splitlines()
    assert first[1] == "700" and first[0] == first[2] != str(tmp_path) and len(second) == 1
    assert not Path(first[0]).exists() and not Path(second[0]).exists() and not list(tmp_path.iterdir())


@levels
@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_git_commits_as_the_settings_say(tmp_path: Path, box: Sandbox) -> None:
    commit = "git init -q sub && cd sub && touch file && git add file && git commit -qm first"
    said = told(box, tmp_path, f"{commit} && git log --format='%an %ae %cn %ce'").text
    assert said.split() == ["dragoman", "(agent)", "agent@dragoman.invalid"] * 2
    ann = replace(box, author=GitAuthor("Ann", "ann@example.org"))
    commit = "cd sub && git commit -q --allow-empty -m second"
    assert told(ann, tmp_path, f"{commit} && git log -1 --format='%an %ce'").text == "Ann ann@example.org"


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("git"), reason="only root can give a folder away")
def test_git_works_in_a_workspace_of_another_account(tmp_path: Path) -> None:
    if (box := find_sandbox()).level != "bubblewrap":
        pytest.skip("bubblewrap does not work here")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, 65534, 65534)
    tmp_path.chmod(0o777)
    assert isinstance(box, Sandbox)
    assert told(box, tmp_path, "git status --short").text == "(no output)"
