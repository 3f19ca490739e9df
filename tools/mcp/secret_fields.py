"""Detection of form fields that ask for secrets, by name, text or format.

A form passes through the server and the log, so it must not ask for passwords. Names, titles,
descriptions and the server's own sentence are read, in the languages of the tables below; a field that nothing can be
typed into (a choice, yes or no) asks for no secret.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tools.base.patterns import lazy_pattern

# In these tables words are folded: small letters without accents, one space between words.
WHOLE_WORDS = """
    pin pins nip tan mtan otp totp mfa 2fa cvv cvc cvv2 cvc2 cid csc pwd pass passwd passe jwt iban ssn nip
    token tokens secret secrets segreto secreto segredo geheim cookie cookies bearer
    senha senhas heslo hasla haslo parola parole sifre salasana jelszo mnemonic
    пин пароль пароля пароли паролю секрет токен pin-код κωδικος pinkod pincode
"""
# Long enough to be looked for within compounds, as German, Dutch and Finnish have them, and without spaces.
PARTS = """
    password|passcode|passphrase|pass phrase|pass word|pass code|credential|secret key|secret code|secret word
    api key|apikey|access key|private key|ssh key|signing key|encryption key|master key|security key|auth key
    session id|sessionid|one time code|one time pass|onetime code|onetime pass|one time key|one time pin
    verification code|security code|authentication code|authenticator code|auth code|confirmation code|login code
    access code|sms code|backup code|recovery code|recovery phrase|recovery key|seed phrase|seed words
    two factor|2 factor|two step code|multi factor|digit code|code we sent|code sent to|code from your
    card number|card no|cardnumber|credit card|creditcard|debit card|bank card|account number|social security
    security question|maiden name|pin code|pin number
    passwort|kennwort|geheimzahl|zugangscode|zugangsdaten|einmalcode|einmalpass|einmalkennwort|bestatigungscode
    sicherheitscode|verifizierungscode|prufziffer|kartennummer|kreditkarte|kontonummer|schlusselwort|losungswort
    wiederherstellungscode|geheimer schlussel|privater schlussel
    mot de passe|code secret|code de verification|code de securite|code de confirmation|code a usage unique
    code d acces|code recu|numero de carte|carte bancaire|carte de credit|cle api|cle privee|cle secrete|identifiants
    phrase secrete|cryptogramme|jeton d acces
    contrasena|codigo de verificacion|codigo de seguridad|codigo de acceso|codigo de un solo uso|codigo de confirmacion
    numero de tarjeta|tarjeta de credito|clave de acceso|clave secreta|clave api|clave privada|clave de api
    frase semilla|credenciales|llave privada
    codice di verifica|codice di sicurezza|codice segreto|codice di accesso|codice monouso|numero di carta
    numero della carta|carta di credito|chiave api|chiave privata|chiave segreta|credenziali|frase segreta
    palavra passe|codigo de verificacao|codigo de seguranca|codigo de acesso|numero do cartao|cartao de credito
    chave de api|chave api|chave privada|chave secreta|credenciais|frase de recuperacao
    wachtwoord|wachtzin|toegangscode|verificatiecode|beveiligingscode|bevestigingscode|kaartnummer|inloggegevens
    eenmalige code|api sleutel|geheime sleutel|losenord|adgangskode|kodeord|passord|engangskod|sakerhetskod|kortnummer
    verifieringskod|bekreftelseskode|kod weryfikacyjny|kod jednorazowy|numer karty|klucz api|overovaci kod
    jednorazovy kod|cislo karty|kertakayttokoodi|tunnusluku|kortin numero|ellenorzo kod|dogrulama kodu|kart numarasi
    cod de verificare|numarul cardului|mat khau|ma xac nhan|ma xac minh|kata sandi|kode verifikasi|nomor kartu
    пароль|код подтверждения|код из смс|код із смс|одноразовый код|код підтвердження|код проверки|пин код|пін код
    номер карты|номер картки|ключ api|api ключ|закрытый ключ|секретн|кодовое слово|συνθηματικ|κωδικος προσβασης
    كلمه المرور|كلمة المرور|كلمه السر|كلمة السر|رمز التحقق|الرمز السري|رقم البطاقة|رقم البطاقه|رمز عبور
    סיסמ|קוד אימות|קוד סודי|מספר כרטיס
    पासवर्ड|ओटीपी|รหัสผ่าน|รหัส otp
    密码|密碼|口令|验证码|驗證碼|校验码|动态码|密钥|密鑰|私钥|私鑰|令牌|卡号|卡號|信用卡|银行卡|助记词|助記詞
    パスワード|暗証番号|認証コード|確認コード|ワンタイム|秘密鍵|カード番号|トークン|合言葉|クレジットカード
    비밀번호|암호|인증번호|인증 번호|인증 코드|인증코드|카드 번호|카드번호|개인 키|개인키|토큰|일회용
