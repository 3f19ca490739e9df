"""`make bench`: every benchmark, one after another."""

from __future__ import annotations

from benchmarks import context, log, mcp, page, parser, provenance, relay, stages, startup

for benchmark in (startup, parser, provenance, context, stages, relay, log, mcp, page):
    print(f"\n== {benchmark.__name__}: {(benchmark.__doc__ or '').splitlines()[0]}")
    benchmark.main()
