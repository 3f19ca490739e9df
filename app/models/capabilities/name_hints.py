"""Abilities that a model's name suggests, where nothing better is known: NAME_HINTS, a row each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from app.core.provider import CallForm


class NameHint(Struct, frozen=True):
    """A row: `pattern` is searched in the model's name; None suggests nothing. `form`: what the prompt teaches it."""

    pattern: str
    tools: bool | None = None
    images: bool | None = None
    pdf: bool | None = None
    form: CallForm | None = None


# The first row with a value for an ability counts. A wrong True is corrected by the first refusal; a wrong False would
# never be tried, so a row denies an ability only if all models of that name lack it. Fences are for the models that
# were measured to need them (`benchmarks.call_forms`): what such a model writes as an answer is a call, too.
NAME_HINTS: tuple[NameHint, ...] = (
    NameHint(r"embed|rerank|whisper|\btts\b", tools=False, images=False, pdf=False),
    NameHint(r"distill|\bbase\b|[-_]pt\b", tools=False),
    NameHint(r"\bo1-(?:mini|preview)", tools=False, images=False, pdf=False),
    NameHint(r"\bo3-mini|gpt-3\.5|gpt-oss", tools=True, images=False),
    NameHint(
        r"\bgpt-(?:4o|4\.1|4\.5|[5-9])|\bchatgpt|\bo(?:[13]\b(?!-mini|-preview)|4\b)", tools=True, images=True, pdf=True
    ),
    NameHint(r"\bgpt-4-(?:turbo|vision)", tools=True, images=True),
    NameHint(r"\bgpt-4", tools=True),
    NameHint(r"claude-(?:v?[12]|instant)", tools=False, images=False, pdf=False),
    NameHint(r"claude", tools=True, images=True, pdf=True),
    NameHint(r"gemini", tools=True, images=True),
    NameHint(r"functiongemma", tools=True, images=False),
    NameHint(r"gemma[:-]?(?:[27]b\b|1\.1|2\b)", tools=False, images=False),
    NameHint(r"gemma-?3.?270m", tools=False, images=False, form=CallForm.FENCED),
    NameHint(r"gemma-?3.?1b", tools=False, images=False),
    NameHint(r"gemma-?3", tools=False),
    NameHint(r"gemma-?[4-9]", tools=True),
    NameHint(r"smollm-?[12]?\b(?!-?3)", tools=False, form=CallForm.FENCED),
    NameHint(r"tinyllama|llama-?2|code-?llama|vicuna|alpaca|wizard|zephyr|starcoder", tools=False),
    NameHint(r"falcon-?\d|pythia|stablelm|openchat|\borca|phi-?[123](?:\.5)?\b|deepseek-coder", tools=False),
    NameHint(r"llava|bakllava|moondream|smolvlm|paligemma|molmo|internvl|cogvlm|florence", tools=False, images=True),
    NameHint(r"minicpm-?[vo]|pixtral|qwen[\d.]*-?(?:vl|omni)|qvq|llama-?3\.2-(?:11|90)b|llama-?4", images=True),
    NameHint(r"glm-?[\d.]+v|kimi-(?:vl|k2\.[5-9])|mistral-(?:small-3\.[12]|medium-3)|grok-[4-9]", images=True),
    NameHint(r"[-_.]vl\b|vision", images=True),
    NameHint(r"qwq|qwen-?(?:2\.5|[3-9]|max|plus|turbo)", tools=True),
    NameHint(r"deepseek", tools=True),
    NameHint(r"[sx]tral", tools=True),
    NameHint(r"llama-?(?:3\.[1-9]|[4-9])|hermes|nemotron|functionary|firefunction", tools=True),
    NameHint(r"command-?[ar]\b|\bgrok|kimi|moonshot|glm-?[4-9]|minimax|mimo", tools=True),
    NameHint(r"granite-?[3-9]|phi-?4|smollm-?3|\blfm|jamba|seed-oss|doubao|hunyuan|\bstep-?[3-9]|\bnova\b", tools=True),
)


@lru_cache(256)
def hints_for(model: str) -> Mapping[str, bool | CallForm]:
    """Return the suggested abilities by name."""
    found: dict[str, bool | CallForm] = {}
    for row in NAME_HINTS:
        if re.search(row.pattern, model, re.IGNORECASE):
            hints = {"tools": row.tools, "images": row.images, "pdf": row.pdf, "call_form": row.form}
            found = {name: value for name, value in hints.items() if value is not None} | found
    return found
