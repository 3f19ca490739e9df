"""The entries of an `mcp.json`, in the forms of all common clients: an invalid one disables only itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import translate
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from tools.base.containment import lies_in
from tools.base.patterns import lazy_pattern
from tools.mcp.config.code_places import check_code_places
from tools.mcp.config.trust import ignored_trust, read_trust, tool_trust_of
from tools.mcp.config.variables import BadEntry, Variables, read_env_file
from tools.mcp.model import ServerConfig, Timeouts, Transport

MAX_FILE_BYTES = 1 << 20
MAX_NAME = 128
TOPS = ("mcpServers", "servers", "context_servers")  # Claude, Cursor, Windsurf, Gemini ...; VS Code; Zed
TRANSPORTS: dict[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "sse": "sse",
}
MILLISECONDS = 1000  # a timeout of so much or more is in milliseconds
LONGEST_S = 86_400.0
_HEADER_NAME = lazy_pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
USUAL = Timeouts()
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENTS = lazy_pattern(rf"(?P<string>{_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMAS = lazy_pattern(rf"(?P<string>{_STRING})|,(?=\s*[}}\]])")


class Configured(Struct, frozen=True):
    """The servers of a file. `problem` is the reason why it has none."""

    configs: tuple[ServerConfig, ...] = ()
    problem: str = ""


def read_config(path: Path, environ: Mapping[str, str], workspace: Path | None = None) -> Configured:
    """Read the servers of a file. Never raises: problems of the file or of an entry are in the result."""
    try:
        written = path.read_bytes()[: MAX_FILE_BYTES + 1]
        if len(written) > MAX_FILE_BYTES:
            return Configured(problem=f"{path} is larger than {MAX_FILE_BYTES} bytes: it cannot be a list of servers.")
        return parse_config(written.decode(), environ, path, workspace)
    except OSError as error:
        return Configured(problem=f"{path} cannot be read: {error.strerror}.")
    except UnicodeDecodeError:
        return Configured(problem=f"{path} is not UTF-8. Save it as UTF-8.")


def parse_config(text: str, environ: Mapping[str, str], path: Path, workspace: Path | None = None) -> Configured:
    """The servers that a file's text names. Relative paths count from the folder of `path`."""
    try:
        entries = servers_of(read_json(text) if text.strip() else {})
    except ValueError as error:
        return Configured(problem=f"{path} is not a list of MCP servers: {error}.")
    variables = Variables(environ, path.parent, workspace)
    configs = tuple(config_of(name, entry, variables) for name, entry in entries.items())
    return Configured(configs)


def servers_of(whole: Any) -> dict[str, Any]:
    """Return the part of a file that names servers, which may be changed in place. Raises ValueError."""
    if not isinstance(whole, dict):
        raise ValueError('write {"mcpServers": {...}}')
    places = [whole, *(inner for inner in (whole.get("mcp"),) if isinstance(inner, dict))]
    for place in places:
        for top in TOPS:
            if isinstance(servers := place.get(top), dict):
                return servers
            if top in place:
                raise ValueError(f"{top} must be an object, with a name for each server")
    if whole:
        raise ValueError(f"it has none of {', '.join(TOPS)} at its top")
    return {}


def config_of(name: str, entry: Any, variables: Variables, *, from_api: bool = False) -> ServerConfig:
    """Parse one entry. An error becomes its `problem`, which names the field."""
    try:
        config = _read(name, entry, variables, from_api=from_api)
        check_code_places(config, variables.workspace)
        return config
    except BadEntry as bad:
        return ServerConfig(name, from_api=from_api, problem=str(bad))


