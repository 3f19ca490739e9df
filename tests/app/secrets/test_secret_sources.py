"""The values of secrets: encrypted with the key file, or taken from their source; and what cannot be one."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.config.secret_spec import SecretSpec
from app.redaction.redactor import MARK, Redactor
from app.secrets.library import SecretExists, Secrets, UnknownSecret
from app.secrets.sources import MOST_VALUE, SecretSources, SecretUnavailable, UnfitSecret
from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.people.secrets import SecretRemoved, SecretRow
from tests.support.settings import load
from tools.sandbox.network.injection import Origin

pytestmark = pytest.mark.anyio
VALUE = "ghp_Ab+/=0123456789 with\"quote'"
KEY = "k" * 20 + "0123456789abcdef"
SPEC = SecretSpec(env="GITHUB_TOKEN", hosts=("github.com",))


class Table:
    """The rows in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, SecretRow] = {}
        self.audit: list[AuditRow] = []

    async def secrets(self) -> list[SecretRow]:
        return list(self.rows.values())

    async def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case SecretRow():
                    self.rows[change.name] = change
                case SecretRemoved():
                    del self.rows[change.name]
                case AuditRow():
                    self.audit.append(change)


class Slow(Table):
    """One that lets others go on meanwhile, as a database does."""

    async def secrets(self) -> list[SecretRow]:
        rows = await super().secrets()
        await asyncio.sleep(0)
        return rows


def sources_in(folder: Path, **environ: str) -> SecretSources:
    return SecretSources(folder / "secrets.key", True, {"PATH": "/usr/bin:/bin", **environ}, folder / "work")


def secrets_in(folder: Path, table: Table | None = None, **environ: str) -> Secrets:
    return Secrets(table or Table(), sources_in(folder, **environ), Redactor())


async def test_a_value_is_stored_encrypted_and_read_with_the_key_file_alone(tmp_path: Path) -> None:
    table = Table()
    secrets = secrets_in(tmp_path, table)
    await secrets.add("github", SPEC, f"{VALUE}\n", "ann")
    assert await secrets.value("github") == VALUE
    row = table.rows["github"]
    assert row.sealed and VALUE.encode() not in row.sealed and VALUE not in str(table.audit)
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600
    assert await secrets_in(tmp_path, table).value("github") == VALUE, "of another server"
    assert [(one.action, one.decision, one.by) for one in table.audit] == [("secret github", "added", "ann")]


async def test_a_value_belongs_to_its_name_and_its_specification(tmp_path: Path) -> None:
    table = Table()
    secrets = secrets_in(tmp_path, table)
    await secrets.add("github", SPEC, VALUE, "ann")
    row = table.rows["github"]
    moved = SecretRow("other", row.spec, row.sealed, "mallory", 1.0)
    wider = SecretRow("github", row.spec.replace("github.com", "evil.com"), row.sealed, "mallory", 1.0)
    for changed in (moved, wider):
        table.rows = {changed.name: changed}
        with pytest.raises(SecretUnavailable, match="another key"):
            await secrets.value(changed.name)


