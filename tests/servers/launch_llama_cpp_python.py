"""`llama_cpp.server` with a model that writes forced replies; runs in its environment, and takes its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy
from llama_cpp import Llama, LogitsProcessorList
from llama_cpp.server.__main__ import main

from tests.servers.forced_replies import reply_to

generate = Llama.generate
default_params = llama_cpp.llama_cpp.llama_model_default_params


def forced(model: Llama, tokens: Sequence[int], *options: Any, **named: Any) -> Any:
    """Generate with a logits processor that leaves the next token of the reply."""
    reply = reply_to(model.detokenize(list(tokens), special=True).decode(errors="replace"))
    if reply is None:
        return generate(model, tokens, *options, **named)
    wanted = [*model.tokenize(reply.encode(), add_bos=False, special=True), model.token_eos()]

    def process(seen: Any, scores: Any) -> Any:
        scores[:] = -numpy.inf
        scores[wanted[min(len(seen) - len(tokens), len(wanted) - 1)]] = 0
        return scores

    return generate(model, tokens, *options, **named | {"logits_processor": LogitsProcessorList([process])})


def params_without_amx() -> Any:
    """Return the defaults without rearranged weights: a virtual machine may show AMX and not allow it."""
    params = default_params()
    params.use_extra_bufts = False
    return params


if __name__ == "__main__":
    Llama.generate = forced
    llama_cpp.llama_cpp.llama_model_default_params = params_without_amx
    main()
