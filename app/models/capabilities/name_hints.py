"""What a model's name suggests, where nobody else says what it can do: NAMES, a row each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Named:
    """`pattern` is looked for in the model's name. What is None is not suggested."""

    pattern: str
    tools: bool | None = None
    images: bool | None = None
    pdf: bool | None = None


# Of each ability the first row that says something is taken. A name may promise too much: a server that refuses is
# remembered. So no row denies what would then never be tried, unless all models of that name are without it.
NAMES: tuple[Named, ...] = (
    Named(r"embed|rerank|whisper|\btts\b", tools=False, images=False, pdf=False),
    Named(r"distill|\bbase\b|[-_]pt\b", tools=False),
    Named(r"\bo1-(?:mini|preview)", tools=False, images=False, pdf=False),
    Named(r"\bo3-mini|gpt-3\.5|gpt-oss", tools=True, images=False),
    Named(
        r"\bgpt-(?:4o|4\.1|4\.5|[5-9])|\bchatgpt|\bo(?:[13]\b(?!-mini|-preview)|4\b)", tools=True, images=True, pdf=True
    ),
    Named(r"\bgpt-4-(?:turbo|vision)", tools=True, images=True),
    Named(r"\bgpt-4", tools=True),
    Named(r"claude-(?:v?[12]|instant)", tools=False, images=False, pdf=False),
    Named(r"claude", tools=True, images=True, pdf=True),
    Named(r"gemini", tools=True, images=True),
    Named(r"functiongemma", tools=True, images=False),
    Named(r"gemma[:-]?(?:[27]b\b|1\.1|2\b)", tools=False, images=False),
    Named(r"gemma-?3.?(?:270m|1b)", tools=False, images=False),
    Named(r"gemma-?3", tools=False),
    Named(r"gemma-?[4-9]", tools=True),
    Named(r"smollm-?[12]?\b(?!-?3)|tinyllama|llama-?2|code-?llama|vicuna|alpaca|wizard|zephyr|starcoder", tools=False),
    Named(r"falcon-?\d|pythia|stablelm|openchat|\borca|phi-?[123](?:\.5)?\b|deepseek-coder", tools=False),
    Named(r"llava|bakllava|moondream|smolvlm|paligemma|molmo|internvl|cogvlm|florence", tools=False, images=True),
    Named(r"minicpm-?[vo]|pixtral|qwen[\d.]*-?(?:vl|omni)|qvq|llama-?3\.2-(?:11|90)b|llama-?4", images=True),
    Named(r"glm-?[\d.]+v|kimi-(?:vl|k2\.[5-9])|mistral-(?:small-3\.[12]|medium-3)|grok-[4-9]", images=True),
    Named(r"[-_.]vl\b|vision", images=True),
    Named(r"qwq|qwen-?(?:2\.5|[3-9]|max|plus|turbo)", tools=True),
    Named(r"deepseek", tools=True),
    Named(r"[sx]tral", tools=True),
    Named(r"llama-?(?:3\.[1-9]|[4-9])|hermes|nemotron|functionary|firefunction", tools=True),
    Named(r"command-?[ar]\b|\bgrok|kimi|moonshot|glm-?[4-9]|minimax|mimo", tools=True),
    Named(r"granite-?[3-9]|phi-?4|smollm-?3|\blfm|jamba|seed-oss|doubao|hunyuan|\bstep-?[3-9]|\bnova\b", tools=True),
)


@lru_cache(256)
def suggested(model: str) -> Mapping[str, bool]:
    """By the abilities' names."""
    found: dict[str, bool] = {}
    for row in NAMES:
        if re.search(row.pattern, model, re.IGNORECASE):
            said = {"tools": row.tools, "images": row.images, "pdf": row.pdf}
            found = {name: value for name, value in said.items() if value is not None} | found
    return found
