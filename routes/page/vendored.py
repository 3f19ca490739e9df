"""Libraries of the page, as their authors released them: fetched by a browser when it first needs one.

`vendor/vendor.json` has their versions, licences and checksums; `make vendor` renews them. Serving needs no npm.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

VENDOR = Path(__file__).parent / "vendor"
TABLE = VENDOR / "vendor.json"


class Library(Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table. `files`: those of the package by their names here, which are flat."""

    name: str
    package: str
    version: str
    source: str
    licence: str
    integrity: str  # of the released package
    why: str
    files: dict[str, str]
    sha256: dict[str, str]
    licence_file: str = "LICENSE"
    exports: dict[str, str] = {}  # of files that are no modules: the global variable that they make


@cache
def libraries() -> dict[str, Library]:
    return {row.name: row for row in read_table(TABLE)}


def read_table(path: Path) -> list[Library]:
    return msgspec.json.decode(path.read_bytes(), type=list[Library])


def vendored_body(path: str) -> bytes | None:
    """A vendored file by its path below the page's folder, as a module: byte for byte as it was released, and behind a
    script of the old kind a line that exports its variable. None if the table has no such file."""
    _, _, rest = path.partition("vendor/")
    name, _, file = rest.partition("/")
    row = libraries().get(name)
    if row is None or file not in row.sha256:
        return None
    body = (VENDOR / name / file).read_bytes()
    variable = row.exports.get(file)
    return body + f"\nexport default {variable};\n".encode() if variable else body


def table_digest() -> bytes:
    """A digest that changes whenever a library does."""
    return hashlib.sha256(TABLE.read_bytes()).digest()
