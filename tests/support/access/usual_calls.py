"""Twenty usual coding calls, and the repository that they are made in."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Usual:
    """One of the calls. `network`: what it asks for where commands can. `again`: it was made before, word by word."""

    label: str
    tool: str
    arguments: Mapping[str, Any]
    needs: str = ""  # a program without which it fails, whatever is decided
    again: bool = False


def bash(label: str, command: str, needs: str = "", *, again: bool = False, **more: Any) -> Usual:
    return Usual(label, "bash", {"command": command, **more}, needs, again)


CALLS = (
    bash("ls", "ls -la"),
    bash("git status", "git status --short", "git"),
    bash("git diff", "git diff", "git"),
    bash("grep", "grep -rn add ."),
    Usual("read_file", "read_file", {"path": "calc.py"}),
    Usual("list_files", "list_files", {"pattern": "*.py"}),
    bash("pytest", "python3 -m pytest -q test_calc.py || python3 test_calc.py"),
    bash("pytest again", "python3 -m pytest -q test_calc.py || python3 test_calc.py", again=True),
    Usual("edit_file", "edit_file", {"path": "calc.py", "old": "a + b", "new": "b + a"}),
    bash("sed -i", "sed -i s/add/plus/ notes.txt"),
    bash("mkdir", "mkdir -p tools/small"),
    Usual("write_file", "write_file", {"path": "tools/small/script.py", "content": "print('made')\n"}),
    bash("python script.py", "python3 tools/small/script.py"),
    Usual("python tool", "python", {"code": "print(sum(range(10)))"}),
    bash("npm test", "npm test", "npm"),
    bash("git commit", "git commit -qam 'Change it'", "git"),
    bash("rm -rf build", "rm -rf build"),
    bash("pip install", "pip install requests"),
    bash("git push", "git push origin main"),
    bash("curl localhost", "curl -sS -m 5 http://localhost:8000/health", "curl"),
)
FILES = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\ntest_add()\n",
    "notes.txt": "add\n",
    "package.json": json.dumps({"name": "calc", "scripts": {"test": "node -e 0"}}),
    "build/out.txt": "made\n",
}
AUTHOR = ("config user.name Ann", "config user.email ann@example.org")


def repository(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    if shutil.which("git"):
        for command in ("init -q -b main", *AUTHOR, "add .", "commit -qm First"):
            subprocess.run(["git", *command.split()], cwd=folder, check=True)
