"""Forms of MCP servers that ask for secrets, by whatever words and look; and those that do not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tools.mcp.secret_fields import mentions_secret, requests_secret

TEXT = {"type": "string"}


def form(name: str = "answer", **field: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: TEXT | field}}


NAMES = (
    *("password", "userPassword", "PASSPHRASE", "api_key", "apiKey", "ssh-key", "accessToken", "pin", "PIN", "cardPin"),
    *("otp", "totpCode", "2fa_code", "mfa", "cvv", "cardNumber", "card_no", "client_secret", "recovery_phrase"),
    *("seedPhrase", "sessionId", "passcode", "benutzerpasswort", "kreditkarte", "pass", "pwd", "verification-code"),
)
WORDS = (
    "One-time code",
    "The 6 digit code from your authenticator app",
    "Enter the code we sent to your phone",
    "Passphrase of the key",
    "Two-factor code",
    "Credit card number",
    "Mother's maiden name",
    "Ihr Kennwort",
    "Bestätigungscode aus der SMS",
    "TAN",
    "Geheimzahl der Karte",
    "Mot de passe",
    "Code de vérification",
    "Numéro de carte",
    "Contraseña",
    "Código de verificación",
    "Número de la tarjeta de crédito",
    "Codice di sicurezza",
    "Palavra-passe",
    "Senha",
    "Wachtwoord",
    "Lösenord",
    "Hasło",
    "Jelszó",
    "Şifre",
    "Пароль",
    "Код подтверждения",
    "ПИН-код",
    "Κωδικός πρόσβασης",
    "كلمة المرور",
    "סיסמה",
    "पासवर्ड",
    "รหัสผ่าน",
    "密码",
    "请输入验证码",
    "信用卡卡号",
    "パスワード",
    "暗証番号",
    "비밀번호",
    "인증 코드",
    "Mật khẩu",
    "Kata sandi",
    "ＰＡＳＳＷＯＲＤ",
    "p\u00e1ssword",
)
LOOKS: tuple[dict[str, Any], ...] = (
    {"format": "password"},
    {"format": "one-time-code", "title": "Code"},
    {"writeOnly": True},
    {"x-secret": True, "enum": ["a"]},
    {"pattern": "^[0-9]{6}$"},
    {"pattern": r"^\d{6}$"},
    {"pattern": r"\d{6,8}"},
    {"pattern": r"^\d\d\d\d\d\d$"},
    {"pattern": r"^\d{16}$", "title": "Number"},
    {"pattern": r"^[0-9]{13,19}$"},
)
HARMLESS = (
    form("colour", description="Which colour?", enum=["red", "blue"]),
    form("city", title="Where to?"),
    form("compass", description="Where does it point?"),
    form("spin", title="Left or right"),
    form("opinion", title="What do you think?"),
    form("shipping", title="Shipping address"),
    form("secretary", title="Name of your secretary"),
    form("zip", pattern=r"^\d{5}$"),
    form("year", pattern=r"^[0-9]{4}$"),
    form("phone", pattern=r"^\d{10}$"),
    form("birthday", format="date"),
    form("email", format="email"),
    form("site", format="uri"),
    form("forget", type="boolean", title="Forget the password?"),
    form("login", title="How to sign in", enum=["password", "key"]),
    form("login", oneOf=[{"const": "password", "title": "With a password"}]),
    form("keyboard", title="Layout"),
    form("number", description="A favourite (do not give us your phone number, pin, or other sensitive info)"),
    form("discount", title="Discount in percent", type="integer"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_by_its_name(name: str) -> None:
    assert requests_secret("Please.", form(name))


@pytest.mark.parametrize("words", WORDS)
def test_a_secret_by_words_in_many_languages(words: str) -> None:
    for key in ("title", "description"):
        assert requests_secret("Please.", form(**{key: words})), key
    assert requests_secret(words, form()), "above a field that says nothing"
    assert requests_secret(words, {}) and mentions_secret(words)


@pytest.mark.parametrize("field", LOOKS, ids=str)
def test_a_secret_by_its_look(field: dict[str, Any]) -> None:
    assert requests_secret("Please.", form(**field))


@pytest.mark.parametrize("schema", HARMLESS, ids=str)
def test_what_asks_for_no_secret(schema: dict[str, Any]) -> None:
    assert not requests_secret("Please choose.", schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "object", "properties": {"password": TEXT}}}},
        {"allOf": [{"properties": {"b": {"title": "PIN"}}}]},
        {"properties": {"a": {"type": "array", "items": {"properties": {"otp": TEXT}}}}},
        {"patternProperties": {"^token$": TEXT}},
        {"$defs": {"x": {"properties": {"y": {"format": "password"}}}}},
        {"properties": {"password": True}},
        {"properties": {"a": {"description": "x" * 30_000}}},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_a_secret_lies_nowhere_in_a_form(schema: dict[str, Any]) -> None:
    assert requests_secret("Please.", schema)


def test_a_choice_is_no_secret_whatever_the_question_says() -> None:
    assert not requests_secret("Reset the password?", form("sure", type="boolean"))
    assert requests_secret("Reset the password?", form("answer"))


def test_reading_a_form_takes_no_time() -> None:
    deep: dict[str, Any] = form()
    for _ in range(60):
        deep = {"properties": {"a": deep}}
    began = time.process_time()
    for text in ("code " * 3_000, "p" * 15_000, "\u0301" * 15_000):
        requests_secret(text, deep)
    assert time.process_time() - began < 5
