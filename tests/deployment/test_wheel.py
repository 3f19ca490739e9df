"""The wheel: one package, `dragoman`, which runs beside any other `app`, `tools`, `routes` and `parsing`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import httpx2
import pytest
import regex

from routes.page import files
from tests import ROOT
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.server.serving import NO_TLS

FLOORS = ("parsing", "tools", "app", "routes")
LEFT_OUT = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist")
NOT_PACKAGED = {"data", "workspace", "fixtures", "tests"}  # beside the floors; the first two are made by serving
LIMIT_S = 250  # to build it takes 10 s, and three times as long beside others
ENVIRONMENT = Path(sysconfig.get_path("purelib"))  # what dragoman imports is there
pytestmark = pytest.mark.timeout(2 * LIMIT_S)
TYPED = """\
from dragoman.parsing import Call, Parser
calls: list[Call] = [event for event in Parser({}).feed("Hello.") if isinstance(event, Call)]
reveal_type(calls[0].arguments)
"""


def run(*words: str | Path, cwd: Path, stdin: str = "", **environ: str) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=environ, input=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def left_out(folder: str, names: list[str]) -> set[str]:
    return LEFT_OUT(folder, names) | (NOT_PACKAGED & {*names} if Path(folder) == ROOT else set())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist of a copy: no remains of earlier builds, and the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "copy", ignore=left_out)
    words = ("-m", "build", "--no-isolation", "--outdir", folder, folder / "copy")
    run(sys.executable, *words, cwd=folder, PATH=os.environ["PATH"], HOME=str(folder))
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as file:
        return set(file.namelist())


class Installed(NamedTuple):
    """A virtual environment with the wheel, and nothing else but `regex`, all that the parser imports."""

    folder: Path
    packages: Path

    @property
    def environ(self) -> dict[str, str]:
        """With what the server imports, too, and first of all with packages that have the floors' names and break."""
        path = os.pathsep.join(map(str, (self.folder / "foreign", ENVIRONMENT)))
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": path}

    def dragoman(self, *words: str, stdin: str = "") -> str:
        return run(self.folder / "bin/dragoman", *words, cwd=self.folder, stdin=stdin, **self.environ)


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Installed:
    folder = wheel.parent / "installed"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python", "--quiet", "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel, cwd=wheel.parent)
    (packages,) = folder.glob("lib/python*/site-packages")
    for floor in FLOORS:
        (folder / "foreign" / floor).mkdir(parents=True)
        (folder / "foreign" / floor / "__init__.py").write_text('raise ImportError("of another project")\n')
    (packages / "regex").symlink_to(Path(regex.__file__).parent)
    return Installed(folder, packages)


def project() -> dict[str, str]:
    table: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def info() -> str:
    return f"{project()['name']}-{project()['version']}.dist-info"


def test_it_runs_wherever_python_does(wheel: Path) -> None:
    assert wheel.name == f"{project()['name']}-{project()['version']}-py3-none-any.whl"


def test_every_file_of_the_floors_is_in_it(names: set[str]) -> None:
    there = {
        f"dragoman/{path.relative_to(ROOT).as_posix()}"
        for floor in FLOORS
        for path in (ROOT / floor).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert len(there) > 20
    assert sorted(there - names) == [], "add these kinds of files to [tool.setuptools.package-data]"


def test_nothing_else_is_in_it(names: set[str]) -> None:
    assert {name.partition("/")[0] for name in names} == {"dragoman", info()}
    assert [name for name in names if "/test_" in name or name.endswith(".pyc")] == []


def test_the_licence_comes_along(wheel: Path, names: set[str]) -> None:
    assert f"{info()}/licenses/LICENSE" in names
    with ZipFile(wheel) as file:
        metadata = file.read(f"{info()}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_the_command_is_there(wheel: Path) -> None:
    points = ConfigParser()
    with ZipFile(wheel) as file:
        points.read_string(file.read(f"{info()}/entry_points.txt").decode())
    assert dict(points["console_scripts"]) == {"dragoman": "dragoman.routes.cli.main:main"}


def test_no_module_is_named_as_in_a_checkout(wheel: Path) -> None:
    floors = "|".join(FLOORS)
    short = re.compile(rf"""(?m)^ *(?:from|import) (?:{floors})\b.*|["'](?:{floors})(?:\.\w+)+[:"']""")
    with ZipFile(wheel) as file:
        sources = {name: file.read(name).decode() for name in file.namelist() if name.endswith(".py")}
    assert [(name, found) for name, source in sources.items() if (found := short.findall(source))] == []
    assert '"dragoman.routes.cli.chat_flags"' in sources["dragoman/routes/cli/main.py"]


def test_the_command_works_away_from_the_checkout(installed: Installed) -> None:
    assert installed.dragoman("--version") == f"dragoman {project()['version']}\n"
    events = installed.dragoman("parse", stdin='<tool_call>{"name": "look", "arguments": {}}</tool_call>')
    assert '"look"' in events
    code = "import dragoman.routes.page as page; print(page.__file__, *page.files())"
    printed = run(installed.folder / "bin/python", "-P", "-c", code, cwd=installed.folder, **installed.environ)
    assert printed.split() == [str(installed.packages / "dragoman/routes/page/__init__.py"), *files()]


@pytest.mark.anyio
async def test_a_server_runs_commands_and_jobs(installed: Installed, tmp_path: Path) -> None:
    calls = "```bash\necho box $((40 + 2))\n```\n```bash\n#!bg\necho job $((40 + 3))\n```\n"
    acts = [stream(says(text), chunk(finish="stop"), DONE) for text in (calls, "Both.", "It has ended.")]
    flags = ("--port", "0", "--model", "m", "--tool-calls", "fenced", "--workspace", str(tmp_path / "work"))
    environ = installed.environ | {"DRAGOMAN_DATA_DIR": str(tmp_path / "data"), "DRAGOMAN_GENERATED_TITLES": "never"}
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model:
        server = await asyncio.create_subprocess_exec(
            *(installed.folder / "bin/dragoman", "serve", *flags, "--model-url", model.base_url),
            cwd=installed.folder,
            env=environ,
            stdout=asyncio.subprocess.PIPE,
        )
        assert server.stdout
        try:
            url = re.search(r"http://localhost:\d+", (await server.stdout.readline()).decode())
            assert url
            async with httpx2.AsyncClient(base_url=url[0], timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as client:
                answer = (await client.post("/chat", json={"message": "Run both."})).text
                assert "event: run.finished" in answer and "box 42" in answer
                [job] = (await client.get("/jobs")).json()["jobs"]
                assert "job 43" in (await client.get(f"/jobs/{job['id']}/events")).text
        finally:
            server.terminate()
            await server.wait()


def test_the_parser_needs_no_server(installed: Installed, tmp_path: Path) -> None:
    python = installed.folder / "bin/python"
    printed = run(
        python, "-I", "-c", "from dragoman.parsing import parse; print(parse('Hello.', {}).content)", cwd=tmp_path
    )
    assert printed == "Hello.\n"
    (tmp_path / "typed.py").write_text(TYPED)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "typed.py")
    assert 'Revealed type is "dict[str, Any]"' in run(*mypy, cwd=tmp_path, PATH=os.environ["PATH"])
