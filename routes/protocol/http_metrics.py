"""HTTP requests in the metrics."""

from __future__ import annotations

from app.metrics.labels import code_label, method_label
from app.metrics.recorder import Metrics
from app.metrics.table import BUDGET_REFUSALS, HTTP_ERRORS, HTTP_REQUESTS, HTTP_SECONDS
from routes.protocol.application import Answered

NO_ROUTE = "none"  # refused before its route was looked for, or there is none


def count_answer(metrics: Metrics, answered: Answered) -> None:
    """Count an answer by its route: a path as it was asked for may be anything."""
    method, route = method_label(answered.method), answered.route or NO_ROUTE
    metrics.add(HTTP_REQUESTS, method, route, f"{answered.status // 100}xx")
    metrics.observe(HTTP_SECONDS, answered.seconds, method, route)
    if answered.code:
        metrics.add(HTTP_ERRORS, code_label(answered.code))
    if answered.code == "budget":
        metrics.add(BUDGET_REFUSALS, "request")
