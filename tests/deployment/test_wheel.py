"""What is in the wheel: every floor with its data, the licence and the command; nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from routes.page import files
from tests import ROOT

FLOORS = ("parsing", "tools", "app", "routes")
LEFT_OUT = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist")
MADE_BY_SERVING = {"data", "workspace"}  # beside the floors
BUILD_LIMIT_S = 100


def left_out(folder: str, names: list[str]) -> set[str]:
    return LEFT_OUT(folder, names) | (MADE_BY_SERVING & {*names} if Path(folder) == ROOT else set())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: remains of earlier builds cannot slip in, and the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, folder / "copy", ignore=left_out)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(folder / "copy"),
    ]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as file:
        return set(file.namelist())


def project() -> dict[str, str]:
    table: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def info() -> str:
    return f"{project()['name']}-{project()['version']}.dist-info"


def test_it_runs_wherever_python_does(wheel: Path) -> None:
    assert wheel.name == f"{project()['name']}-{project()['version']}-py3-none-any.whl"


def test_every_file_of_the_floors_is_in_it(names: set[str]) -> None:
    there = {
        path.relative_to(ROOT).as_posix()
        for floor in FLOORS
        for path in (ROOT / floor).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert len(there) > 20
    assert sorted(there - names) == [], "add these kinds of files to [tool.setuptools.package-data]"


def test_nothing_else_is_in_it(names: set[str]) -> None:
    assert {name.partition("/")[0] for name in names} == {*FLOORS, info()}
    assert [name for name in names if "/test_" in name or name.endswith(".pyc")] == []


def test_each_floor_is_typed(names: set[str]) -> None:
    assert {f"{floor}/py.typed" for floor in FLOORS} <= names


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
    assert dict(points["console_scripts"]) == {"dragoman": "routes.cli.main:main"}


def test_it_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as file:
        file.extractall(tmp_path)
    code = (
        "import sys, routes.cli.main, routes.page, routes.server; print(routes.cli.__file__); "
        "print(*routes.page.files()); sys.exit(routes.cli.main.main(['--version']))"
    )
    environ = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    place = str(tmp_path / "routes" / "cli" / "__init__.py")
    assert run.stdout.splitlines() == [place, " ".join(files()), f"dragoman {project()['version']}"], run.stderr
