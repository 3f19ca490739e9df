"""Watch a server from another process: `python -m tests.support.fuzz.probe PORT PID`.

It asks for /livez again and again, and reads the CPU time of the server's first thread, which its event loop runs on,
before each request and after its answer. What the loop's thread has computed while one answer waits does not grow on a
busy machine, as the wait itself does. For each line on stdin it writes a line of JSON: the longest of both since the
last line, and how many answers there were.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

PAUSE_S = 0.002
LIMIT_S = 60


@dataclass(slots=True)
class Seen:
    cpu_ms: float = 0.0
    wait_ms: float = 0.0
    answers: int = 0


class Probe:
    def __init__(self, port: int, pid: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
        self._schedstat = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self.seen = Seen()
        self._never = threading.Event()

    def cpu_s(self) -> float:
        """CPU time of the loop's thread."""
        return int(self._schedstat.read_text().split()[0]) / 1e9

    def ask(self) -> None:
        cpu, began = self.cpu_s(), time.perf_counter()
        self._connection.request("GET", "/livez")
        answer = self._connection.getresponse()
        answer.read()
        cpu, waited = self.cpu_s() - cpu, time.perf_counter() - began
        if answer.status != 200:
            raise RuntimeError(f"/livez: {answer.status}")
        self.seen.cpu_ms = max(self.seen.cpu_ms, cpu * 1000)
        self.seen.wait_ms = max(self.seen.wait_ms, waited * 1000)
        self.seen.answers += 1

    def watch_forever(self) -> None:
        while True:
            self.ask()
            self._never.wait(PAUSE_S)


def main(port: int, pid: int) -> None:
    with suppress(OSError):  # or it looks late, and two callbacks look like one
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    probe = Probe(port, pid)
    threading.Thread(target=report, args=(probe,), daemon=True).start()
    probe.watch_forever()


def report(probe: Probe) -> None:
    for _ in sys.stdin:
        seen, probe.seen = probe.seen, Seen()
        print(json.dumps(asdict(seen)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
