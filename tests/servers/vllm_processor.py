"""A logits processor of vLLM that writes forced replies, as `--logits-processors` names it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from transformers import AutoTokenizer
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from tests.servers.forced_scores import forced_scores


@cache
def tokenizer_of(model: str) -> Any:
    return AutoTokenizer.from_pretrained(model)


def process(model: str, prompt: list[int], written: list[int], scores: torch.Tensor) -> torch.Tensor:
    return forced_scores(tokenizer_of(model), prompt, len(written), scores)


class Forcing(AdapterLogitsProcessor):  # type: ignore[misc]
    """The processor of each request."""

    def __init__(self, config: Any, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(config, device, is_pin_memory)
        self._model = config.model_config.model

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        return partial(process, self._model)
