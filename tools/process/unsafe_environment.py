"""Variables by which a program finds more code, settings, certificates or a place for its files.

One table for the server's own environment and for the ones that MCP servers are given.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.base.patterns import lazy_pattern

NAMES = frozenset(
    {"BASH_ENV", "ENV", "ZDOTDIR", "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "PERL5LIB", "PERL5OPT"}
    | {"RUBYLIB", "RUBYOPT", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LUA_PATH", "LUA_CPATH", "PHPRC"}
    | {"PHP_INI_SCAN_DIR", "VIRTUAL_ENV", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "CURL_HOME", "TMPDIR", "TEMP", "TMP"}
    | {"OPENSSL_CONF", "OPENSSL_MODULES", "GCONV_PATH", "LOCPATH"}
)
PREFIXES = ("LD_", "DYLD_", "PYTHON", "SSL_CERT_", "XDG_", "GIT_CONFIG", "GIT_EXEC_PATH", "NPM_CONFIG_", "UV_", "PIP_")
_APART = lazy_pattern(r"[\s=:;,\"']+")  # of options, and of LD_PRELOAD, which takes spaces as well


def code_in_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """The paths that such variables hold, relative ones as they are: folders of a list, and those within options."""
    for name, value in environ.items():
        if name in NAMES or name.upper().startswith(PREFIXES):
            pieces = [*value.split(os.pathsep), *_APART.split(value)]
            for piece in dict.fromkeys(filter(None, pieces)):
                yield name, Path(piece[piece.find("/") :] if piece.startswith("-") and "/" in piece else piece)
