"""Token costs of pictures and PDF pages, a row per model family: tokenizers do not count them. Rather too high."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from msgspec import Struct

from app.core.attachments import PDF, Attachment
from tools.base.patterns import lazy_pattern

USUAL = 1600.0  # for unknown models and unknown picture sizes
USUAL_PAGE = 2400.0
BYTES_OF_PAGE = 60_000  # of a PDF with an unknown number of pages
MOST_PAGES = 1000

PixelTokens = Callable[[float, float], float]


class PictureRule(Struct, frozen=True):
    """A row: for model names that match `pattern`, the cost of a picture and of a page."""

    pattern: re.Pattern[str]
    picture: PixelTokens
    page: float = USUAL_PAGE


def within(side: float, width: float, height: float) -> tuple[float, float]:
    """Scale down until no side is longer."""
    scale = min(1.0, side / max(width, height))
    return width * scale, height * scale


def by_area(pixels: float, most: float, side: float = math.inf) -> PixelTokens:
    """Count one token per `pixels`, after scaling down to `side`."""

    def tokens(width: float, height: float) -> float:
        width, height = within(side, width, height)
        return min(most, width * height / pixels)

    return tokens


def by_tiles(base: float, tile: float) -> PixelTokens:
    """Scale to 2048 x 2048, then the short side to 768; count `tile` per 512 x 512 tile, plus `base`."""

    def tokens(width: float, height: float) -> float:
        width, height = within(2048, width, height)
        scale = min(1.0, 768 / min(width, height))
        return base + tile * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)

    return tokens


def by_patches(times: float, most: int = 1536, side: int = 32) -> PixelTokens:
    """Count `times` per patch of `side` pixels, for at most `most` patches."""
    return lambda width, height: times * min(most, math.ceil(width / side) * math.ceil(height / side))


def by_large_tiles(width: float, height: float) -> float:
    """Count 258 for a small picture, and per 768 x 768 tile of a larger one."""
    if width <= 384 and height <= 384:
        return 258
    return 258.0 * math.ceil(width / 768) * math.ceil(height / 768)


def always(tokens: float) -> PixelTokens:
    return lambda width, height: tokens


def rule(pattern: str, picture: PixelTokens, page: float = USUAL_PAGE) -> PictureRule:
    return PictureRule(lazy_pattern(pattern, re.IGNORECASE), picture, page)


# The first matching row counts.
RULES = (
    rule("claude", by_area(750, most=1600, side=1568), page=4000),  # a page is read as text and as a picture
    rule("gpt-4o-mini", by_tiles(2833, 5667)),
    rule(r"gpt-4\.1-mini", by_patches(1.62)),
    rule("o4-mini", by_patches(1.72)),
    rule(r"gpt-4\.1-nano|gpt-5-nano", by_patches(2.46)),
    rule("gpt-5-mini", by_patches(1.62)),
    rule("gpt-5|gpt5", by_tiles(70, 140)),
    rule(r"\bo[13]\b", by_tiles(75, 150)),
    rule(r"gpt-4|chatgpt", by_tiles(85, 170)),
    rule("gemini", by_large_tiles, page=600),
    rule("gemma", always(260)),
    rule("qwen.*vl|qwen-?vl|qvq", by_area(28 * 28, most=16_384)),
    rule("pixtral", by_patches(1.05, most=4096, side=16)),
    rule("mistral-(small|medium|large)", by_patches(1.05, most=3025, side=28)),
    rule(r"llava-1\.5|bakllava", always(580)),
    rule("smolvlm", always(1100)),
)
UNKNOWN = PictureRule(lazy_pattern(""), always(USUAL))


def tokens_of(attachment: Attachment, model: str) -> float:
    found = next((row for row in RULES if row.pattern.search(model)), UNKNOWN)
    if attachment.media_type == PDF:
        pages = attachment.pages or math.ceil(attachment.size / BYTES_OF_PAGE)
        return found.page * min(pages, MOST_PAGES)
    if not attachment.width or not attachment.height:
        return USUAL
    return found.picture(attachment.width, attachment.height)