"""
SECRET_FORMATS = lazy_pattern(r"pass|secret|otp|pin|token|credential|credit|card|key", re.IGNORECASE)
_MARKED = ("writeOnly", "x-secret", "x-sensitive", "sensitive", "secret")
_TEXTS = ("title", "description", "format", "placeholder", "examples", "$comment", "x-label", "label")
_HOLDERS = ("properties", "patternProperties", "$defs", "definitions")
_DIGITS = r"(?:\\d|\[0-9\]|[0-9])"
# 6 to 8 digits are codes, 12 to 19 are cards. Fewer may be a year or a postal code, 9 to 11 a phone number.
_CODE_PATTERN = lazy_pattern(rf"\^?\(?{_DIGITS}(?:\{{(?:[678]|1[2-9])(?:,(?:[678]|1[2-9]))?\}}|{_DIGITS}{{5,7}})\)?\$?")
_MOST_TEXT = 20_000  # characters of a form that are read; a longer one is a secret's
_UNSPLIT = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe"})


def folded(text: str) -> str:
    """Small letters without accents; camelCase and snake_case are words."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    plain = unicodedata.normalize("NFKD", apart.casefold().translate(_UNSPLIT))
    kept = "".join(one for one in plain if not unicodedata.combining(one))
    return re.sub(r"[\s\W_]+", " ", unicodedata.normalize("NFC", kept)).strip()


# The tables are read at the first form: few servers see one, and reading them takes as long as all else here.
@cache
def _parts() -> re.Pattern[str]:
    words = (folded(word) for line in PARTS.strip().splitlines() for word in line.split("|"))
    return re.compile("|".join(sorted({re.escape(word) for word in words if word}, key=len, reverse=True)))


@cache
def _whole_words() -> frozenset[str]:
    return frozenset(folded(word) for word in WHOLE_WORDS.split())


# "(do not give us your PIN)" asks for none, as the protocol's own example server has it. Where the same sentence goes
# on with an exception, it counts.
_WARNING = lazy_pattern(
    r"(?i)\b(?:do not|don't|never) (?:give|enter|provide|include|share|send)\b"
    r"(?![^.;:!?()\n]*\b(?:but|except|unless|only|other than|until|here)\b)[^.;:!?()\n]*"
)


def mentions_secret(text: str) -> bool:
    """Return whether the text mentions a secret."""
    words = folded(text)
    return bool(_parts().search(words)) or not _whole_words().isdisjoint(words.split())


def requests_secret(message: str, schema: Mapping[str, Any]) -> bool:
    """Return whether a form, with its message, asks for a secret."""
    fields = list(_fields(schema))
    if len(message) + len(str(schema)) > _MOST_TEXT:
        return True
    if any(_is_secret(name, field) for name, field in fields):
        return True
    typed = any(_is_typed(field) for _, field in fields) or not fields
    return typed and mentions_secret(message)


def _is_secret(name: str, field: Any) -> bool:
    if not isinstance(field, dict):
        return mentions_secret(name)
    if any(field.get(mark) is True for mark in _MARKED):
        return True
    if not _is_typed(field):
        return False
    kind, pattern = str(field.get("format", "")), str(field.get("pattern", ""))
    if SECRET_FORMATS.search(kind) or _CODE_PATTERN.fullmatch(pattern.strip()):
        return True
    texts = (str(field.get(key, "")) for key in _TEXTS)
    return mentions_secret(name) or any(mentions_secret(_WARNING.sub("", text)) for text in texts)


def _is_typed(field: Any) -> bool:
    """Return whether the field takes typed text, instead of a choice."""
    if not isinstance(field, dict):
        return True
    choices = field.get("oneOf") or field.get("anyOf") or ()
    chosen = bool(choices) and all(isinstance(one, dict) and "const" in one for one in choices)
    return not (chosen or "enum" in field or "const" in field or field.get("type") == "boolean")


def _fields(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield every field, at any depth."""
    level = [schema]
    while level:
        node = level.pop()
        if isinstance(node, list):
            level += node
        elif isinstance(node, dict):
            for key, value in node.items():
                if key in _HOLDERS and isinstance(value, dict):
                    yield from value.items()
                level.append(value)
