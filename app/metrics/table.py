"""The metrics: a row each. What a row measures is recorded under it by the code that sees it happen.

Names and units follow https://prometheus.io/docs/practices/naming. Labels have few values, and never those that a
client or a model can invent: see `app.metrics.labels`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["counter", "gauge", "histogram"]
MOST_SERIES = 200  # of one metric; a further one counts as OTHER
FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
ANSWERS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
HOLDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
WORK = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)


class Metric(Struct, frozen=True):
    """One metric, and the labels that each of its series has. A histogram has `buckets`, by their upper bounds.

    A gauge is read when the metrics are asked for, the others are counted as things happen. A counter's name ends with
    `_total`. `of_replicas`: there is none as long as the server has its database for itself.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    of_replicas: bool = False

    @property
    def family(self) -> str:
        """The name of the metric in OpenMetrics, whose samples have suffixes."""
        return self.name.removesuffix("_total")

    @property
    def unit(self) -> str:
        """The unit that the name ends with; empty for a number of things."""
        return next((unit for unit in ("seconds", "bytes") if self.family.endswith(f"_{unit}")), "")


RUNS = Metric("dragoman_runs", "gauge", "Active runs by state: queued, running, waiting (for a person).", ("state",))
RUNS_STARTED = Metric("dragoman_runs_started_total", "counter", "Runs that have begun.")
RUNS_FINISHED = Metric(
    "dragoman_runs_finished_total", "counter", "Runs that have ended without an error, by reason.", ("reason",)
)
RUNS_FAILED = Metric("dragoman_runs_failed_total", "counter", "Runs that have ended with an error, by code.", ("code",))
RUN_SECONDS = Metric("dragoman_run_seconds", "histogram", "Time of runs from request to end.", (), WORK)
RUN_QUEUE_SECONDS = Metric(
    "dragoman_run_queue_seconds", "histogram", "Time of runs from request to begin: the queue of the session.", (), WORK
)
ROUNDS = Metric("dragoman_rounds_total", "counter", "Rounds of runs.")
NOTICES = Metric("dragoman_notices_total", "counter", "Notices of runs by code: retry, fallback ...", ("code",))
TOKENS = Metric(
    "dragoman_tokens_total",
    "counter",
    "Tokens by model and direction: prompt, cached (a part of the prompt), completion.",
    ("model", "direction"),
)
COST = Metric("dragoman_cost_total", "counter", "Cost of model requests, in the money of the price table.", ("model",))
MODEL_REQUESTS = Metric(
    "dragoman_model_requests_total",
    "counter",
    "Model requests by kind (round, side_query) and outcome: ok, cancelled, or an error code.",
    ("model", "kind", "outcome"),
)
FIRST_TOKEN_SECONDS = Metric(
    "dragoman_first_token_seconds",
    "histogram",
    "Time of rounds from request to first token, queue and retries included.",
    ("model",),
    ANSWERS,
)
MODEL_SECONDS = Metric(
    "dragoman_model_request_seconds",
    "histogram",
    "Time of model requests, queue and retries included.",
    ("model",),
    WORK,
)
MODEL_QUEUE = Metric(
    "dragoman_model_queue", "gauge", "Requests of an endpoint by state: active, waiting.", ("endpoint", "state")
)
ENDPOINTS = Metric("dragoman_endpoint_up", "gauge", "1 while an endpoint is not in a cooldown, else 0.", ("endpoint",))
TOOL_SECONDS = Metric(
    "dragoman_tool_seconds", "histogram", "Time of tool calls by outcome: ok, failed.", ("tool", "outcome"), WORK
)
TOOLS_REJECTED = Metric("dragoman_tools_rejected_total", "counter", "Tool calls that were not run.", ("tool",))
APPROVALS = Metric("dragoman_approvals_total", "counter", "Approvals by decision.", ("decision",))
APPROVALS_WAITING = Metric("dragoman_approvals_waiting", "gauge", "Calls and questions that wait for a person.")
BUDGET_REFUSALS = Metric(
    "dragoman_budget_refusals_total", "counter", "Refusals by an exhausted budget: of a request, in a run.", ("where",)
)
HTTP_REQUESTS = Metric(
    "dragoman_http_requests_total",
    "counter",
    "HTTP requests by method, template of the route, and class of the status.",
    ("method", "route", "status"),
)
HTTP_SECONDS = Metric(
    "dragoman_http_request_seconds",
    "histogram",
    "Time until an answer begins; a stream begins when its run is stored.",
    ("method", "route"),
    ANSWERS,
)
HTTP_ERRORS = Metric("dragoman_http_errors_total", "counter", "Refused HTTP requests by error code.", ("code",))
WATCHERS = Metric("dragoman_watchers", "gauge", "Open event streams by kind: page, other.", ("kind",))
JOBS = Metric("dragoman_jobs", "gauge", "Background jobs under way.")
MCP_SERVERS = Metric("dragoman_mcp_servers", "gauge", "MCP servers by state.", ("state",))
PAUSED = Metric("dragoman_paused", "gauge", "1 while the kill switch is on, else 0.")
COMMIT_SECONDS = Metric("dragoman_commit_seconds", "histogram", "Time of commits of the event log.", (), FAST)
COMMITS_FAILED = Metric("dragoman_commits_failed_total", "counter", "Commits of the event log that failed.")
COMMIT_BACKLOG = Metric("dragoman_commit_backlog", "gauge", "Changes that wait for the next commit.")
DATABASE_BYTES = Metric("dragoman_database_bytes", "gauge", "Size of the files of the SQLite database.", ("file",))
DISK_FREE_BYTES = Metric("dragoman_disk_free_bytes", "gauge", "Free bytes of a folder's disk.", ("folder",))
LOOP_LAG_SECONDS = Metric(
    "dragoman_event_loop_lag_seconds", "histogram", "Delay of a timer of one second: the event loop was busy.", (), FAST
)
LOOP_HELD_SECONDS = Metric(
    "dragoman_event_loop_held_seconds",
    "histogram",
    "CPU of single callbacks of the event loop that had more than 50 ms, by cause: callback, garbage_collection.",
    ("cause",),
    HOLDS,
)
TAKEOVERS = Metric("dragoman_takeovers_total", "counter", "Runs taken over from another replica.", of_replicas=True)
FENCED = Metric(
    "dragoman_fenced_total", "counter", "Writes refused because another replica owns the run.", of_replicas=True
)
LEASE_LEFT_SECONDS = Metric(
    "dragoman_lease_left_seconds", "gauge", "Time until the lease of this replica ends.", of_replicas=True
)
BUILD_INFO = Metric("dragoman_build_info", "gauge", "1, with the versions as labels.", ("version", "python"))

METRICS = tuple(row for row in dict(globals()).values() if isinstance(row, Metric))
