"""`dragoman doctor model NAME`: examine a model server by prompts, report, and write the settings that would help."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import msgspec

from app.config.settings import Loaded, Settings
from app.core.endpoint_spec import EndpointSpec
from app.diagnosis.examination import CannotExamine, examine
from app.diagnosis.report import Report, markdown, with_settings
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.registry import audit_row, endpoint_row
from app.models.endpoints.startup import build_endpoint_factory, keys_of, specs_of
from app.redaction.redactor import Redactor
from app.storage.store import Store
from routes.cli.endpoints import BY, TAKEN_IN
from routes.cli.tokens import with_store
from routes.protocol.errors import Refused

CLEAN, FINDINGS, NOT_DONE = 0, 1, 2
EMBEDDED = "embedded"


def model_report_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", help="an endpoint, or ENDPOINT/MODEL; `embedded` for the model that comes with dragoman"
    )
    parser.add_argument("--quick", action="store_true", help="60 prompts instead of 200")
    parser.add_argument("--json", dest="json_file", type=Path, metavar="FILE", help="write the report as JSON, too")
    help_text = "write the settings that would help to the endpoint, after showing them"
    parser.add_argument("--write", action="store_true", help=help_text)


def run_model_report(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 0 if nothing was found, 1 with findings, 2 if it could not be done."""

    reports = list[Report]()

    async def work(store: Store) -> int:
        _check_writable(args.json_file)
        redactor = Redactor()
        name, _, model = args.name.partition("/")
        spec = await _spec(store, loaded.settings, name)
        factory = build_endpoint_factory(loaded.settings, redactor, environ)
        endpoint = factory.create(name, spec, "added", keys_of(loaded.settings, name))
        try:
            report = await _report(endpoint, model, redactor, quick=args.quick)
        finally:
            await endpoint.close()
        reports.append(report)
        print(markdown(report))
        if args.json_file:
            _write_json(args.json_file, report)
        if args.write and report.settings:
            await _write(store, loaded.settings, name, report)
        return CLEAN

    if with_store(loaded, work) != CLEAN:
        return NOT_DONE
    return CLEAN if reports[0].is_clean else FINDINGS


async def _spec(store: Store, settings: Settings, name: str) -> EndpointSpec:
    """Raises Refused."""
    specs = specs_of(settings, await store.endpoints())
    if name in specs or name == EMBEDDED:
        return specs.get(name) or EndpointSpec(url="embedded:")
    known = ", ".join([*specs, EMBEDDED])
    raise Refused(404, "not_found", f"There is no endpoint {name[:64]!a}; there are: {known}.")


async def _report(endpoint: Endpoint, model: str, redactor: Redactor, *, quick: bool) -> Report:
    """Raises Refused."""
    if not endpoint.usable:
        raise Refused(409, "cannot_examine", endpoint.problem or "Its model runs in the server: test it on the page.")
    counted = sys.stderr.isatty()
    try:
        async with aclosing(examine(endpoint.handle(model or None).provider, quick=quick)) as steps:
            async for step in steps:
                if isinstance(step, Report):
                    return msgspec.convert(redactor.redact_value(msgspec.to_builtins(step)), Report)
                if counted:
                    print(f"\r{step.done} of {step.of} {step.probe:24}", end="", file=sys.stderr, flush=True)
    except CannotExamine as reason:
        raise Refused(409, "cannot_examine", redactor.redact(str(reason))) from None
    finally:
        if counted:
            print("\r" + " " * 48, end="\r", file=sys.stderr)
    raise AssertionError("an examination ends with its report")


def _check_writable(path: Path | None) -> None:
    """Raises Refused, before minutes are spent on what cannot be written."""
    if path and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise Refused(422, "invalid_request", f"{path} cannot be written. Name a file in a folder that is there.")


def _write_json(path: Path, report: Report) -> None:
    """Raises Refused."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    except OSError as error:
        raise Refused(422, "invalid_request", f"{path} cannot be written: {error.strerror}.") from None


async def _write(store: Store, settings: Settings, name: str, report: Report) -> None:
    """Write the settings to an endpoint of the database. Raises Refused."""
    row = specs_of(settings, await store.endpoints()).get(name)
    if row is None or name in specs_of(settings):
        raise Refused(409, "endpoint_of_settings", f"{name} is not in the database: set these in the settings instead.")
    spec, left = with_settings(row, report.settings)
    await store.write([endpoint_row(name, spec, BY), audit_row(name, "changed", BY, spec)])
    print(f"{name} is changed. {TAKEN_IN}")
    if left:
        print(f"dragoman: not fields of an endpoint, set them yourself: {', '.join(left)}", file=sys.stderr)
