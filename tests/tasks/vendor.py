"""`make vendor`: the page's libraries as `routes/page/vendor/vendor.json` names them, from their released packages.

npm fetches each package (it runs nothing of it), its checksum must be the one in the table, and the files in the table
are copied byte for byte. To take another version, change `version` and empty `integrity`: what npm then gives is
recorded, to be reviewed with the change.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from routes.page.vendored import TABLE, VENDOR, Library, libraries, read_table

LICENCE = "LICENSE.txt"  # in the folder of each library
LIMIT_S = 300


def main() -> None:
    wanted = set(sys.argv[1:])
    rows = [renewed(row) if not wanted or row.name in wanted else row for row in read_table(TABLE)]
    written = json.dumps(msgspec.to_builtins(sorted(rows, key=lambda row: row.name)), indent=2, ensure_ascii=False)
    TABLE.write_text(f"{written}\n")
    for folder in VENDOR.iterdir():
        if folder.is_dir() and folder.name not in {row.name for row in rows}:
            shutil.rmtree(folder)


def vendored_names() -> list[str]:
    """Paths of all vendored files, below the page's folder."""
    return [f"vendor/{row.name}/{file}" for row in libraries().values() for file in sorted(row.sha256)]


def renewed(row: Library) -> Library:
    package = fetched(row)
    integrity = integrity_of(package)
    if row.integrity not in ("", integrity):
        raise SystemExit(f"{row.package} {row.version} is not what vendor.json says: {integrity}")
    with tarfile.open(fileobj=BytesIO(package)) as archive:
        bodies = {name: member(archive, path) for name, path in row.files.items()}
        bodies[LICENCE] = member(archive, row.licence_file)
    folder = VENDOR / row.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, body in bodies.items():
        (folder / name).write_bytes(body)
    print(f"{row.name} {row.version}: {len(bodies)} files, {sum(map(len, bodies.values())):,} bytes")
    sums = {name: hashlib.sha256(body).hexdigest() for name, body in sorted(bodies.items())}
    return msgspec.structs.replace(row, integrity=integrity, sha256=sums)


def fetched(row: Library) -> bytes:
    """The package as npm has it."""
    with TemporaryDirectory() as folder:
        command = ["npm", "pack", f"{row.package}@{row.version}", "--pack-destination", folder, "--ignore-scripts"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=LIMIT_S)
        (found,) = Path(folder).glob("*.tgz")
        return found.read_bytes()


def integrity_of(package: bytes) -> str:
    """As npm writes it."""
    return f"sha512-{base64.b64encode(hashlib.sha512(package).digest()).decode()}"


def member(archive: tarfile.TarFile, path: str) -> bytes:
    found = archive.extractfile(f"package/{path}")
    if found is None:
        raise SystemExit(f"{path} is no file of the package")
    return found.read()


if __name__ == "__main__":
    main()
