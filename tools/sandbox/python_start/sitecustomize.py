"""Start-up code of the tool `python`: adds the workspace to the module path once Python itself is set up.

In `PYTHONPATH` the workspace would come too early: its `sitecustomize.py` would run before the code that a person saw,
and its `json.py` in place of Python's own. The workspace comes after Python's own modules and before installed ones.
"""

import os
import sys


def _make_known(workspace: str) -> None:
    own = os.path.dirname(__file__)  # noqa: PTH120 - nothing more is imported than there is
    for name in ("PYTHONPATH", "PYTHONSAFEPATH"):  # other interpreters that the code starts are started as anywhere
        os.environ.pop(name, None)
    found = [path for path in sys.path if path != own]
    installed = (at for at, path in enumerate(found) if path.endswith(("site-packages", "dist-packages")))
    found.insert(next(installed, len(found)), workspace)
    sys.path[:] = found


class _Nothing:
    """An importer that finds nothing."""

    @staticmethod
    def find_spec(_name: str, _target: object = None) -> None:
        return None


def _pass_over(script: str) -> None:
    """Do what PYTHONSAFEPATH does, for a Python older than 3.11, which puts the script's folder first after this."""
    if os.path.islink(script):  # noqa: PTH114 - an open file, which lies where its link leads
        script = os.readlink(script)  # noqa: PTH115
    sys.path_importer_cache[os.path.dirname(script)] = _Nothing  # noqa: PTH120


if not getattr(sys.flags, "safe_path", False):
    _pass_over(sys.argv[0])
_make_known(os.getcwd())  # noqa: PTH109