def _read(name: str, entry: Any, variables: Variables, *, from_api: bool) -> ServerConfig:
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise BadEntry(f"The name of a server must have 1 to {MAX_NAME} printable characters.")
    if not isinstance(entry, dict):
        raise BadEntry("The entry must be an object with command or url.")
    command, args = _command(entry, variables)
    url = _url(entry, variables)
    transport = _transport(entry, command, url)
    if transport == "stdio" and not command:
        raise BadEntry("command is missing.")
    if transport != "stdio" and not url:
        raise BadEntry("url is missing.")
    local = transport == "stdio"
    return ServerConfig(
        name,
        transport,
        command=command if local else "",
        args=args if local else (),
        url="" if local else url,
        env=_env(entry, variables),
        cwd=None if entry.get("cwd") is None else _path("cwd", entry["cwd"], variables),
        headers=_headers(entry, variables),
        client_id=_client(entry, variables, "clientId", "CLIENT_ID"),
        client_secret=_client(entry, variables, "clientSecret", "CLIENT_SECRET"),
        enabled=_flag(entry, "enabled", default=True) and not _flag(entry, "disabled", default=False),
        eager=_flag(entry, "eager", default=False),
        include=_globs(entry, "includeTools") or _globs(entry, "tools"),
        exclude=(*_globs(entry, "excludeTools"), *_globs(entry, "disabledTools")),
        timeouts=_timeouts(entry),
        tool_timeouts=_tool_timeouts(entry),
        new_tools="hold" if _flag(entry, "holdNewTools", default=False) else "allow",
        from_api=from_api,
        trust=read_trust("trust", entry.get("trust"), from_api=from_api),
        tool_trust=tool_trust_of(entry, from_api=from_api),
        app_domains=_globs(entry, "appDomains"),
        notes=ignored_trust(entry),
    )


def _command(entry: Mapping[str, Any], variables: Variables) -> tuple[str, tuple[str, ...]]:
    """The program and its arguments, as a list: no shell ever reads them."""
    command, args = entry.get("command"), _texts(entry, "args", variables)
    if isinstance(command, list):  # opencode's form
        command, *more = _texts(entry, "command", variables) or ("",)
        return command, (*more, *args)
    if command is not None and (not isinstance(command, str) or not command.strip()):
        raise BadEntry("command must be the name of a program; its arguments go into args.")
    return _text("command", command or "", variables), args


def _url(entry: Mapping[str, Any], variables: Variables) -> str:
    field = next((name for name in ("url", "httpUrl", "serverUrl") if entry.get(name) is not None), None)
    if field is None:
        return ""
    if not isinstance(entry[field], str):
        raise BadEntry(f"{field} must be a text.")
    url = variables.fill(field, entry[field]).strip()
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:
        good = False
    if not good:
        raise BadEntry(f"{field} must be an http or https URL.")
    return url


def _transport(entry: Mapping[str, Any], command: str, url: str) -> Transport:
    declared = entry.get("type") if entry.get("type") is not None else entry.get("transport")
    if declared is None:
        if url and command:
            raise BadEntry("There are both command and url. Keep one, or add type.")
        if not url:
            return "stdio"
        return transport_of(url) if entry.get("httpUrl") is None else "http"
    if not isinstance(declared, str) or declared not in TRANSPORTS:
        raise BadEntry(f"type must be one of {', '.join(TRANSPORTS)}.")
    return TRANSPORTS[declared]


def transport_of(url: str) -> Transport:
    """Return the transport that a URL without a declared one speaks: the older one if its path ends so."""
    return "sse" if urlsplit(url).path.rstrip("/").endswith("/sse") else "http"


def _env(entry: Mapping[str, Any], variables: Variables) -> dict[str, str]:
    """Merge `envFile` with the entry's own variables: an object, or a list of `NAME=value`."""
    found = _env_file(entry, variables)
    field = "environment" if entry.get("env") is None else "env"
    given = entry.get(field)
    if isinstance(given, list):
        pairs = [text.partition("=") for text in _texts(entry, field, variables)]
        if wrong := [name for name, equals, _ in pairs if not equals or not name]:
            raise BadEntry(f"{field}: {wrong[0]!a} is not NAME=value.")
        return found | {name: value for name, _, value in pairs}
    return found | _pairs(entry, field, variables)


