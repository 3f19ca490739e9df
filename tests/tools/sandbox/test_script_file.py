"""The file of a script has a number that no launcher gives another file."""

from __future__ import annotations

import os

from tools.process.resource_limits import OPENED_FD
from tools.sandbox.script_file import script_file


def test_the_number_is_none_of_those_of_launchers() -> None:
    with script_file(b"true") as script:
        assert script > OPENED_FD and os.read(script, 100) == b"true"
