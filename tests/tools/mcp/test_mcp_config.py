"""Every form in which people have their list of MCP servers, and that a bad entry disables only itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.base.rights import Column, Risk, Role, Trust
from tools.mcp.config.config_file import FileUnchanged, drop_entry, entries_of, put_entry, set_enabled
from tools.mcp.config.entries import config_of, parse_config, read_config
from tools.mcp.config.variables import Variables, read_env_file
from tools.mcp.model import ServerConfig, Timeouts

HERE = Path("/etc/dragoman/mcp.json")
ENVIRON = {"KEY": "k-123", "HOME": "/home/ann", "EMPTY": ""}


def one(entry: Any, environ: dict[str, str] | None = None) -> ServerConfig:
    [config] = parse_config(json.dumps({"mcpServers": {"x": entry}}), environ or ENVIRON, HERE).configs
    return config


PLACES = {
    "Claude, Cursor, Windsurf, Cline, Gemini": {"mcpServers": {"x": {"command": "srv"}}},
    "VS Code": {"servers": {"x": {"command": "srv"}}, "inputs": []},
    "VS Code's settings": {"mcp": {"servers": {"x": {"command": "srv"}}}},
    "Zed": {"context_servers": {"x": {"command": "srv"}}},
    "with other things beside": {"theme": "dark", "mcpServers": {"x": {"command": "srv", "description": "a"}}},
}


@pytest.mark.parametrize("whole", PLACES.values(), ids=PLACES)
def test_where_servers_stand(whole: object) -> None:
    assert parse_config(json.dumps(whole), {}, HERE).configs == (ServerConfig("x", command="srv"),)


FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"command": "npx", "args": ["-y", "s", 8]}, {"command": "npx", "args": ("-y", "s", "8")}),
    ({"type": "local", "command": ["npx", "-y", "s"]}, {"command": "npx", "args": ("-y", "s")}),
    (
        {"command": "s", "env": {"A": "1", "B": 2, "C": True}},
        {"command": "s", "env": {"A": "1", "B": "2", "C": "true"}},
    ),
    ({"command": "s", "env": ["A=1", "B=x=y"]}, {"command": "s", "env": {"A": "1", "B": "x=y"}}),
    ({"command": "s", "environment": {"A": "1"}}, {"command": "s", "env": {"A": "1"}}),
    ({"command": "s", "cwd": "sub"}, {"command": "s", "cwd": Path("/etc/dragoman/sub")}),
    ({"command": "s", "cwd": "~/x"}, {"command": "s", "cwd": Path("/home/ann/x")}),
    ({"command": "s", "cwd": "${workspaceFolder}"}, {"command": "s", "cwd": Path("/etc/dragoman")}),
    ({"url": "https://a.test/mcp"}, {"transport": "http", "url": "https://a.test/mcp"}),
    ({"serverUrl": "https://a.test/sse"}, {"transport": "sse", "url": "https://a.test/sse"}),
    ({"httpUrl": "https://a.test/sse"}, {"transport": "http", "url": "https://a.test/sse"}),
    ({"url": "https://a.test/sse", "type": "http"}, {"transport": "http", "url": "https://a.test/sse"}),
    ({"url": "https://a.test/x", "transport": "sse"}, {"transport": "sse", "url": "https://a.test/x"}),
    *(
        ({"url": "https://a.test/", "type": word}, {"transport": "http", "url": "https://a.test/"})
        for word in ("http", "streamable-http", "streamableHttp", "streamable_http", "remote")
    ),
    (
        {"url": "https://a.test/", "headers": {"Authorization": "Bearer ${KEY}"}},
        {"transport": "http", "url": "https://a.test/", "headers": {"Authorization": "Bearer k-123"}},
    ),
    ({"command": "s", "disabled": True}, {"command": "s", "enabled": False}),
    ({"command": "s", "enabled": False}, {"command": "s", "enabled": False}),
    ({"command": "s", "enabled": True, "disabled": True}, {"command": "s", "enabled": False}),
    ({"command": "s", "timeout": 90}, {"command": "s", "timeouts": Timeouts(idle_s=90)}),
    ({"command": "s", "timeout": 90_000}, {"command": "s", "timeouts": Timeouts(idle_s=90)}),
    ({"command": "s", "timeout": 900}, {"command": "s", "timeouts": Timeouts(idle_s=900, total_s=900)}),
    (
        {"command": "s", "timeouts": {"start_s": 5, "total_s": 7200}},
        {"command": "s", "timeouts": Timeouts(5, 60, 7200)},
    ),
    (
        {"command": "s", "timeout": 90, "toolTimeouts": {"slow": {"total_s": 5000}}},
        {"command": "s", "timeouts": Timeouts(idle_s=90), "tool_timeouts": {"slow": Timeouts(30, 90, 5000)}},
    ),
    ({"command": "s", "tools": ["*"]}, {"command": "s", "include": ("*",)}),
    (
        {"command": "s", "includeTools": ["a"], "excludeTools": ["b"]},
        {"command": "s", "include": ("a",), "exclude": ("b",)},
    ),
    ({"command": "s", "disabledTools": ["b"]}, {"command": "s", "exclude": ("b",)}),
    ({"command": "s", "eager": True, "holdNewTools": True}, {"command": "s", "eager": True, "new_tools": "hold"}),
    ({"command": "s", "trust": True}, {"command": "s", "trust": Trust()}),
    ({"command": "s", "trust": False, "toolTrust": {"a": False}}, {"command": "s"}),
    (
        {"command": "s", "trust": {"role": "user", "risk": "network", "untrusted": False}},
        {"command": "s", "trust": Trust(Role.USER, Risk.NETWORK, False)},
    ),
    (
        {"command": "s", "toolTrust": {"a": {"risk": "read"}, "b": True}},
        {"command": "s", "tool_trust": {"a": Trust(risk=Risk.READ), "b": Trust()}},
    ),
    (
        {"command": "s", "toolTrust": {"a": {"risk": "network", "arguments": {"note": "recipient"}}}},
        {"command": "s", "tool_trust": {"a": Trust(risk=Risk.NETWORK, arguments={"note": Column.RECIPIENT})}},
    ),
    (
        {"url": "https://a.test/", "oauth": {"clientId": "c", "clientSecret": "${KEY}"}},
        {"transport": "http", "url": "https://a.test/", "client_id": "c", "client_secret": "k-123"},
    ),
    (
        {"url": "https://a.test/", "auth": {"CLIENT_ID": "c"}},
        {"transport": "http", "url": "https://a.test/", "client_id": "c"},
    ),
    (
        {"command": "${KEY}", "args": ["${env:KEY}", "${NONE:-d}", "${EMPTY:-e}", "$KEY"]},
        {"command": "k-123", "args": ("k-123", "d", "e", "$KEY")},
    ),
]


@pytest.mark.parametrize(("entry", "fields"), FORMS, ids=[json.dumps(entry)[:60] for entry, _ in FORMS])
def test_forms_of_an_entry(entry: dict[str, Any], fields: dict[str, Any]) -> None:
    assert one(entry) == ServerConfig("x", **fields)


PROBLEMS = [
    ({}, "command is missing"),
    ([], "must be an object"),
    ({"type": "http"}, "url is missing"),
    ({"command": "a", "url": "https://a.test"}, "both command and url"),
    ({"command": ""}, "command must be"),
    ({"command": "a", "args": "b c"}, "args must be a list"),
    ({"command": "a", "args": [None]}, r"args\[0\]"),
    ({"command": "a", "env": {"A": None}}, r"env\.A"),
    ({"command": "a", "env": ["A"]}, "NAME=value"),
    ({"command": "a\0b"}, "command"),
    ({"command": "a", "env": {"A": "${NONE}"}}, r"env\.A: the variable NONE is not set"),
    ({"command": "a", "env": {"A": "${EMPTY}"}}, r"env\.A: the variable EMPTY is not set"),
    ({"command": "a", "args": ["${input:key}"]}, r"args\[0\]: .*not supported"),
    ({"command": "a", "envFile": "nowhere"}, "envFile"),
    ({"url": "ftp://a.test"}, "url must be an http"),
    ({"url": "https://"}, "url must be an http"),
    ({"url": "https://a.test:99999"}, "url must be an http"),
    ({"url": "https://[::1"}, "url must be an http"),
    ({"url": 5}, "url must be a text"),
    ({"url": "https://a.test", "headers": {"A": "b\r\nX: y"}}, "does not fit into a header"),
    ({"url": "https://a.test", "headers": {"A": "é"}}, "does not fit into a header"),
    ({"url": "https://a.test", "headers": {"": "b"}}, "does not fit into a header"),
    ({"url": "https://a.test", "headers": {"A b": "c"}}, "does not fit into a header"),
    ({"url": "https://a.test", "type": "carrier pigeon"}, "type must be one of"),
    ({"command": "a", "disabled": "yes"}, "disabled must be true or false"),
    ({"command": "a", "timeout": -1}, "timeout must be"),
    ({"command": "a", "timeout": True}, "timeout must be"),
    ({"command": "a", "timeouts": {"idle": 1}}, "timeouts must be"),
    ({"command": "a", "tools": {"a": 1}}, "tools must be a list"),
    ({"command": "a", "trust": "yes"}, "trust must be true, false, or an object"),
    ({"command": "a", "trust": {"risk": "reads"}}, r"trust\.risk must be one of read, write"),
    ({"command": "a", "trust": {"role": ["user"]}}, r"trust\.role must be one of guest, user"),
    ({"command": "a", "trust": {"untrusted": "no"}}, r"trust\.untrusted must be true or false"),
    ({"command": "a", "trust": {"arguments": ["to"]}}, r"trust\.arguments must be an object"),
    ({"command": "a", "trust": {"arguments": {"a.b": "x"}}}, r"trust\.arguments\.a\.b must be one of recipient"),
    ({"command": "a", "trust": {"approval": "never"}}, "trust has no field 'approval'"),
    ({"command": "a", "toolTrust": ["read"]}, "toolTrust must be an object"),
    ({"command": "a", "toolTrust": {"read": {"risk": "${KEY}"}}}, r"toolTrust\.read\.risk must be one of"),
]


@pytest.mark.parametrize(("entry", "reason"), PROBLEMS, ids=[json.dumps(entry)[:50] for entry, _ in PROBLEMS])
def test_a_bad_entry_disables_only_itself_and_names_the_field(entry: object, reason: str) -> None:
    whole = {"mcpServers": {"bad": entry, "good": {"command": "srv"}}}
    bad, good = parse_config(json.dumps(whole), ENVIRON, HERE).configs
    assert good == ServerConfig("good", command="srv")
    with pytest.raises(ValueError, match=reason):
        raise ValueError(bad.problem)


@pytest.mark.parametrize("field", ["alwaysAllow", "autoApprove"])
def test_what_other_programs_never_ask_about_is_ignored_with_a_note(field: str) -> None:
    config = one({"command": "s", field: ["read"]})
    assert (config.trust, config.tool_trust, config.problem) == (None, {}, "")
    assert config.notes == (
        f"{field} is ignored: declare these tools in toolTrust, or classify them in the setting tools.",
    )
    assert one({"command": "s", field: []}).notes == ()


TEXTS = {
    "comments": '// hi\n{"mcpServers": /* all */ {"x": {"command": "srv"}}} // end',
    "trailing commas": '{"mcpServers": {"x": {"command": "srv",},\n},\n}',
    "a comma, then a comment": '{"mcpServers": {"x": {"command": "srv", // this\n}}}',
    "a byte order mark": '\ufeff{"mcpServers": {"x": {"command": "srv"}}}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_json_as_people_write_it(text: str) -> None:
    assert parse_config(text, {}, HERE).configs == (ServerConfig("x", command="srv"),)


def test_what_looks_like_a_comment_in_a_text_is_none() -> None:
    args = ["http://a.test//b", "/* c */", 'say "// no"', ",]", "\\"]
    assert one({"command": "s", "args": args}).args == tuple(args)


FILES = {
    "nothing": ("", ""),
    "an empty object": ("{}", ""),
    "not JSON": ('{"mcpServers": {\n"x": oops}}', "line 2"),
    "a list": ("[]", "write"),
    "no servers": ('{"theme": "dark"}', "mcpServers"),
    "servers as a list": ('{"mcpServers": []}', "must be an object"),
    "too deep": ('{"mcpServers":' + "[" * 100_000, "deeply|line 1"),
}


@pytest.mark.parametrize(("text", "problem"), FILES.values(), ids=FILES)
def test_a_file_that_says_nothing_says_why(text: str, problem: str) -> None:
    configured = parse_config(text, {}, HERE)
    assert configured.configs == ()
    with pytest.raises(ValueError, match=problem or "^$"):
        raise ValueError(configured.problem)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read" in read_config(tmp_path / "none.json", {}).problem
    (tmp_path / "latin.json").write_bytes(b'{"\xe4": 1}')
    assert "not UTF-8" in read_config(tmp_path / "latin.json", {}).problem
    (tmp_path / "big.json").write_bytes(b" " * (2 << 20))
    assert "larger" in read_config(tmp_path / "big.json", {}).problem


def test_what_came_over_http_sees_neither_variables_nor_files() -> None:
    for entry in (
        {"url": "https://a.test/${KEY}"},
        {"url": "https://a.test/", "headers": {"A": "${env:KEY:-x}"}},
        {"command": "s", "envFile": "/etc/passwd"},
        {"command": "s", "cwd": "/"},
        {"url": "https://a.test/", "trust": {}},
        {"url": "https://a.test/", "toolTrust": {"a": True}},
    ):
        assert config_of("x", entry, Variables(None, Path()), from_api=True).problem


def test_an_env_file_is_read_beside_the_list_and_the_entry_wins(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# keys\nexport A=1\nB='two words'\nC=3 # three\nnonsense\nD=\"x # y\"\n")
    assert read_env_file((tmp_path / ".env").read_text()) == {"A": "1", "B": "two words", "C": "3", "D": "x # y"}
    text = json.dumps({"servers": {"x": {"command": "s", "envFile": ".env", "env": {"A": "mine"}}}})
    [config] = parse_config(text, {}, tmp_path / "mcp.json").configs
    assert config.env == {"A": "mine", "B": "two words", "C": "3", "D": "x # y"}


def test_changing_the_file_keeps_what_is_not_understood(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    kept = {"theme": "dark", "mcpServers": {"a": {"command": "x", "disabled": False, "secretSauce": [1, {"b": None}]}}}
    path.write_text(json.dumps(kept))
    path.chmod(0o640)
    assert put_entry(path, "b", {"command": "y"}) == ""
    set_enabled(path, "a", enabled=False)
    assert json.loads(path.read_text()) == {
        "theme": "dark",
        "mcpServers": {"a": {"command": "x", "secretSauce": [1, {"b": None}], "disabled": True}, "b": {"command": "y"}},
    }
    set_enabled(path, "a", enabled=True)
    drop_entry(path, "b")
    assert entries_of(path) == {"a": {"command": "x", "secretSauce": [1, {"b": None}]}}
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["mcp.json"], "nothing is left of the writing"


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    put_entry(tmp_path / "mcp.json", "b", {"command": "y"})
    assert (tmp_path / "mcp.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "mcp.json").read_text()) == {"mcpServers": {"b": {"command": "y"}}}


def test_comments_are_kept_in_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"servers": {} /* mine */}')
    assert "mcp.json.bak" in put_entry(path, "b", {"command": "y"})
    assert "mine" in (tmp_path / "mcp.json.bak").read_text()
    assert json.loads(path.read_text()) == {"servers": {"b": {"command": "y"}}}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "mcp.json").symlink_to("real.json")
    put_entry(tmp_path / "mcp.json", "b", {"command": "y"})
    assert (tmp_path / "mcp.json").is_symlink()
    assert "command" in (tmp_path / "real.json").read_text()


def test_a_file_that_is_broken_is_not_made_worse(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {oops')
    with pytest.raises(FileUnchanged, match="Mend it"):
        put_entry(path, "b", {"command": "y"})
    assert path.read_text() == '{"mcpServers": {oops'
    path.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    with pytest.raises(FileUnchanged, match="already"):
        put_entry(path, "a", {"command": "y"})
    with pytest.raises(KeyError):
        drop_entry(path, "b")
