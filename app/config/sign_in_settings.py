"""Settings of sign-ins that others vouch for: an OpenID provider, and a proxy in front. In the file only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from app.config.secret_spec import SOURCES, SecretSpec
from app.core.settings_fields import setting, web_address
from tools.base.rights import Role

SIGN_IN_SETTINGS = frozenset({"oidc", "trusted_header"})
Word = Annotated[str, Field(min_length=1, max_length=256)]
GivenRole = Literal["guest", "user", "admin"]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$"), AfterValidator(str.lower)]


def is_loopback_url(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _issuer(value: str) -> str:
    """Check an issuer, which is compared character by character. Raises ValueError."""
    web_address(value)
    if not value.startswith("https://") and not is_loopback_url(value):
        raise ValueError("must be https; http is for a provider on this machine")
    return value


def _source(value: str) -> str:
    """Check the source of a secret. Raises ValueError."""
    try:
        assert SecretSpec(source=value).source
    except (AssertionError, ValidationError):  # the text may be the secret itself
        raise ValueError(f"is no source: write {SOURCES}") from None
    return value


class RolesSpec(BaseModel, defer_build=True):
    """The roles of people by their groups; the highest counts. Without a `default_role` all others are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    roles: Mapping[Word, GivenRole] = Field({}, max_length=256)
    default_role: GivenRole | None = None

    def role_of(self, groups: list[str]) -> Role | None:
        found = [Role(self.roles[one]) for one in groups if one in self.roles]
        return max(found, key=lambda role: role.rank, default=Role(self.default_role) if self.default_role else None)


class OidcSpec(RolesSpec):
    """The OpenID provider. `client_secret` is the source of one, as of `dragoman secret`; a public client has none."""

    issuer: Annotated[str, AfterValidator(_issuer), Field(max_length=1024)]
    client_id: Word
    client_secret: Annotated[str, AfterValidator(_source)] | None = None
    label: Annotated[str, Field(min_length=1, max_length=40)] = "OpenID"
    scopes: Annotated[tuple[Word, ...], Field(max_length=32)] = ("profile", "email")  # beside openid
    name_claim: Word = "preferred_username"
    role_claim: Word = "groups"
    domains: Annotated[tuple[Annotated[Word, AfterValidator(str.lower)], ...], Field(max_length=64)] = ()
    hours: int = Field(12, ge=1, le=8760)


class TrustedHeaderSpec(RolesSpec):
    """The headers in which a proxy names the person, and the addresses (`from`) of the proxies that may."""

    user: HeaderName = "remote-user"
    groups: HeaderName | None = None
    proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], Field(alias="from", min_length=1)]


class SignInSettings(BaseModel, defer_build=True):
    """Sign-ins that others vouch for."""

    oidc: OidcSpec | None = setting(
        None,
        "OpenID provider at which people sign in; in the file only",
        'a table such as {issuer = "https://sso.example.org", client_id = "dragoman", client_secret = '
        '"env:OIDC_SECRET", roles = {staff = "user"}}, with label, scopes, name_claim, role_claim, default_role, '
        "domains or hours",
    )
    trusted_header: TrustedHeaderSpec | None = setting(
        None,
        "header in which a proxy names the person; in the file only",
        'a table such as {user = "Remote-User", from = ["10.0.0.2"], default_role = "user"}, with groups or roles',
    )

    @property
    def vouched(self) -> bool:
        """True if people come in without a token of this server."""
        return bool(self.oidc or self.trusted_header)


def sign_in_problems(settings: SignInSettings, public_url: str | None, sign_in_days: int) -> Iterator[str]:
    """Contradictions between these settings, a sentence each."""
    for name in sorted(SIGN_IN_SETTINGS):
        if (spec := getattr(settings, name)) and not public_url:
            yield f"{name} needs public_url, the address at which people reach this server."
        if spec and not spec.roles and not spec.default_role:
            yield f"{name} lets in no person: give roles, or a default_role."
    if settings.oidc and public_url and not public_url.startswith("https://") and not is_loopback_url(public_url):
        yield "oidc needs a public_url with https: codes and cookies must not travel in the clear."
    if settings.oidc and sign_in_days == 0:
        yield "oidc needs sign_in_days above 0, because its people have no token."
