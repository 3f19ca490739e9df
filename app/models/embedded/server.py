"""Child process of the embedded and of served models: llama.cpp's HTTP server on a free loopback port.

The first line on stdin is the key that clients must send; the process exits at the end of stdin. It prints its address
to stdout, one line; llama.cpp's log goes to stderr. Started by path, because importing the product would delay it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys

import xllamacpp

PR_SET_PDEATHSIG = 1
CACHE_TYPES = ("f16", "q8_0", "q4_0")


def main() -> None:
    options = parse_arguments(sys.argv[1:])
    die_with(options.parent)
    address_out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the native library prints its log to stdout
    key = sys.stdin.readline().strip()
    server = start_server(options, key)
    print(server.listening_address, file=address_out, flush=True)
    sys.stdin.read()
    os._exit(0)  # nothing to save; a clean shutdown of the native library only takes time


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Serves a GGUF file on 127.0.0.1 until stdin ends.")
    parser.add_argument("--weights", required=True, help="the GGUF file")
    parser.add_argument("--name", required=True, help="what the model is called")
    parser.add_argument("--context", type=int, required=True, help="tokens of one conversation")
    parser.add_argument("--slots", type=int, required=True, help="conversations at once")
    parser.add_argument("--threads", type=int, required=True, help="threads that make tokens")
    parser.add_argument("--prompt-threads", type=int, required=True, help="threads that read prompts")
    parser.add_argument("--cache-type", choices=CACHE_TYPES, default="f16", help="numbers of the key-value cache")
    parser.add_argument("--parent", type=int, required=True, help="pid of the process to die with")
    return parser.parse_args(arguments)


def die_with(parent: int) -> None:
    """On Linux the kernel kills this process when its parent dies, even while native code holds the interpreter."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent process is gone")


def start_server(options: argparse.Namespace, key: str) -> xllamacpp.Server:
    params = xllamacpp.CommonParams()
    params.model.path = options.weights
    params.model_alias = {options.name}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = options.context * options.slots
    params.n_parallel = options.slots
    params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{options.cache_type.upper()}")
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.prompt_threads
    params.cpuparams.poll = 0  # spinning threads would take the cores from the tools
    params.use_jinja = True
    params.warmup = False  # the first request warms it up; start-up must be fast
    params.fit_params = False
    params.ui = False
    params.endpoint_slots = False
    params.cache_ram_mib = 256
    params.api_keys = [key]  # llama.cpp allows requests from every web page that knows the key
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
