"""What the tool `python` starts with: it makes the workspace's modules known once Python itself is set up.

In `PYTHONPATH` the workspace would come too early: its `sitecustomize.py` would run before the code that a person saw,
and its `json.py` in place of Python's own. The workspace comes after Python's own modules and before installed ones.
"""

import os
import sys


def _make_known(workspace: str) -> None:
    own = os.path.dirname(__file__)  # noqa: PTH120 - nothing more is imported than there is
    os.environ.pop("PYTHONPATH", None)  # other interpreters that the code starts are started as anywhere else
    found = [path for path in sys.path if path != own]
    installed = (at for at, path in enumerate(found) if path.endswith(("site-packages", "dist-packages")))
    found.insert(next(installed, len(found)), workspace)
    sys.path[:] = found


_make_known(os.getcwd())  # noqa: PTH109
