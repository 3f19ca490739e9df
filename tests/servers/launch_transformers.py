"""`transformers` with a model that writes forced replies; runs in its environment, and takes its arguments."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoTokenizer, GenerationMixin, LogitsProcessorList
from transformers.cli.transformers import main

from tests.servers.forced_scores import forced_scores

generate = GenerationMixin.generate


def forced(model: Any, *inputs: Any, **options: Any) -> Any:
    """Generate with one more logits processor."""
    tokenizer = AutoTokenizer.from_pretrained(model.config.name_or_path)
    prompt = options["input_ids"][0].tolist()

    def process(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return forced_scores(tokenizer, prompt, tokens.shape[-1] - len(prompt), scores)

    return generate(model, *inputs, **options | {"logits_processor": LogitsProcessorList([process])})


if __name__ == "__main__":
    GenerationMixin.generate = forced
    main()