def _env_file(entry: Mapping[str, Any], variables: Variables) -> dict[str, str]:
    if entry.get("envFile") is None:
        return {}
    path = _path("envFile", entry["envFile"], variables)
    if variables.workspace and lies_in(path, variables.workspace):
        raise BadEntry(f"envFile: {path} is inside the workspace, where tools could change it. Move it.")
    try:
        return read_env_file(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadEntry(f"envFile: {path} cannot be read ({error}).") from None


def _path(field: str, written: Any, variables: Variables) -> Path:
    if variables.environ is None:
        raise BadEntry(f"{field} is for the file of servers only.")
    if not isinstance(written, str) or not written.strip() or not written.isprintable():
        raise BadEntry(f"{field} must be a path.")
    text = variables.fill(field, written)
    home = variables.environ.get("HOME")
    if home and (text == "~" or text.startswith("~/")):
        return Path(home, text[2:])
    return variables.folder / text


def _headers(entry: Mapping[str, Any], variables: Variables) -> dict[str, str]:
    headers = _pairs(entry, "headers", variables)
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise BadEntry(f"headers.{name!a} does not fit into a header.")
    return headers


def _client(entry: Mapping[str, Any], variables: Variables, *names: str) -> str:
    """Part of `oauth` (Claude Code, Gemini) or `auth` (Cursor): the OAuth client's id or secret."""
    for field in ("oauth", "auth"):
        given = entry.get(field)
        for name in names:
            if isinstance(given, dict) and given.get(name) is not None:
                return _text(f"{field}.{name}", given[name], variables)
    return ""


def _pairs(entry: Mapping[str, Any], field: str, variables: Variables) -> dict[str, str]:
    given = entry.get(field) if entry.get(field) is not None else {}
    if not isinstance(given, dict):
        raise BadEntry(f"{field} must be an object of texts.")
    return {name: _text(f"{field}.{name}", value, variables) for name, value in given.items()}


def _texts(entry: Mapping[str, Any], field: str, variables: Variables) -> tuple[str, ...]:
    given = entry.get(field) if entry.get(field) is not None else []
    if not isinstance(given, list):
        raise BadEntry(f"{field} must be a list of texts.")
    return tuple(_text(f"{field}[{number}]", value, variables) for number, value in enumerate(given))


def _text(field: str, value: Any, variables: Variables) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise BadEntry(f"{field} must be a text.")
    text = variables.fill(field, str(value))
    if "\0" in text:
        raise BadEntry(f"{field} holds a zero character.")
    return text


def _flag(entry: Mapping[str, Any], field: str, *, default: bool) -> bool:
    value = entry.get(field)
    if value is not None and not isinstance(value, bool):
        raise BadEntry(f"{field} must be true or false.")
    return default if value is None else value


def _globs(entry: Mapping[str, Any], field: str) -> tuple[str, ...]:
    given = entry.get(field) if entry.get(field) is not None else []
    if not isinstance(given, list) or not all(isinstance(one, str) and one and translate(one) for one in given):
        raise BadEntry(f"{field} must be a list of tool names or patterns.")
    return tuple(given)


def _timeouts(entry: Mapping[str, Any], field: str = "", usual: Timeouts = USUAL) -> Timeouts:
    """Read `timeout`, how long a call may be silent, and `timeouts` with start_s, idle_s and total_s."""
    usual = Timeouts(usual.start_s, idle, max(usual.total_s, idle)) if (idle := _seconds(entry, "timeout")) else usual
    own = entry.get("timeouts") if entry.get("timeouts") is not None else {}
    if not isinstance(own, dict) or own.keys() - {"start_s", "idle_s", "total_s"}:
        raise BadEntry(f"{field}timeouts must be an object with start_s, idle_s or total_s.")
    return Timeouts(
        _seconds(own, "start_s", f"{field}timeouts.") or usual.start_s,
        _seconds(own, "idle_s", f"{field}timeouts.") or usual.idle_s,
        _seconds(own, "total_s", f"{field}timeouts.") or usual.total_s,
    )


def _tool_timeouts(entry: Mapping[str, Any]) -> dict[str, Timeouts]:
    given = entry.get("toolTimeouts") if entry.get("toolTimeouts") is not None else {}
    if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
        raise BadEntry("toolTimeouts must be an object: a tool's name, and start_s, idle_s or total_s.")
    usual = _timeouts(entry)
    return {tool: _timeouts({"timeouts": one}, f"toolTimeouts.{tool}.", usual) for tool, one in given.items()}


def _seconds(entry: Mapping[str, Any], field: str, place: str = "") -> float | None:
    value = entry.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_S * MILLISECONDS:
        raise BadEntry(f"{place}{field} must be a number of seconds, or of milliseconds from {MILLISECONDS} on.")
    return min(LONGEST_S, value / MILLISECONDS if value >= MILLISECONDS and not place else float(value))


def read_json(text: str) -> Any:
    """Parse JSON as written by hand: with comments, trailing commas and a byte order mark.

    Raises ValueError, which names the line.
    """
    try:
        return json.loads(_COMMAS.sub(_kept, _COMMENTS.sub(_kept, text.removeprefix("\ufeff"))))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def has_comments(text: str) -> bool:
    return any(found["string"] is None for found in _COMMENTS.finditer(text))


def _kept(found: re.Match[str]) -> str:
    """Strings as they are; of a comment its line ends, so that an error names the right line."""
    return found["string"] if found["string"] is not None else "\n" * found[0].count("\n")
