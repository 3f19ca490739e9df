"""Scores of tokens that leave the next one of a forced reply; runs in the environments of transformers and vLLM."""

from __future__ import annotations

from typing import Any

import torch

from tests.servers.forced_replies import reply_to


def forced_scores(tokenizer: Any, prompt: list[int], written: int, scores: torch.Tensor) -> torch.Tensor:
    """Return the scores for the token that follows `written` ones behind a prompt."""
    reply = reply_to(tokenizer.decode(prompt))
    if reply is None:
        return scores
    tokens = [*tokenizer.encode(reply, add_special_tokens=False), tokenizer.eos_token_id]
    forced = torch.full_like(scores, -torch.inf)
    forced[..., tokens[min(written, len(tokens) - 1)]] = 0
    return forced
