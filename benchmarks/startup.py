"""How long a newcomer waits: from the command to a server that answers /readyz, and what the imports cost of it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import urllib.request

from benchmarks.processes import dragoman

TRIES = 5
BUDGET_S = {"embedded": 2.0, "configured": 1.0, "imports": 0.6}


def ready_s(*flags: str) -> float:
    """Seconds until /readyz says yes."""
    started = time.perf_counter()
    with dragoman(*flags) as (port, _), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
        assert json.load(answer)["ready"]
        return time.perf_counter() - started


def imports_s() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import routes.server"], check=True)
    return time.perf_counter() - started


def bare_python_s() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - started


def main() -> None:
    rows = {
        "bare python": [bare_python_s() for _ in range(TRIES)],
        "imports": [imports_s() for _ in range(TRIES)],
        "configured": [ready_s("--model-url", "http://127.0.0.1:9/v1", "--model", "none") for _ in range(TRIES)],
        "embedded": [ready_s() for _ in range(TRIES)],
    }
    print(f"{'':14}{'median s':>10}{'worst s':>10}{'budget s':>10}")
    for name, times in rows.items():
        print(f"{name:14}{statistics.median(times):10.3f}{max(times):10.3f}{BUDGET_S.get(name, ''):>10}")


if __name__ == "__main__":
    main()