WRONG = {
    "gone": (None, "cannot be read: No such file"),
    "another": ("x" * 40, "another key"),
    "short": ("short", "holds no key"),
    "empty": ("", "holds no key"),
    "no text": (b"\xff\xfe" * 40, "it is not text"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_key_file_that_is_wrong_says_what_to_do_and_makes_no_second_key(tmp_path: Path, case: str) -> None:
    table = Table()
    await secrets_in(tmp_path, table).add("github", SPEC, VALUE, "ann")
    file, (written, sentence) = tmp_path / "secrets.key", WRONG[case]
    file.unlink()
    if written is not None:
        file.write_bytes(written.encode() if isinstance(written, str) else written)
    secrets = secrets_in(tmp_path, table)
    await secrets.reload()  # as a server does that starts
    with pytest.raises(SecretUnavailable, match=sentence) as refused:
        await secrets.of_call(secrets.rights.all)
    assert "github" in str(refused.value) or case in ("short", "empty")
    with pytest.raises(SecretUnavailable):
        await secrets.add("second", SecretSpec(), VALUE, "ann")
    assert file.exists() == (written is not None) and "second" not in table.rows


async def test_the_first_key_encrypts_and_each_decrypts(tmp_path: Path) -> None:
    table, file = Table(), tmp_path / "secrets.key"
    file.write_text(f"{KEY}\n")
    await secrets_in(tmp_path, table).add("github", SPEC, VALUE, "ann")
    file.write_text(f"{KEY[::-1]}\n{KEY}\n")
    secrets = secrets_in(tmp_path, table)
    await secrets.add("github", SPEC, f"{VALUE}2", "ann", replaces=True)
    file.write_text(f"{KEY[::-1]}\n")
    assert await secrets_in(tmp_path, table).value("github") == f"{VALUE}2"


async def test_a_key_file_that_a_setting_names_is_not_made(tmp_path: Path) -> None:
    named = SecretSources(tmp_path / "shared.key", False, {}, tmp_path)
    with pytest.raises(SecretUnavailable, match="cannot be read"):
        await Secrets(Table(), named, Redactor()).add("github", SPEC, VALUE, "ann")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    settings = load(tmp_path, {"data_dir": str(tmp_path / "data"), "workspace": str(tmp_path / "work")}).settings
    environ = {"CREDENTIALS_DIRECTORY": str(credentials)}
    assert SecretSources.of(settings, environ).makes_key
    (credentials / "secrets.key").write_text(KEY)
    assert SecretSources.of(settings, environ).key_file == credentials / "secrets.key"
    own = settings.model_copy(update={"secrets_key_file": tmp_path / "shared.key"})
    assert SecretSources.of(own, environ).key_file == tmp_path / "shared.key"


# The source, and the value or what the refusal says.
FROM = {
    "env:TOKEN": VALUE,
    "env:OTHER": "missing from env:OTHER",
    "env:SHORT": "too short",
    "credential:token": VALUE,
    "credential:other": "missing from credential:other",
    "command:cat {folder}/credentials/token": VALUE,
    "command:printf 'first-of-lines\\nnotes'": "first-of-lines",
    "command:false": "its command ended with exit code 1",
    "command:no-such-program-here": "its command could not be started",
    "command:true": "value is empty",
    "command:yes": "answered more than",
    "command:relative/pass": "relative path",
    "command:{folder}/work/pass": "in the workspace",
    "command:sh -c 'echo $HOME$SECRET_OF_SERVER'": "/home/of/tests",
}


@pytest.mark.parametrize("source", FROM)
async def test_a_source_holds_the_value_and_the_database_holds_none(
    tmp_path: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("credentials", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "credentials" / "token").write_text(f"{VALUE}\n")
    table, environ = Table(), {"TOKEN": VALUE, "SHORT": "aaaaaaaaa", "HOME": "/home/of/tests"}
    environ |= {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"), "SECRET_OF_SERVER": VALUE}
    secrets = secrets_in(tmp_path, table, **environ)
    spec = SecretSpec(env="GITHUB_TOKEN", hosts=("github.com",), source=source.format(folder=tmp_path))
    await secrets.add("github", spec, "", "ann")
    assert table.rows["github"].sealed is None and not (tmp_path / "secrets.key").exists()
    wanted = FROM[source]
    try:
        [found] = await secrets.of_call(secrets.rights.all)
    except SecretUnavailable as refused:
        assert wanted in str(refused) and "github" in str(refused) and VALUE not in str(refused)
    else:
        assert found.value == wanted and found.variable == "GITHUB_TOKEN" and VALUE not in repr(found)
        assert secrets._redactor.redact(f"<{wanted}>") == f"<{MARK}>"
    assert VALUE not in caplog.text


async def test_a_command_is_asked_when_a_call_needs_it_and_then_for_a_while_not_again(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("")
    table = Table()
    command = f"sh -c 'echo asked >> {tmp_path}/count; echo {KEY}'"
    spec = SecretSpec(env="GITHUB_TOKEN", hosts=("github.com",), source=f"command:{command}")
    secrets = secrets_in(tmp_path, table)
    await secrets.add("github", spec, "", "ann")
    await secrets.reload()
    assert (tmp_path / "count").read_text() == "", "no call needed it"
    placeholders = {(await secrets.of_call(secrets.rights.all))[0].placeholder for _ in range(3)}
    assert len(placeholders) == 3, "each call has one of its own"
    assert (tmp_path / "count").read_text() == "asked\n"


async def test_a_secret_that_is_removed_or_replaced_meanwhile_goes_with_no_call(tmp_path: Path) -> None:
    table = Table()
    secrets, elsewhere = secrets_in(tmp_path, table), secrets_in(tmp_path, table)
    await secrets.add("github", SPEC, VALUE, "ann")
    shown = secrets.rights.all
    with pytest.raises(SecretExists, match="--replace"):
        await elsewhere.add("github", SPEC, VALUE, "ann")
    await elsewhere.add("github", SPEC, f"{VALUE}2", "ann", replaces=True)
    with pytest.raises(SecretUnavailable, match="removed or replaced"):
        await secrets.of_call(shown)
    [found] = await secrets.of_call(secrets.rights.all)
    assert found.value == f"{VALUE}2"
    assert secrets._redactor.redact(f"{VALUE}|{VALUE}2") == f"{MARK}|{MARK}", "both are hidden"
    await elsewhere.remove("github", "ann")
    with pytest.raises(SecretUnavailable, match="There is no secret 'github'"):
        await secrets.value("github")
    assert secrets.rights.all == ()
    with pytest.raises(UnknownSecret):
        await secrets.remove("github", "ann")
    assert [one.decision for one in table.audit] == ["added", "replaced", "removed"]


UNFIT_VALUES = ["", " \n", "sho-rt", "aaaaaaaaaaaaaaaa", "two\nlines-of-text", "ünïcödé-secret", "x0y1z2" * MOST_VALUE]


@pytest.mark.parametrize("value", UNFIT_VALUES)
async def test_a_value_that_cannot_be_hidden_or_sent_is_refused_and_not_repeated(tmp_path: Path, value: str) -> None:
    with pytest.raises(UnfitSecret) as refused:
        await secrets_in(tmp_path).add("github", SPEC, value, "ann")
    assert not value.strip() or value not in str(refused.value)


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "x" * 65, "é"])
async def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnfitSecret, match="A secret's name has"):
        await secrets_in(tmp_path).add(name, SPEC, VALUE, "ann")


async def test_secrets_that_are_added_at_a_time_are_checked_against_each_other(tmp_path: Path) -> None:
    secrets = secrets_in(tmp_path, Slow())
    adding = [secrets.add(name, SPEC, VALUE, "ann") for name in ("one", "two", "one")]
    done = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(one) for one in done] == [type(None), UnfitSecret, SecretExists], done


async def test_a_value_goes_to_the_hosts_of_the_secret_by_https_and_on_their_ports_alone(tmp_path: Path) -> None:
    secrets = secrets_in(tmp_path)
    await secrets.add("hub", SecretSpec(hosts=("hub.example", "http://local.example:8000")), VALUE, "ann")
    for to in (Origin("https", "hub.example", 443), Origin("http", "local.example", 8000)):
        assert await secrets.value("hub", to) == VALUE
    others = (("http", "hub.example", 80), ("https", "hub.example", 8443), ("https", "local.example", 8000))
    for other in others:
        with pytest.raises(SecretUnavailable, match="is not for http"):
            await secrets.value("hub", Origin(*other))


async def test_two_secrets_of_one_variable_would_hide_each_other(tmp_path: Path) -> None:
    secrets = secrets_in(tmp_path)
    await secrets.add("github", SPEC, VALUE, "ann")
    with pytest.raises(UnfitSecret, match="GITHUB_TOKEN is the variable of the secret github"):
        await secrets.add("second", SPEC, VALUE, "ann")


UNFIT = [
    *(
        {"env": name, "hosts": ["a.example"]}
        for name in ("PATH", "LD_TOKEN", "A-TOKEN", "PYTHON_KEY", "HTTP_PROXY", "")
    ),
    *({"hosts": [host]} for host in ("*", "*.com", "http://*", "a.example/x", "u@a.example", "https://", "a b", "")),
    {"hosts": ["a.example"] * 21},
    {"env": "A_TOKEN"},
    *(
        {"env": "A_TOKEN", "hosts": ["a.example"], "tools": tools}
        for tools in (["read_file"], [""], ["web_*"], ["bash", VALUE], [])
    ),
    *({"role": role} for role in ("guest", "root")),
    *({"paths": [path]} for path in ("repos", "get /x", "GET  /x", "GET /x y", "")),
    *({"source": source} for source in ("env:", "env:A B", "file:/etc/shadow", "command:", "command:'", "stored")),
    {"odd": 1},
]


@pytest.mark.parametrize("fields", UNFIT, ids=str)
def test_a_specification_that_cannot_be_used_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SecretSpec.model_validate(fields)


@pytest.mark.parametrize("offset", range(6))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
async def test_a_value_is_hidden_in_base64_wherever_it_begins(
    tmp_path: Path, offset: int, encode: Callable[[bytes], bytes]
) -> None:
    secrets = secrets_in(tmp_path)
    await secrets.add("github", SPEC, VALUE, "ann")
    coded = encode(b"u" * offset + VALUE.encode() + b":rest").decode()
    before, mark, behind = secrets._redactor.redact(coded).partition(MARK)
    assert mark and len(before) <= offset * 8 // 6 + 2 and len(behind) <= len(":rest") * 8 // 6 + 4, "all but its ends"
