"""The settings of models: the servers they are on, their other names, who stands in for whom, what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

from app.endpoints.spec import EndpointSpec, Price
from app.settings_fields import setting, whole, words


class ModelSettings(BaseModel):
    """A part of `app.settings.Settings`."""

    endpoints: Mapping[str, EndpointSpec] = setting(
        {},
        "servers of models, by name",
        'tables by names without a slash, such as {url = "http://127.0.0.1:8080/v1", key_env = ["KEY"]}',
    )
    aliases: Mapping[str, str] = setting({}, "other names of models", 'a table such as {fast = "local/qwen"}')
    fallback: tuple[str, ...] = words(
        (), "models that answer, in this order, when the wanted one cannot", "models such as local/qwen"
    )
    utility: str | None = setting(
        None, "the model of summaries and judges (default: the run's own)", "a model such as local/qwen"
    )
    prices: Mapping[str, Price] = setting(
        {},
        "what a million tokens of a model cost, in any money",
        'tables such as {"hosted/*" = {input = 2.5, output = 10}}, with cached and cache_written where they differ',
    )
    transport: Literal["lean", "httpx2"] = setting(
        "lean", "how model servers are talked to: lean is ours, httpx2 the library's own", "lean or httpx2"
    )
    max_attachment_bytes: int = whole(20 << 20, 1024, 1 << 28, "longest picture or PDF in a message, in bytes")
    max_attachments: int = whole(20, 0, 1000, "pictures and PDFs that one message may have")
