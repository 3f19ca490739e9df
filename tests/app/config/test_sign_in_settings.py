"""The tables [oidc] and [trusted_header]: what is wrong in them is named, and no secret is repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.config.settings import load_settings
from app.config.sources import SettingsError

OIDC = 'public_url = "https://a.example"\n[oidc]\nissuer = "https://sso.example"\nclient_id = "x"\n'
HEADER = 'public_url = "https://a.example"\n[trusted_header]\ndefault_role = "user"\n'
ADMINS = 'default_role = "admin"\n'
WRONG = {
    OIDC: "oidc lets in no person: give roles, or a default_role.",
    OIDC.replace("https://sso", "http://sso") + ADMINS: "must be https; http is for a provider on this machine",
    OIDC.replace('"https://a.example"', '"http://a.example"') + ADMINS: "oidc needs a public_url with https",
    OIDC.partition("\n")[2] + ADMINS: "oidc needs public_url",
    f"sign_in_days = 0\n{OIDC}{ADMINS}": "oidc needs sign_in_days above 0",
    f'{OIDC}{ADMINS}client_secret = "hunter2-hunter2"\n': "is no source: write env:NAME",
    f'{OIDC}{ADMINS}client_secret = ""\n': "is no source",
    f'{OIDC}default_role = "root"\n': "default_role",
    f'{OIDC}roles = {{ staff = "root" }}\n': "roles",
    HEADER: "from",
    f"{HEADER}from = []\n": "from",
    f'{HEADER}from = ["proxy.example"]\n': "is not a valid IPv4 network",
    f'{HEADER}from = ["10.0.0.1"]\nuser = "Remote_User"\n': "user",
    f'{HEADER.partition(chr(10))[2]}from = ["10.0.0.1"]\n': "trusted_header needs public_url",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "dragoman.toml").write_text(text)
    with pytest.raises(SettingsError) as wrong:
        load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path)
    assert WRONG[text] in str(wrong.value) and "hunter2" not in str(wrong.value)


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    proxied = '[trusted_header]\nfrom = ["10.0.0.0/8", "::1"]\nroles = { staff = "guest" }\n'
    (tmp_path / "dragoman.toml").write_text(
        f'{OIDC}{ADMINS}domains = ["Example.org"]\nclient_secret = "credential:oidc"\n{proxied}'
    )
    settings = load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path).settings
    assert settings.vouched and settings.oidc and settings.trusted_header
    assert settings.trusted_header.user == "remote-user" and settings.oidc.hours == 12
    assert settings.oidc.domains == ("example.org",), "addresses are compared in lower case"
