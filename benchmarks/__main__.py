"""`make bench`: every benchmark, one after another; with names (`python -m benchmarks box`) those."""

from __future__ import annotations

import sys

from benchmarks import (
    box,
    call_forms,
    checkpoints,
    context,
    ingest,
    lanes,
    log,
    mcp,
    origins,
    page,
    parser,
    provenance,
    relay,
    request_calls,
    stages,
    startup,
)
from benchmarks.recall import knowledge, memory, tools
from benchmarks.replies import endings, hints, many_tools
from benchmarks.serving import (
    databases,
    held_memory,
    replicas,
    served_models,
    stalls,
    stream_memory,
    token_calls,
)
from benchmarks.stored import replays

ALL = (
    startup,
    parser,
    provenance,
    origins,
    context,
    call_forms,
    many_tools,
    hints,
    endings,
    stages,
    stalls,
    stream_memory,
    held_memory,
    ingest,
    box,
    checkpoints,
    request_calls,
    token_calls,
    served_models,
    databases,
    replicas,
    relay,
    lanes,
    log,
    replays,
    mcp,
    memory,
    knowledge,
    tools,
    page,
)
names = {benchmark.__name__.partition(".")[2]: benchmark for benchmark in ALL}
wanted, sys.argv[1:] = sys.argv[1:] or list(names), []  # what is left would be taken for a benchmark's own arguments
if unknown := [name for name in wanted if name not in names]:
    sys.exit(f"There is no benchmark {unknown[0]!r}. There are: {', '.join(names)}.")
for name in wanted:
    print(f"\n== benchmarks.{name}: {(names[name].__doc__ or '').splitlines()[0]}")
    names[name].main()
