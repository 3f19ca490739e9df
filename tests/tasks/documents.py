"""`python -m tests.tasks.documents` (`make docs`): write the parts of docs/ that are derived from the code.

A generated part is a row of PARTS and stands between two marks, `<!-- generated: NAME -->` and `<!-- end of NAME -->`;
the prose around it is written by hand. `tests/house/test_documents.py` fails if a committed page differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

import msgspec
from pydantic.fields import FieldInfo

from app.config.display import as_written
from app.config.operator_settings import FILE_ONLY
from app.config.settings import Settings
from app.core.events import AgentEvent
from app.core.job_events import JobEvent
from app.diagnosis.defects import DEFECTS
from app.diagnosis.probes import AT_ONCE, PROBES, TOO_LONG
from app.metrics.table import METRICS
from app.policy.call_rows import TABLE as DECISIONS
from app.telemetry.conventions import TABLE
from routes.cli.doctor.checks import CHECKS
from routes.openapi.document import document
from routes.protocol.route import RIGHTS, Route, Tag
from tests import ROOT
from tests.support.documented.connect import PROGRAM_NAMES, connect_lines
from tests.support.documented.dialects import dialect_examples, dialect_table
from tests.support.documented.lanes import lane_examples
from tests.support.documented.process_metrics import PROCESS_METRICS
from tests.support.documented.rooms import floor_plan
from tests.support.documented.routes import ROUTES
from tests.support.documented.servers import quirk_table

DOCS = ROOT / "docs"
LONGEST_DEFAULT = 60
JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object", Any: "any"}


def settings_tables() -> Iterator[str]:
    """A table for each class that Settings is made of, under the class's docstring."""
    for part in (Settings, *Settings.__bases__):
        title = "Server, tools and approvals" if part is Settings else (part.__doc__ or "").rstrip(".")
        yield from (
            f"### {title}",
            "",
            "| TOML key, environment, flag | default | meaning | allowed |",
            "|---|---|---|---|",
        )
        yield from (
            _setting(name, Settings.model_fields[name]) for name in part.__annotations__ if name != "model_config"
        )
        yield ""


def _setting(name: str, field: FieldInfo) -> str:
    outside = "" if name in FILE_ONLY else f"<br>`DRAGOMAN_{name.upper()}`<br>`--{name.replace('_', '-')}`"
    names = f"`{name}`{outside}"
    allowed = field.json_schema_extra["allowed"] if isinstance(field.json_schema_extra, dict) else ""
    return f"| {names} | {_default(field)} | {field.description} | {allowed} |"


def _default(field: FieldInfo) -> str:
    if field.is_required() or field.default in (None, (), {}):
        return ""
    written = as_written(field.default)
    return f"`{written}`" if len(written) <= LONGEST_DEFAULT else "a list: see `dragoman config`"


def event_sections(union: UnionType) -> Iterator[str]:
    """A heading, the docstring and the fields of each event."""
    for event in get_args(union):
        yield f"### {event.type}"
        yield ""
        yield from cleandoc(event.__doc__ or "").splitlines()
        yield ""
        fields = msgspec.structs.fields(event)
        yield "Fields: " + ", ".join(f"`{field.name}` ({_field_type(field)})" for field in fields)
        yield ""


def _field_type(field: msgspec.structs.FieldInfo) -> str:
    """Optional fields that are None are left out of the JSON; others are null."""
    written = _json_type(field.type)
    return written if field.required else f"{written.removesuffix(' or null')}, optional"


