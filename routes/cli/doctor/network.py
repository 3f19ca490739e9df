"""Checks of the address that the server listens on."""

from __future__ import annotations

import os
import socket
import urllib.request
from contextlib import suppress
from email.utils import parsedate_to_datetime
from errno import EADDRINUSE
from time import time
from urllib.error import HTTPError
from urllib.parse import urlsplit

import psutil

from app.secrets.sources import SecretSources
from app.telemetry.opening import DEFAULT_ENDPOINT, ENDPOINTS, is_on, problems
from routes.access.authentication import is_loopback
from routes.access.oidc import opened_provider
from routes.cli.doctor.finding import Findings, Subject, ok, problem, skipped, warning
from routes.protocol.errors import Refused

SKEW_S = 30.0
REQUEST_S = 3.0


def port(subject: Subject) -> Findings:
    """The port: free, or in use by the server itself."""
    settings, where = subject.settings, f"{subject.settings.host}:{subject.settings.port}"
    if settings.port == 0:
        return ok("the system chooses a free one")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does; it never listens
            probe.bind((settings.host, settings.port))
    except OSError as error:
        if error.errno != EADDRINUSE:
            advice = "Set DRAGOMAN_HOST to an address of this machine, and DRAGOMAN_PORT to a port above 1023."
            return problem(f"{where} cannot be used: {error.strerror or error}", advice)
        pid, name = _holder(settings.port)
        if subject.server is not None and pid in (0, subject.server, _parent_of(subject.server)):
            return ok(f"{where} is in use by the running server")
        holder = f" by {name} (process {pid})" if pid else ""
        advice = "Stop that program, or choose another port with DRAGOMAN_PORT; 0 takes a free one."
        return problem(f"{where} is in use{holder}", advice)
    return ok(f"{where} is free")


def _parent_of(server: int) -> int | None:
    """The process that listens for a server which is one of several workers."""
    with suppress(psutil.Error):
        return psutil.Process(server).ppid()
    return None


def _holder(number: int) -> tuple[int, str]:
    """The process that listens on a port; 0 where it cannot be seen, because it is another account's."""
    with suppress(psutil.Error, OSError):
        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == number and one.pid:
                return one.pid, psutil.Process(one.pid).name()
    return 0, ""


def address(subject: Subject) -> Findings:
    """The address that the server is bound to, and the tokens that it then needs."""
    host, tokens = subject.settings.host, subject.stored.tokens
    found = f"{host}, {tokens.in_use} of {tokens.all} tokens in use"
    make = "`dragoman token create --name NAME` makes one."
    if not is_loopback(host) and not tokens.in_use and not subject.settings.vouched:
        return problem(f"{found}: the server does not start without a token on such an address", make)
    if tokens.all and not tokens.in_use:
        return problem(f"{found}: nothing is let in any more", make)
    if not is_loopback(host) and not subject.settings.trusted_proxies:
        advice = "Put a proxy with TLS in front, and name it in DRAGOMAN_TRUSTED_PROXIES: tokens travel in the clear."
        return warning(f"{found}, without a trusted proxy", advice)
    if tokens.all or subject.settings.vouched:
        return ok(found)
    return ok(f"{host}: only this account (user id {os.geteuid()}) is let in, without a token")


def clock_skew(subject: Subject) -> Findings:
    """The clock against the `Date` of the configured model's server. No key is sent."""
    urls = [subject.settings.model_url, *(spec.url for spec in subject.settings.endpoints.values())]
    remote = [url for url in urls if url and url.startswith("http") and not is_loopback(urlsplit(url).hostname or "")]
    if not remote:
        return skipped("no model server on another machine to compare with")
    request = urllib.request.Request(remote[0], method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
            date = answer.headers.get("Date")
    except HTTPError as refused:
        date = refused.headers.get("Date")
    except (OSError, ValueError) as error:
        return skipped(f"{urlsplit(remote[0]).hostname} did not answer: {type(error).__name__}")
    if not date:
        return skipped(f"{urlsplit(remote[0]).hostname} does not report the time")
    skew = time() - parsedate_to_datetime(date).timestamp()
    found = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} {urlsplit(remote[0]).hostname}"
    if abs(skew) > SKEW_S:
        return warning(found, "Set the clock, and keep it right with NTP (timedatectl set-ntp true).")
    return ok(found)


async def identity_provider(subject: Subject) -> Findings:
    """The OpenID provider, if there is one: its documents, its keys and the client's secret. Nothing is signed in."""
    sources = SecretSources.of(subject.settings, subject.environ)
    if (provider := opened_provider(subject.settings, subject.redactor, sources)) is None:
        return skipped("none is configured")
    try:
        await provider.check()
    except Refused as refused:
        return problem(refused.message, "Compare [oidc] with what the provider shows for this client.")
    return ok(f"{provider.spec.issuer} answers")


def telemetry(subject: Subject) -> Findings:
    """OpenTelemetry, if it is on: its packages, its variables, a collector that takes connections; nothing is sent."""
    settings, environ = subject.settings, subject.environ
    if not is_on(settings, environ):
        return skipped("off")
    advice = "Correct it, or switch it off with DRAGOMAN_OTEL=false."
    if wrong := list(problems(environ)):
        report = problem if settings.otel else warning
        return [report(one, advice) for one in wrong]
    found = []
    for url in sorted({environ[name] for name in ENDPOINTS if environ.get(name)} or {DEFAULT_ENDPOINT}):
        parts = urlsplit(url)
        where = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        try:
            with socket.create_connection((parts.hostname or "", int(where.rpartition(":")[2])), REQUEST_S):
                found.append(ok(f"{where} takes connections"))
        except OSError as error:
            found.append(
                warning(f"{where} cannot be reached: {error.strerror or error}", f"Start the collector. {advice}")
            )
    return found
