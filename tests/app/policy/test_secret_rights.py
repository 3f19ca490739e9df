"""The secrets that a call goes with: by tool, role and host; and what counts as an approval of such a call."""

from __future__ import annotations

import pytest

from app.core.rules import ApprovalMode
from app.policy.gate import Gate
from app.policy.grants import Grant
from app.policy.permits.bounds import Bounds
from app.policy.permits.permissions import Permission
from app.policy.policy_context import PolicyContext
from app.policy.secret_rights import SecretRight, SecretRights, bound_to, in_words, prompt_line, without_secrets
from app.storage.principals import Principal
from tools.base.permit import fingerprint
from tools.base.rights import Role
from tools.catalogue import CATALOGUE
from tools.toolbox import Allow, Ask

TOOLS = {tool.name: tool for tool in CATALOGUE}
PEOPLE = {role: Principal("ann", role) for role in Role}
GITHUB = SecretRight("github", "GITHUB_TOKEN", ("github.com", "*.github.example"), ("bash",), Role.ADMIN, 100.0)
INDEX = SecretRight("index", "INDEX_TOKEN", ("pypi.example:8443",), ("bash", "python"), Role.USER, 200.0)
PLAIN = SecretRight("plain", "PLAIN_TOKEN", ("http://ci.example:80",), ("*",), Role.USER, 50.0)
WIDE = SecretRight("wide", "WIDE_TOKEN", ("*.b.example:8443",), ("bash",), Role.ADMIN, 50.0)
RIGHTS = SecretRights((GITHUB, INDEX, PLAIN, WIDE))
ALL = ["github", "index", "plain", "wide"]
ARGUMENT = {"bash": "command", "python": "code", "web_fetch": "url", "write_file": "path"}

# Tool, role, hosts that the call asks for, and the secrets that it goes with.
TABLE: list[tuple[str, Role, object, list[str]]] = [
    ("bash", Role.ADMIN, ["github.com"], ["github"]),
    ("bash", Role.ADMIN, ["github.com:443"], ["github"]),
    ("bash", Role.ADMIN, ["GitHub.com"], ["github"]),
    ("bash", Role.ADMIN, ["api.github.example"], ["github"]),
    ("bash", Role.ADMIN, ["a.b.example"], ["wide"]),  # on the secret's port, too
    ("bash", Role.ADMIN, ["a.b.example:443"], []),
    ("bash", Role.ADMIN, ["github.example"], []),  # not the name itself
    ("bash", Role.ADMIN, ["evilgithub.com"], []),
    ("bash", Role.ADMIN, ["github.com.evil.example"], []),
    ("bash", Role.ADMIN, ["*.com"], ["github"]),  # the call may reach the host
    ("bash", Role.ADMIN, True, ALL),
    ("bash", Role.ADMIN, "*", ALL),
    ("bash", Role.ADMIN, {"odd": 1}, ALL),  # counts as any host
    ("bash", Role.ADMIN, None, []),
    ("bash", Role.ADMIN, False, []),
    ("bash", Role.ADMIN, [], []),
    ("bash", Role.USER, ["github.com"], []),
    ("bash", Role.USER, True, ["index", "plain"]),
    ("bash", Role.USER, ["pypi.example:8443"], ["index"]),
    ("bash", Role.USER, ["pypi.example"], ["index"]),
    ("bash", Role.USER, ["pypi.example:443"], []),
    ("bash", Role.USER, ["ci.example"], ["plain"]),
    ("bash", Role.GUEST, True, []),
    ("python", Role.ADMIN, True, ["index", "plain"]),
    ("python", Role.ADMIN, ["github.com"], []),
    ("web_fetch", Role.ADMIN, True, []),  # it runs in no sandbox
    ("write_file", Role.ADMIN, True, []),
]


@pytest.mark.parametrize(("tool", "role", "network", "names"), TABLE)
def test_a_call_goes_with_the_secrets_of_its_tool_its_role_and_its_hosts(
    tool: str, role: Role, network: object, names: list[str]
) -> None:
    arguments = {ARGUMENT[tool]: "x", "network": network}
    assert [one.name for one in RIGHTS.of_call(PEOPLE[role], TOOLS[tool], arguments)] == names
    assert not RIGHTS.of_call(PEOPLE[role], TOOLS[tool], None), "no tool is offered by them"


