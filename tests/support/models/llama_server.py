"""The process of a `LlamaServer`: its one argument is a `Served` as JSON; it writes its address to stdout."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

import xllamacpp

PR_SET_PDEATHSIG = 1
USER = 1  # whose grammar it is, in llama.cpp's words


def main() -> None:
    served = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != served["parent"]:
        sys.exit("the parent process is gone")
    address_out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = started(served)
    print(server.listening_address, file=address_out, flush=True)
    signal.pause()


def started(served: dict[str, Any]) -> xllamacpp.Server:
    params = xllamacpp.CommonParams()
    params.model.path = served["weights"]
    params.model_alias = {served["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = served["port"]
    params.n_ctx = served["context"] * served["slots"]
    params.n_parallel = served["slots"]
    params.cpuparams.n_threads = 1
    params.cpuparams.poll = 0
    params.use_jinja = served["jinja"]
    params.reasoning_format = xllamacpp.common_reasoning_format(served["reasoning"])
    params.warmup = False
    params.fit_params = False
    params.ui = False
    if served["template"]:
        params.chat_template = served["template"]
    if served["says"]:
        params.sampling.grammar = xllamacpp.CommonGrammar(USER, f"root ::= {json.dumps(served['says'])}")
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
