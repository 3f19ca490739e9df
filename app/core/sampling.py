"""Sampling options of a request, in the words of `POST /chat`, as parameters of the run's requests to its model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.core.strict_model import StrictModel

MOST_OUTPUT = 10**9  # tokens: clients send the largest integer that they have
LARGEST_SEED = 2**63 - 1
# Parameters of chat completions, of which the others are about one round, while a run makes several: a call that must
# be made would be made without an end.
IN_CHAT_COMPLETIONS = {
    "temperature": "temperature",
    "max_output_tokens": "max_tokens",
    "reasoning_effort": "reasoning_effort",
    "top_p": "top_p",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}


class Sampling(StrictModel):
    """All are optional, and hold for each round of a run; the server's own hold where one is left out."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    max_output_tokens: int | None = Field(default=None, ge=1, le=MOST_OUTPUT)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=-LARGEST_SEED, le=LARGEST_SEED)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)

    @property
    def parameters(self) -> dict[str, Any]:
        """The options in the words of chat completions."""
        given = IN_CHAT_COMPLETIONS.keys() & self.model_fields_set
        values = ((word, getattr(self, name)) for name, word in IN_CHAT_COMPLETIONS.items() if name in given)
        return {word: value for word, value in values if value is not None} if given else {}
