"""Build the wheel: all of it is the package `dragoman`, so that it runs beside any other `app` or `tools`.

In a checkout, and in an editable install of it, the floors lie at the top and are imported by their short names. The
wheel is built from a copy in which they lie in `dragoman/`, and where each import of one of their modules, and each
string that is the name of one, says so: `from app.core import ...` becomes `from dragoman.app.core import ...`.
https://peps.python.org/pep-0517/
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Set
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import build_editable, build_sdist

__all__ = ["build_editable", "build_sdist", "build_wheel"]

PACKAGE = "dragoman"
FLOORS = ("parsing", "tools", "app", "routes")


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build it into `wheel_directory`; return its name. Its metadata are made anew: the command's module has moved."""
    into = Path(wheel_directory).absolute()
    with TemporaryDirectory() as folder:
        lay_out(Path.cwd(), Path(folder))
        with chdir(folder):
            name: str = build_meta.build_wheel(str(into), config_settings)
    return name


def lay_out(checkout: Path, folder: Path) -> None:
    """Make the folder that the wheel is built from."""
    package = folder / PACKAGE
    for floor in FLOORS:
        shutil.copytree(checkout / floor, package / floor, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "py.typed").touch()
    modules = {
        ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
        for path in package.rglob("*.py")
    }
    for path in package.rglob("*.py"):
        path.write_bytes(moved(path.read_bytes(), modules - {*FLOORS}))
    (package / "__init__.py").write_text('"""An agent server; `dragoman.parsing` is its parser of tool calls."""\n')
    for name in ("README.md", "LICENSE"):
        shutil.copy(checkout / name, folder)
    # The command, and the packages that have data.
    named = re.sub(rf'"(?=({"|".join(FLOORS)})\.)', f'"{PACKAGE}.', (checkout / "pyproject.toml").read_text())
    (folder / "pyproject.toml").write_text(named)


def moved(source: bytes, modules: Set[str]) -> bytes:
    """Return the source with the modules' new names. `modules` are those that are known in any string."""
    places = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(name), level=0) if name.partition(".")[0] in FLOORS:
                places.append((node.lineno - 1, node.col_offset + len("from "), name))
            case ast.Constant(value=str(name)) if name in modules:
                places.append((node.lineno - 1, node.col_offset + len('"'), name))
    lines = source.splitlines(keepends=True)
    for row, column, name in sorted(places, reverse=True):
        before, after = lines[row][:column], lines[row][column:]
        assert after.startswith(name.encode()), f"{name} is not where it should be: {lines[row]!r}"
        lines[row] = b"%b%b.%b" % (before, PACKAGE.encode(), after)
    return b"".join(lines)
