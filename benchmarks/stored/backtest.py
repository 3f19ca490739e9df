"""Rules tried on the past: time and memory over a store of calls that were really decided on.

`python -m benchmarks.stored.backtest CALLS`: so many calls (10,000), and a tenth of them, which shows if it is linear.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from app.replay.backtest import Backtest, Report, Tried
from tests.support.past_calls import SETTINGS, Calls, decide_calls
from tests.support.server.serving import serving

CALLS, ROUNDS = 10_000, 3


async def measure(number: int) -> None:
    """Store so many calls, and print how long trying the rules takes, the best of some rounds, and the most memory."""
    with tempfile.TemporaryDirectory() as folder:
        script = Calls()
        (Path(folder) / "dragoman.toml").write_text(SETTINGS)
        async with serving(Path(folder), script) as served:
            runs = await decide_calls(served, script, number)
            tried = Tried.of(served.services.settings)
            best, report = float("inf"), Report(days=0)
            for _ in range(ROUNDS):
                began = time.process_time()
                report = await Backtest(store=served.services.store, tried=tried, days=1).report()
                best = min(best, time.process_time() - began)
            tracemalloc.start()
            await Backtest(store=served.services.store, tried=tried, days=1).report()
            most = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
    each = 1e3 * best / report.calls
    print(f"{report.calls:,} calls of {runs:,} runs: {report.changed} differ, untried {report.untried}")
    print(f"    {best:.2f} s of CPU, {each:.3f} ms a call, at most {most:.1f} MB more")


if __name__ == "__main__":
    most = int(sys.argv[1]) if len(sys.argv) > 1 else CALLS
    for count in (most // 10, most):
        asyncio.run(measure(count))
