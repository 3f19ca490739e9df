"""Sizes, times and costs in the words of the terminal client."""

from __future__ import annotations

from typing import Any

from routes.texts import text


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def size(length: int) -> str:
    if length < 1024:
        return f"{length} B"
    return f"{length / 1024:.1f} KB" if length < 1 << 20 else f"{length / (1 << 20):.1f} MB"


def cost(usage: dict[str, Any]) -> str:
    """The cost of a model with a price, in the money of the server's price table."""
    match usage:
        case {"cost": float(amount) | int(amount)}:
            shown = f"{amount:.6f}".rstrip("0").rstrip(".")
            measured = (
                text("terminal.cost", cost=shown) if usage.get("measured") else text("terminal.cost.about", cost=shown)
            )
            return f", {measured}"
    return ""


def speed(usage: dict[str, Any]) -> str:
    match usage.get("timing"):
        case {"first_token_s": float(first) | int(first), "tokens_per_s": float(rate) | int(rate)}:
            return f", {text('terminal.first_token', time=duration(first))}, {text('terminal.rate', rate=f'{rate:g}')}"
        case {"first_token_s": float(first) | int(first)}:
            return f", {text('terminal.first_token', time=duration(first))}"
    return ""
