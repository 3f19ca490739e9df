"""Model servers that are tried, a row each: their environment, the command that starts them, what is kept of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from app.models.embedded.supervisor import SMOLLM2, package_folder
from tests import ROOT
from tests.support.models.real_models import SERVER as LLAMA_SERVER
from tests.support.models.real_models import Served
from tests.support.models.templates import WITH_CALLS

CACHE = ROOT / ".cache/servers"
CHECKPOINT = CACHE / "smol"
HERE = Path(__file__).parent
MODEL = "smol"
WINDOW = 8192
LITELLM_KEY = "sk-dragoman-tests"
TOOL_PARSER = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
# Of any server, where nothing else is wanted.
STREAMS = {"plain": "text.sse", "parallel calls": "parallel_calls.sse", "thought": "reasoning.sse"}
REFUSALS = {
    "prompt too long": "context_too_long.json",
    "refused value": "refused_effort.json",
    "temperature below 0": "refused_temperature.json",
    "unknown model": "no_such_model.json",
    "unknown parameter": "refused_field.json",
}


def weights() -> Path:
    return package_folder(SMOLLM2.package) / SMOLLM2.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`package` is what its version is read of, in dragoman's environment if there is none of its own.

    `command` gets the folder of programs and a port.

    `kept`: the file in `fixtures/providers/FOLDER` for each check whose answer is recorded. `lacks`: checks that it
    cannot pass, each with the reason. `behind`: the server that it stands in front of.
    """

    name: str
    package: str
    command: Callable[[Path, int], Sequence[str]]
    environment: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    model: str = MODEL
    key: str | None = None
    folder: str = ""
    kept: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    needs_checkpoint: bool = False
    behind: str = ""


def vllm(*flags: str) -> Callable[[Path, int], Sequence[str]]:
    def command(programs: Path, port: int) -> Sequence[str]:
        limits = ("--max-model-len", str(WINDOW), "--max-num-seqs", "4", "--enforce-eager")
        forced = ("--logits-processors", "tests.servers.vllm_processor:Forcing")
        where = ("--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL)
        return (str(programs / "vllm"), "serve", str(CHECKPOINT), *where, *limits, *forced, *flags)

    return command


def transformers(programs: Path, port: int) -> Sequence[str]:
    script = (str(programs / "python"), "-m", "tests.servers.launch_transformers")
    return (*script, "serve", str(CHECKPOINT), "--device", "cpu", "--host", "127.0.0.1", "--port", str(port))


def llama_cpp_python(programs: Path, port: int) -> Sequence[str]:
    script = (str(programs / "python"), "-m", "tests.servers.launch_llama_cpp_python")
    where = ("--host", "127.0.0.1", "--port", str(port), "--model_alias", MODEL)
    threads = ("--n_threads", "1", "--n_threads_batch", "1")
    return (*script, "--model", str(weights()), *where, "--n_ctx", str(WINDOW), *threads)


def litellm(programs: Path, port: int) -> Sequence[str]:
    config = CACHE / "litellm.yaml"
    return (str(programs / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port))


def embedded(_: Path, port: int) -> Sequence[str]:
    served = Served(str(weights()), MODEL, WITH_CALLS, says="It is noon.", context=WINDOW, port=port)
    return (sys.executable, str(LLAMA_SERVER), json.dumps(asdict(served) | {"parent": os.getpid()}))


VLLM_ENVIRON = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
NOT_FORCED = "its words are forced with a grammar, which llama.cpp does not take beside tools: see `make test`"
SERVERS = (
    Server(
        name="llama.cpp, embedded",
        package="xllamacpp",
        command=embedded,
        lacks=dict.fromkeys(
            ("call round", "call round in text", "parallel calls", "thought", "thought and call", "cancel"), NOT_FORCED
        ),
    ),
    Server(
        name="llama-cpp-python",
        package="llama_cpp_python",
        environment="llama_cpp_python",
        command=llama_cpp_python,
        lacks={"prompt too long": "its stream is empty then"},
        folder="llama_cpp_python",
        kept=STREAMS,
    ),
    Server(
        name="transformers serve",
        package="transformers",
        environment="transformers",
        command=transformers,
        model=str(CHECKPOINT),
        needs_checkpoint=True,
        lacks={"prompt too long": "it knows no window, and goes on beyond that of the model"},
        folder="transformers_serve",
        kept=STREAMS | {name: REFUSALS[name] for name in ("unknown model", "unknown parameter")},
    ),
    Server(
        name="vLLM",
        package="vllm_cpu",
        environment="vllm",
        command=vllm(*TOOL_PARSER),
        environ=VLLM_ENVIRON,
        needs_checkpoint=True,
        folder="vllm",
        kept={"plain": "text.sse", "parallel calls": "parallel_calls.sse"} | REFUSALS,
    ),
    Server(
        name="vLLM with a reasoning parser",
        package="vllm_cpu",
        environment="vllm",
        command=vllm(*TOOL_PARSER, "--reasoning-parser", "deepseek_r1"),
        environ=VLLM_ENVIRON,
        needs_checkpoint=True,
        folder="vllm",
        kept={"plain": "whole_reasoning.sse", "thought": "reasoning.sse", "thought and call": "reasoning_and_call.sse"},
    ),
    Server(
        name="vLLM without parsers",
        package="vllm_cpu",
        environment="vllm",
        command=vllm(),
        environ=VLLM_ENVIRON,
        needs_checkpoint=True,
        folder="vllm",
        kept={"call round": "refused_tools.json"},
    ),
    Server(
        name="LiteLLM before vLLM",
        package="litellm",
        environment="litellm",
        command=litellm,
        key=LITELLM_KEY,
        folder="litellm",
        kept=STREAMS | REFUSALS,
        behind="vLLM",
    ),
)
