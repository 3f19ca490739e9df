"""Unpack the weights of a GGUF file into a checkpoint; runs in the environment of transformers.

`python unpack_model.py GGUF TEMPLATE FOLDER`: TEMPLATE is the text of a chat template that knows tools.
"""

from __future__ import annotations

import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

THOUGHT = ("<think>", "</think>")  # vLLM's parsers of reasoning look for them among the tokens
# How transformers serve reads a reply: as the template writes it.
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": THOUGHT[0], "close": THOUGHT[1], "content": "text"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*<\|im_end\|>", "content": "text"},
    },
}


def main(weights: Path, template: str, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    tokenizer.add_tokens(list(THOUGHT))
    tokenizer.chat_template = template
    tokenizer.response_template = RESPONSE
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name)
    model.resize_token_embeddings(len(tokenizer))
    model.hf_quantizer = None  # the weights are whole by now, and only such ones are saved
    del model.config.quantization_config
    model.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
