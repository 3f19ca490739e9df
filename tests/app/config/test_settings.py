"""Settings: who wins, where a value comes from, and what a wrong one is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.config.settings import NAMES, PATHS, WORD_LISTS, Settings
from app.models.providers import PROVIDERS, ProviderKind
from tests.support.settings import load, problems


def test_without_anything_the_defaults_are_in_force(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    settings = loaded.settings
    assert (settings.host, settings.port, settings.max_rounds) == ("127.0.0.1", 8724, 20)
    assert settings.data_dir == Path("/home/someone/.local/share/dragoman")
    assert settings.workspace == tmp_path / "workspace"
    assert set(loaded.origins) == set(NAMES) == set(Settings.model_fields)
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.config_file is None


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    toml = "port = 1001\nmax_rounds = 11\nhost = 'localhost'"
    loaded = load(
        tmp_path, {"port": "1003", "model": None}, {"DRAGOMAN_PORT": "1002", "DRAGOMAN_MAX_ROUNDS": "12"}, toml
    )
    settings, origins = loaded.settings, loaded.origins
    assert (settings.port, origins["port"]) == (1003, "flag --port")
    assert (settings.max_rounds, origins["max_rounds"]) == (12, "environment DRAGOMAN_MAX_ROUNDS")
    assert (settings.host, origins["host"]) == ("localhost", f"file {tmp_path / 'dragoman.toml'}")
    assert (settings.model, origins["model"]) == (None, "default")
    assert loaded.config_file == tmp_path / "dragoman.toml"


@pytest.mark.parametrize("by_flag", [True, False])
def test_the_file_can_be_named(tmp_path: Path, by_flag: bool) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "mine.toml").write_text("workspace = 'work'\ndata_dir = '~/data'")
    named = "conf/mine.toml"
    loaded = load(tmp_path, {"config": named}) if by_flag else load(tmp_path, environ={"DRAGOMAN_CONFIG": named})
    assert loaded.settings.workspace == tmp_path / "conf" / "work", "a path in a file counts from the file"
    assert loaded.settings.data_dir == Path("/home/someone/data")


def test_paths_in_flags_and_variables_count_from_here(tmp_path: Path) -> None:
    settings = load(tmp_path, {"workspace": "w"}, {"DRAGOMAN_DATA_DIR": "d"}).settings
    assert (settings.workspace, settings.data_dir) == (tmp_path / "w", tmp_path / "d")


@pytest.mark.parametrize(
    ("xdg", "expected"), [("/data", "/data/dragoman"), ("rel", "/home/someone/.local/share/dragoman")]
)
def test_the_data_folder_follows_xdg(tmp_path: Path, xdg: str, expected: str) -> None:
    assert load(tmp_path, environ={"XDG_DATA_HOME": xdg}).settings.data_dir == Path(expected)


WRONG = [
    ("max_rounds", "0", "a whole number from 1 to 200"),
    ("max_rounds", "201", "a whole number from 1 to 200"),
    ("max_rounds", "many", "a whole number from 1 to 200"),
    ("port", "65536", "a whole number from 0 to 65535"),
    ("max_message_bytes", "1.5", "a whole number from 1024"),
    ("tool_calls", "mixed", "auto, native, tagged or fenced"),
    ("unsafe_no_sandbox", "perhaps", "true or false"),
    ("tool_time_limit_s", "nan", "seconds, from 1"),
    ("model_inactivity_s", "inf", "seconds, from 1"),
    ("model_temperature", "-1", "a number from 0 to 2"),
    ("model_url", "localhost:8080", "http://127.0.0.1:8080/v1"),
    ("model_url", "ftp://host/v1", "http://127.0.0.1:8080/v1"),
    ("model_url", "http://[::1/v1", "http://127.0.0.1:8080/v1"),
    ("model_url", "http://h:99999/v1", "http://127.0.0.1:8080/v1"),
    ("log_level", "loud", "critical, error"),
    ("host", " ", "a host"),
    ("workspace", "a\x1b[2Jb", "a path"),
    ("model", "\udc80", "a name"),
    ("private_hosts", "wiki.example,http://10.0.0.7/", "names and addresses"),
    ("max_message_bytes", "1", "a whole number from 1024"),
    ("approval_user", "auto", "sandboxed, ask, deny"),
    ("approval_guest", "auto", "sandboxed, ask, deny"),
    ("approval_admin", "always", "sandboxed, ask, auto, deny"),
]


@pytest.mark.parametrize(("name", "value", "allowed"), WRONG)
def test_a_wrong_value_is_named_with_its_origin_and_what_is_allowed(
    tmp_path: Path, name: str, value: str, allowed: str
) -> None:
    variable = f"DRAGOMAN_{name.upper()}"
    told = problems(tmp_path, environ={variable: value})
    shown = ascii(value)
    assert told.startswith(f"{name} (environment {variable}) is {shown}. Allowed: ")
    assert allowed in told
    assert told.isascii() and "\x1b" not in told
    assert f"{name} (flag --{name.replace('_', '-')}) is" in problems(tmp_path, {name: value})


@pytest.mark.parametrize(
    ("toml", "where"),
    [
        (
            "tools = [{match = 'a'}, {match = 'b', risk = 'very'}]",
            "wrong is entry 2, its 'risk' (Input should be 'read', ",
        ),
        ("tools = [{match = 'a', aproval = 'never'}]", "wrong is entry 1, its 'aproval' (Extra inputs are"),
        ("tools = [{match = ''}]", "wrong is entry 1, its 'match' (String should have"),
        ("allowed_commands = ['ls', 3]", "wrong is entry 2 (Input should be a valid string). Allowed: "),
    ],
)
def test_a_wrong_entry_of_a_list_is_pointed_at(tmp_path: Path, toml: str, where: str) -> None:
    (tmp_path / "dragoman.toml").write_text(toml)
    assert f"; {where}" in problems(tmp_path)


@pytest.mark.parametrize(
    "toml",
    [
        "port = true",
        "keep_days = true",
        "audit_days = true",
        "max_follow_ups = true",
        "job_time_limit_s = true",
        "port = 'x'",
        "port = [1]",
        "port = 1979-05-27",
        "workspace = 3",
        "port = ''",
    ],
)
def test_a_wrong_type_in_the_file_is_named(tmp_path: Path, toml: str) -> None:
    name = toml.split()[0]
    assert f"{name} (file {tmp_path / 'dragoman.toml'}) is " in problems(tmp_path, toml=toml)


# A served model is not named by a URL of the settings: `dragoman model serve` makes an endpoint of it.
@pytest.mark.parametrize("kind", [one for one in PROVIDERS if not one.internal], ids=lambda kind: kind.name)
def test_every_kind_of_provider_can_be_named(tmp_path: Path, kind: ProviderKind) -> None:
    for scheme in kind.schemes:
        url = f"{scheme}://host/v1" if scheme.startswith("http") else f"{scheme}:"
        assert load(tmp_path, environ={"DRAGOMAN_MODEL_URL": url}).settings.model_url == url


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    told = problems(tmp_path, {"port": "x"}, {"DRAGOMAN_MAX_ROUNDS": "0", "DRAGOMAN_MODLE": "m"}, "hots = 'h'")
    assert all(word in told for word in ("--port", "DRAGOMAN_MAX_ROUNDS", "DRAGOMAN_MODLE", "hots"))
    assert len(told.splitlines()) == 4


@pytest.mark.parametrize(
    ("environ", "toml", "expected"),
    [
        (
            {"DRAGOMAN_MODLE_URL": "x"},
            "",
            "no environment variable DRAGOMAN_MODLE_URL. Did you mean DRAGOMAN_MODEL_URL?",
        ),
        ({"DRAGOMAN_ZZZZZ": "x"}, "", "no environment variable DRAGOMAN_ZZZZZ. `dragoman serve --help` lists"),
        ({}, "model-url = 'http://h/v1'", "Did you mean model_url?"),
        ({}, "[server]\nport = 1", "There is no key server in"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    tmp_path: Path, environ: dict[str, str], toml: str, expected: str
) -> None:
    assert expected in problems(tmp_path, environ=environ, toml=toml)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"port = 1\nhost = = 2\n", "line 2"),
        (b"port = 1\n\nmodel = '\xff'\n", "at line 3"),
        (b"a = " + b"[" * 50_000, "dragoman.toml"),
        (b"#" * (1 << 20) + b"#", "larger than"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, written: bytes, expected: str) -> None:
    (tmp_path / "dragoman.toml").write_bytes(written)
    assert expected in problems(tmp_path)


def test_a_named_file_must_be_readable(tmp_path: Path) -> None:
    assert "No such file" in problems(tmp_path, {"config": "none.toml"})
    assert "directory" in problems(tmp_path, {"config": str(tmp_path)})


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    loaded = load(tmp_path, environ={"DRAGOMAN_MODEL_KEY": " sk-hidden "})
    assert "sk-hidden" not in repr(loaded)
    assert loaded.settings.model_key is not None and loaded.settings.model_key.get_secret_value() == "sk-hidden"
    for environ in ({"DRAGOMAN_MODEL_KEY": "sk hidden"}, {"DRAGOMAN_MODEL_URL": "http://me:hidden@host/v1"}):
        assert "hidden" not in problems(tmp_path, environ=environ)


def test_empty_variables_and_those_of_kubernetes_are_not_ours(tmp_path: Path) -> None:
    environ = {
        "DRAGOMAN_MODEL": "",
        "DRAGOMAN_PORT": "tcp://10.0.0.1:8724",
        "DRAGOMAN_SERVICE_HOST": "10.0.0.1",
        "DRAGOMAN_PORT_8724_TCP_ADDR": "10.0.0.1",
        "DRAGOMAN_TOKEN": "t",
    }
    assert set(load(tmp_path, environ=environ).origins.values()) == {"default"}


@pytest.mark.parametrize("name", WORD_LISTS)
def test_an_empty_list_of_words_is_a_list_with_nothing_in_it(tmp_path: Path, name: str) -> None:
    variable = f"DRAGOMAN_{name.upper()}"
    by_variable, by_flag = load(tmp_path, environ={variable: ""}), load(tmp_path, flags={name: ""})
    assert getattr(by_variable.settings, name) == getattr(by_flag.settings, name) == ()
    assert by_variable.origins[name] == f"environment {variable}"


def test_how_a_value_is_read_follows_from_the_type_of_its_field(tmp_path: Path) -> None:
    assert {"data_dir", "workspace", "mcp_config", "tokenizer"} <= PATHS
    assert {"allowed_commands", "private_hosts", "fallback", "trusted_proxies"} <= set(WORD_LISTS)
    assert load(tmp_path, environ={"DRAGOMAN_TRANSPORT": "LEAN"}).settings.transport == "lean"


def test_settings_cannot_change(tmp_path: Path) -> None:
    settings = load(tmp_path).settings
    with pytest.raises(ValidationError):
        settings.port = 1


def test_every_setting_explains_itself() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert isinstance(field.json_schema_extra, dict) and field.json_schema_extra["allowed"], name


def test_loading_settings_stays_off_the_slow_libraries() -> None:
    slow = {"pydantic_settings", "mcp", "httpx2", "starlette", "asyncio"}
    code = "import sys, app.config.settings; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True).stdout
    assert not slow & set(loaded.split())
