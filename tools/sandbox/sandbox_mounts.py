"""The parts of the machine that every sandbox mounts read-only."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools.sandbox.command import PATH

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# What programs need of /etc, one by one: the rest may hold passwords and keys (shadow, ssl/private, pip.conf ...).
# Each is one more mount at every start, so there is nothing here for comfort.
ETC = (
    *("alternatives", "fonts", "group", "ld.so.cache", "localtime", "mime.types", "nsswitch.conf", "os-release"),
    *("passwd", "pki/ca-trust", "pki/tls/certs", "protocols", "services", "ssl/certs", "ssl/openssl.cnf"),
)


def visible_python() -> Path:
    """The system's python3; without one, the interpreter that runs the server. Both past links and environments."""
    system = shutil.which("python3", path=PATH)
    resolved = Path(system).resolve() if system else None
    return resolved if resolved and _is_visible(resolved) else Path(sys.executable).resolve()


def interpreter_tree(python: Path) -> tuple[Path, ...]:
    """Return what must be mounted besides the system for this interpreter to run."""
    return () if _is_visible(python) else (Path(sys.base_prefix).resolve(),)


def _is_visible(path: Path) -> bool:
    return any(path.is_relative_to(root) for root in SYSTEM)