def gate_of(*grants: Grant, secrets: SecretRights = RIGHTS, tainted: bool = False) -> Gate:
    policy = PolicyContext(ApprovalMode.SANDBOXED, True, grants=grants, tainted=tainted, secrets=secrets)
    return Gate(PEOPLE[Role.ADMIN], policy)


CALL = {"command": "git push", "network": ["github.com"]}
EXACT = fingerprint("ann", "bash", CALL)
SHOWN = bound_to([GITHUB])
# Grants, and if they count for a call with the secret.
GRANTS: list[tuple[Grant, bool]] = [
    (Grant("bash", fingerprint=EXACT), False),
    (Grant("bash", fingerprint=EXACT, secrets=SHOWN), True),
    (Grant("bash", fingerprint=EXACT, secrets=bound_to([GITHUB, INDEX])), True),
    (Grant("bash", fingerprint=EXACT, secrets=bound_to([INDEX])), False),
    (Grant("bash", fingerprint=EXACT, secrets=SHOWN.replace("100.0", "99.0")), False),  # it was set anew since
    (Grant("bash", hosts=("github.com",)), False),
    (Grant("bash", hosts=("github.com",), secrets=SHOWN), True),
    (Grant("python", hosts=("github.com",)), False),
    (Grant("bash", pattern={"command": "git push", "network": "*"}, secrets=SHOWN), True),
    (Grant("bash", pattern={"command": "git push", "network": "*"}), False),
]


@pytest.mark.parametrize(("grant", "counts"), GRANTS)
def test_a_grant_counts_only_if_it_was_given_for_a_call_with_the_secret(grant: Grant, counts: bool) -> None:
    decision = gate_of(grant).decide(TOOLS["bash"], CALL)
    assert isinstance(decision, Allow if counts else Ask)
    without = gate_of(grant, secrets=SecretRights()).decide(TOOLS["bash"], CALL)
    assert isinstance(without, Allow), "without the secret each of them counts"


@pytest.mark.parametrize(
    ("given", "counts"),
    [("", False), (SHOWN, True), (bound_to([INDEX]), False), (SHOWN.replace("100.0", "99.0"), False)],
)
def test_a_standing_permission_asks_again_once_a_secret_is_added(given: str, counts: bool) -> None:
    bounds = Bounds(commands=("git push",), network=("github.com",))
    permission = Permission("prm_1", "bash", bounds, secrets=given)
    for tainted in (False, True):
        gate = gate_of(tainted=tainted)
        gate.permit([permission])
        assert isinstance(gate.decide(TOOLS["bash"], CALL), Allow if counts else Ask)
        before = gate_of(tainted=tainted, secrets=SecretRights())
        before.permit([permission])
        assert isinstance(before.decide(TOOLS["bash"], CALL), Allow)


def test_untrusted_text_makes_a_call_with_a_secret_ask_as_any_other() -> None:
    grant = Grant("bash", hosts=("github.com",), secrets=SHOWN)
    assert isinstance(gate_of(grant, tainted=True).decide(TOOLS["bash"], CALL), Ask)


def test_a_secret_that_is_set_anew_is_another_one() -> None:
    again = SecretRight(GITHUB.name, GITHUB.variable, GITHUB.hosts, GITHUB.tools, GITHUB.role, 101.0)
    assert bound_to([GITHUB]) != bound_to([again])
    assert bound_to([]) == in_words([]) == prompt_line([]) == ""
    assert in_words([GITHUB, INDEX]) == "It goes with the secret github, index."
    assert without_secrets(f"It asks. {in_words([GITHUB, INDEX])}", bound_to([GITHUB, INDEX])) == "It asks."
    assert without_secrets("It asks.", "") == "It asks."


def test_a_model_reads_the_variables_and_hosts_of_its_principal_only() -> None:
    line = prompt_line(RIGHTS.of(PEOPLE[Role.USER]))
    assert "INDEX_TOKEN at pypi.example:8443 (bash, python)" in line and "GITHUB_TOKEN" not in line
    assert not RIGHTS.of(PEOPLE[Role.GUEST])
