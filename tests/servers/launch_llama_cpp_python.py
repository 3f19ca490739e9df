"""`llama_cpp.server` with a model that writes forced replies; runs in its environment, and takes its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llama_cpp import Llama
from llama_cpp.server.__main__ import main

from tests.servers.forced_replies import reply_to

generate = Llama.generate


def forced(model: Llama, tokens: Sequence[int], *options: Any, **named: Any) -> Iterator[int]:
    """Read the prompt as usual, and then write the reply."""
    reply = reply_to(model.detokenize(list(tokens), special=True).decode(errors="replace"))
    generated = generate(model, tokens, *options, **named)
    if reply is None:
        yield from generated
        return
    for token in [*model.tokenize(reply.encode(), add_bos=False, special=True), model.token_eos()]:
        next(generated)
        yield token


if __name__ == "__main__":
    Llama.generate = forced
    main()
