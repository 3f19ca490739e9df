"""Results of `make clients`: kept in a file of each client, and shown as a table.

`python -m tests.clients.results` prints how many checks each client passed with each of the models.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / ".cache/clients/results"
LANES = {"chat": "Chat Completions", "responses": "Responses", "messages": "Messages", "agui": "AG-UI", "ui": "UI"}
COLUMNS = ("native", "hermes", "xml", "fence", "dsml", "mistral", "granite")
AGENT = "dragoman-agent"


def record(client: str, found: Mapping[str, Sequence[str]]) -> None:
    """Keep the problems of each job, if all clients are being checked."""
    if os.environ.get("DRAGOMAN_CLIENTS") == "all":
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{client}.json").write_text(json.dumps(found))


def table() -> str:
    """A row for each client and lane; a cell has the checks that passed, and how many there are."""
    lines = ["| client | lane | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for path in sorted(FOLDER.glob("*.json")):
        passed, checks = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for name, problems in json.loads(path.read_text()).items():
            cell = cell_of(name)
            checks[cell] += 1
            passed[cell] += not problems
        for lane in dict.fromkeys(lane for lane, _ in checks):
            cells = [(lane, column) for column in COLUMNS]
            written = " | ".join(f"{passed[cell]}/{checks[cell]}" if checks[cell] else "-" for cell in cells)
            lines.append(f"| {path.stem} | {LANES.get(lane, lane)} | {written} |")
    return "\n".join(lines)


def cell_of(name: str) -> tuple[str, str]:
    """Lane and model of a job `WAY:MODEL:CHECK`; of a command line, which has no lane in it, `CHECK:MODEL`."""
    parts = name.split(":")
    lane = parts[0].partition("-")[0] if len(parts) == 3 else "command line"
    return lane, "hermes" if parts[1] == AGENT else parts[1]


if __name__ == "__main__":
    print(table())