def _json_type(annotation: Any) -> str:
    """A field's type in JSON's words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is list:
        return f"array of {_json_type(inner[0])}s"
    if origin is dict:
        return "object"
    if NoneType in inner:
        return " or ".join("null" if one is NoneType else _json_type(one) for one in inner)
    return JSON_TYPES[annotation]


def metrics_table() -> Iterator[str]:
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for row in METRICS:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        replicas = " Of replicas." if row.of_replicas else ""
        yield f"| `{row.name}` | {row.kind} | {labels} | {row.help}{replicas} |"


def process_metrics_table() -> Iterator[str]:
    yield "| metric | type | meaning |"
    yield "|---|---|---|"
    yield from (f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in PROCESS_METRICS.items())


def telemetry_tables() -> Iterator[str]:
    """A table for spans, metrics, events and attributes each."""
    for kind, title in (("span", "Spans"), ("metric", "Metrics"), ("event", "Events"), ("attribute", "Attributes")):
        yield from (f"### {title}", "", "| name | of | what it holds | source |", "|---|---|---|---|")
        for row in TABLE:
            if row.kind == kind:
                unit = f" ({row.unit})" if row.unit else ""
                yield f"| `{row.name}` | {row.on} | {row.meaning}{unit} | {row.source} |"
        yield ""


def rights_table() -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {rights} | {meaning} |" for rights, meaning in RIGHTS.items())


def route_table(tag: Tag) -> Iterator[str]:
    yield "| route | for | |"
    yield "|---|---|---|"
    for row in ROUTES:
        if row.tag == tag:
            name = re.sub(r":\w+}", "}", row.name)
            yield f"| `{name}` | {row.rights} | {' '.join(_route_texts(row))} |"


def _route_texts(row: Route) -> Iterator[str]:
    yield f"{row.summary}."
    if row.details:
        yield row.details
    if row.query:
        yield f"Query: {'; '.join(f'`{one.name}`, {one.about}' for one in row.query)}."
    if row.body:
        yield f"Body: `{json.dumps(row.body.example)}`."


class Part(NamedTuple):
    """A generated part of a page of docs/."""

    page: str
    name: str
    lines: Callable[[], Iterable[str]]


def check_table() -> Iterator[str]:
    """The checks of `dragoman doctor`, with what each looks at."""
    yield "| check | looks at | limit | needs |"
    yield "|---|---|---|---|"
    for check in CHECKS:
        needs = ", ".join(check.needs[-1:]) + (", the network" if check.network else "")
        yield f"| {check.name} | {check.about} | {check.limit_s:g} s | {needs.removeprefix(', ')} |"


def probe_table() -> Iterator[str]:
    """The prompts of `dragoman doctor model`."""
    yield "| probe | tools | prompt | sent |"
    yield "|---|---|---|---|"
    for probe in (*PROBES, AT_ONCE, TOO_LONG):
        asked = f"`{probe.prompt.replace('|', chr(92) + '|')}`".replace("\n", " ").replace("`", "``")
        sent = [
            "streamed and whole" if probe.both else "streamed",
            *(["in a whole test only"] if not probe.quick else ()),
        ]
        sent += [f"`{name}`" for name in probe.fields]
        limit = [f"`max_tokens` {probe.tokens}"] if probe.is_cut else []
        yield f"| {probe.name} | {probe.form or 'none'} | {asked} | {', '.join([*sent, *limit])} |"


def defect_table() -> Iterator[str]:
    """The defects that `dragoman doctor model` can name."""
    yield "| defect | what is seen | what helps |"
    yield "|---|---|---|"
    yield from (f"| `{row.code}` | {row.about} | {row.advice} |" for row in DEFECTS)


def decision_table() -> Iterator[str]:
    """The rows that decide on a call, in order."""
    yield "| row | | a call |"
    yield "|---|---|---|"
    yield from (f"| `{name}` | {gives} | {when} |" for name, gives, when in DECISIONS)


PARTS = (
    Part("approvals-and-sandbox.md", "decisions", decision_table),
    Part("doctor.md", "checks", check_table),
    Part("doctor.md", "probes", probe_table),
    Part("doctor.md", "defects", defect_table),
    Part("http-api.md", "rights", rights_table),
    *(Part("http-api.md", f"routes of {tag}", partial(route_table, tag)) for tag in get_args(Tag)),
    Part("settings.md", "settings", settings_tables),
    Part("events.md", "run events", lambda: event_sections(AgentEvent)),
    Part("events.md", "job events", lambda: event_sections(JobEvent)),
    Part("models.md", "servers", quirk_table),
    Part("monitoring.md", "metrics", metrics_table),
    Part("monitoring.md", "process metrics", process_metrics_table),
    Part("telemetry.md", "telemetry names", telemetry_tables),
    Part("clients.md", "lane examples", lane_examples),
    *(Part(f"clients/{name}.md", f"connect {name}", partial(connect_lines, name)) for name in PROGRAM_NAMES),
    Part("dialects.md", "dialects", dialect_table),
    Part("dialects.md", "examples of dialects", dialect_examples),
    *(Part("architecture.md", f"rooms of {floor}", partial(floor_plan, floor)) for floor in ("routes", "app", "tools")),
)


def with_part(page: str, part: Part) -> str:
    """The text of a page with one part brought up to date. Raises ValueError without its marks."""
    start, end = f"<!-- generated: {part.name} -->", f"<!-- end of {part.name} -->"
    before, begun, rest = page.partition(start)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"docs/{part.page} needs the marks {start} and {end}.")
    return "\n".join((f"{before}{start}\n", *part.lines(), f"\n{end}{after}")).replace("\n\n\n", "\n\n")


def generated() -> dict[Path, str]:
    """The pages that have generated parts, as they should be, and the OpenAPI document."""
    pages: dict[Path, str] = {}
    for part in PARTS:
        path = DOCS / part.page
        pages[path] = with_part(pages.get(path) or path.read_text("utf-8"), part)
    pages[DOCS / "openapi.json"] = f"{json.dumps(document(ROUTES), indent=1)}\n"
    return pages


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^(`{3,}).*?^\1", "", page, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, "utf-8")
