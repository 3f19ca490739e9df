"""Skills of a server, by MCP's extension for them: pinned with the digests of their files, which are read on demand."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import quote, unquote

from tools.base.patterns import lazy_pattern
from tools.base.permit import canonical
from tools.mcp.definitions import Definition, UnusableDefinition, sha256
from tools.mcp.names import offer_name
from tools.mcp.offers import MAX_URI, is_plain
from tools.mcp.results import line
from tools.tool import SKILL_REQUEST, skill_prefix

MAX_SKILLS = 256
MAX_FILES, MAX_BYTES = 512, 16 << 20  # of a skill: the limits of the extension
MAX_FRONT_MATTER = 4_000  # characters, which YAML may take 0.1 s for
MAX_LISTED_FILES, MAX_ADDRESS = 8_192, 512  # of all skills of a server, and characters of a file's URI
FILE, SCHEME = "SKILL.md", "skill://"
IS_SKILL = "://"  # in the name of a pin, which is the URI of the folder
_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DIGEST = lazy_pattern(r"sha256:[0-9a-f]{64}")
_PARAMETERS = {"type": "object", "properties": {"name": {"type": "string", "maxLength": MAX_URI}}}


def skill_definition(raw: Any) -> Definition:
    """Build a definition from an entry of the server's list. Raises UnusableDefinition, RecursionError."""
    match raw:
        case {"uri": str(uri), "frontmatter": {"name": str(name), "description": str(about)}, "resources": [*listed]}:
            root, fields = uri.removesuffix(f"/{FILE}"), raw["frontmatter"]
        case _:  # `dynamic` ones cannot be pinned
            raise UnusableDefinition("it needs a uri, a name, a description and a list of its files")
    if not (
        root != uri and IS_SKILL in root and root.endswith(f"/{name}") and _NAME.fullmatch(name) and _is_usable(uri)
    ):
        raise UnusableDefinition(f"its uri does not end with its name and {FILE}, is too long, or has odd characters")
    files = dict(_file(root, one) for one in listed[:MAX_FILES])
    if FILE not in files or len(files) < len(listed):
        raise UnusableDefinition(f"it has no {FILE}, a file twice, or more than {MAX_FILES} files")
    size = sum(int(stated.split()[1]) for stated in files.values())
    if not about.strip() or len(canonical(fields)) > MAX_FRONT_MATTER or size > MAX_BYTES:
        raise UnusableDefinition(f"it has no description, too long a front matter, or over {MAX_BYTES:,} bytes")
    return pinned_skill({"name": root, "frontmatter": fields, "files": files})


def pinned_skill(pinned: Mapping[str, Any]) -> Definition:
    return Definition(pinned["name"], pinned, sha256(canonical(pinned)), line(pinned["frontmatter"]["description"]), {})


def _file(root: str, listed: Any) -> tuple[str, str]:
    match listed:
        case {"uri": str(uri), "digest": str(digest), "size": int(size)} if _DIGEST.fullmatch(digest) and size >= 0:
            path = uri.removeprefix(f"{root}/")
            parts = unquote(path).replace("\\", "/").split("/")
            if path != uri and _is_usable(uri) and not {"", ".", ".."}.intersection(parts):
                return path, f"{digest} {size:d}"
    raise UnusableDefinition("it lists a file outside of its folder, or without a plain uri, a digest and a size")


def _is_usable(uri: str) -> bool:
    return len(uri) <= MAX_ADDRESS and is_plain(uri)


def files_of(raw: Any) -> int:
    """Return how many files an entry of the server's list has, as far as it can be used."""
    match raw:
        case {"resources": [*listed]}:
            return min(len(listed), MAX_FILES)
    return 0


def skills_tool(server: str, skills: Mapping[str, Definition]) -> tuple[str, Definition]:
    """Return the host's tool for the skills of a server; its description has a line for each, by its unique path."""
    name = offer_name(server, "skills")
    lines = (f"- {skill_prefix(name)}{root.removeprefix(SCHEME)}: {one.description}" for root, one in skills.items())
    return name, Definition(SKILL_REQUEST, {}, "", "\n".join(lines), _PARAMETERS)


def skill_file(skills: Mapping[str, Definition], name: str) -> tuple[Definition, str] | None:
    """Return the innermost skill with the file that `name` is the path of, or the name of the skill alone."""
    parts = (name if IS_SKILL in name else f"{SCHEME}{name}").split("/")
    for end in range(len(parts), 0, -1):
        one, path = skills.get("/".join(parts[:end])), "/".join(parts[end:]) or FILE
        if one and (found := {path, quote(path)} & one.pinned["files"].keys()):
            return one, min(found)
    return None


def fault_of(one: Definition, path: str, contents: Sequence[Any]) -> str:
    """Return what is wrong with a file as the server has sent it; empty if it is the pinned one. May block."""
    yaml = import_module("yaml")  # for its first use
    try:
        [sent] = contents
        data = sent.text.encode() if hasattr(sent, "text") else base64.b64decode(sent.blob, validate=True)
        if f"sha256:{hashlib.sha256(data).hexdigest()} {len(data)}" != one.pinned["files"][path]:
            return "its size or digest is not the one that the server lists"
        if path != FILE:
            return ""
        head, _, _ = data.decode("utf-8-sig").replace("\r\n", "\n").removeprefix("---\n").partition("\n---")
        written = yaml.load(head[:MAX_FRONT_MATTER], yaml.CBaseLoader)
        same = len(head) <= MAX_FRONT_MATTER and _is_same(written, one.pinned["frontmatter"], partial(_typed, yaml))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        return f"it cannot be read ({type(error).__name__})"
    return "" if same else "its front matter is not the one that the server lists"


def _typed(yaml: Any, text: str) -> Any:
    """Return the value of a plain scalar. Read as a document, it could repeat itself without end by merge keys."""
    loader = yaml.CSafeLoader("")
    return loader.construct_object(yaml.ScalarNode(loader.resolve(yaml.ScalarNode, text, (True, False)), text))


def _is_same(written: Any, stated: Any, typed: Callable[[str], Any]) -> bool:
    """Return whether the texts of YAML state this JSON; its versions take some (`yes`) for different types."""
    match written:
        case dict() if isinstance(stated, dict) and written.keys() == stated.keys():
            return all(_is_same(one, stated[key], typed) for key, one in written.items())
        case list() if isinstance(stated, list) and len(written) == len(stated):
            return all(_is_same(one, other, typed) for one, other in zip(written, stated, strict=True))
    return isinstance(written, str) and bool(stated in (written, None if isinstance(stated, str) else typed(written)))
