"""The classification of a server's tools: which source decides, what hints add, and that the gate asks it each time."""

from __future__ import annotations

import pytest

from app.core.rules import ToolRule
from app.policy.classification import Classification, Source
from app.policy.gate import Gate
from app.policy.policy_context import PolicyContext
from app.storage.principals import LOCAL_USER, Principal
from tests.support.access.operator_rules import run_nothing
from tools.base.rights import Column, Hints, Origin, Risk, Role, Trust
from tools.tool import Tool, ToolList, answering
from tools.toolbox import Allow, Ask, Refuse, Toolbox

ANN = Principal("ann", Role.USER)
NAME, SERVER, TOOL = "mcp__s__t", ("s", ""), ("s", "t")
READS, CHANGES, OPEN = Hints(read_only=True), Hints(read_only=False), Hints(open_world=True)
DESTROYS = Hints(destructive=True)
RULE = ToolRule(match="mcp__s__*", role=Role.GUEST, risk=Risk.WRITE, untrusted=True)
OF_TOOL, OF_SERVER = Trust(Role.USER, Risk.EXECUTE, False), Trust(Role.GUEST, Risk.NETWORK, True)
FILE_TOOL, FILE_SERVER = Trust(Role.USER, Risk.READ, True), Trust(Role.GUEST, Risk.WRITE, False)


def classification(
    rules: tuple[ToolRule, ...] = (), declared: dict[tuple[str, str], Trust] | None = None, **of_file: Trust
) -> Classification:
    made = Classification(rules)
    places = {"tool": TOOL, "server": SERVER}
    made.declare(declared or {}, {places[place]: trust for place, trust in of_file.items()})
    return made


# From the most decisive source on, one less in each row.
ORDER: list[tuple[Source, tuple[Role, Risk, bool]]] = [
    (Source.SETTINGS, (Role.GUEST, Risk.WRITE, True)),
    (Source.DECLARED_TOOL, (Role.USER, Risk.EXECUTE, False)),
    (Source.DECLARED_SERVER, (Role.GUEST, Risk.NETWORK, True)),
    (Source.FILE_TOOL, (Role.USER, Risk.READ, True)),
    (Source.FILE_SERVER, (Role.GUEST, Risk.WRITE, False)),
    (Source.DEFAULT, (Role.ADMIN, Risk.ADMIN, True)),
]


@pytest.mark.parametrize(("at", "source", "values"), [(at, *row) for at, row in enumerate(ORDER)])
def test_the_first_source_that_gives_a_value_decides(at: int, source: Source, values: tuple[Role, Risk, bool]) -> None:
    declared = [(1, TOOL, OF_TOOL), (2, SERVER, OF_SERVER)]
    of_file = [(3, "tool", FILE_TOOL), (4, "server", FILE_SERVER)]
    made = classification(
        (RULE,) if at == 0 else (),
        {key: trust for place, key, trust in declared if place >= at},
        **{key: trust for place, key, trust in of_file if place >= at},
    )
    rights = made.rights(NAME, Origin("s", "t"))
    assert (rights.role, rights.risk, rights.untrusted) == values
    assert {rights.sources[field] for field in ("role", "risk", "untrusted")} == {source}


def test_each_value_has_a_source_of_its_own() -> None:
    rules = (ToolRule(match=NAME, approval="always"),)
    made = classification(rules, {TOOL: Trust(untrusted=False), SERVER: Trust(role=Role.USER)}, server=FILE_SERVER)
    rights = made.rights(NAME, Origin("s", "t"))
    assert (rights.role, rights.risk, rights.approval, rights.untrusted) == (Role.USER, Risk.WRITE, "always", False)
    assert rights.sources == {
        "role": Source.DECLARED_SERVER,
        "risk": Source.FILE_SERVER,
        "untrusted": Source.DECLARED_TOOL,
        "approval": Source.SETTINGS,
    }
    other = made.rights("mcp__z__t", Origin("z", "t", READS))
    assert (other.role, other.risk, other.untrusted) == (Role.ADMIN, Risk.ADMIN, True), "of another server"


HINTED: list[tuple[str, Trust | None, Hints, tuple[Risk, bool]]] = [
    # what is declared of the whole server, what its tool states, and the risk and `untrusted` that hold
    ("not trusted, a hint is nothing", None, READS, (Risk.ADMIN, True)),
    ("trusted, it lowers the risk", Trust(), READS, (Risk.READ, True)),
    ("no hint, no change", Trust(), Hints(), (Risk.ADMIN, True)),
    ("what it reads may be anywhere", Trust(), Hints(read_only=True, open_world=True), (Risk.NETWORK, True)),
    ("within reach", Trust(), Hints(read_only=True, open_world=False), (Risk.READ, True)),
    ("it contradicts itself", Trust(), Hints(read_only=True, destructive=True), (Risk.ADMIN, True)),
    ("nothing but reading lowers", Trust(), Hints(destructive=False, open_world=False), (Risk.ADMIN, True)),
    ("a given risk is not lowered", Trust(risk=Risk.EXECUTE), READS, (Risk.EXECUTE, True)),
    ("a server that reads, a tool that does not", Trust(risk=Risk.READ), CHANGES, (Risk.WRITE, True)),
    ("a server that reads, a tool that destroys", Trust(risk=Risk.READ), DESTROYS, (Risk.WRITE, True)),
    ("a server that reads, a tool that searches", Trust(risk=Risk.READ), OPEN, (Risk.NETWORK, True)),
    ("care never lowers", Trust(risk=Risk.ADMIN), OPEN, (Risk.ADMIN, True)),
    ("results of its own", Trust(untrusted=False), READS, (Risk.READ, False)),
    ("results of strangers", Trust(untrusted=False), OPEN, (Risk.ADMIN, True)),
]


@pytest.mark.parametrize(("trust", "hints", "values"), [row[1:] for row in HINTED], ids=[row[0] for row in HINTED])
def test_hints_of_a_trusted_server(trust: Trust | None, hints: Hints, values: tuple[Risk, bool]) -> None:
    for made in (
        classification(declared={SERVER: trust} if trust else {}),
        classification(server=trust) if trust else classification(),
    ):
        rights = made.rights(NAME, Origin("s", "t", hints))
        assert (rights.role, rights.risk, rights.untrusted) == (Role.ADMIN, *values)


def test_what_is_given_for_a_tool_stands_whatever_it_states() -> None:
    made = classification(declared={TOOL: Trust(risk=Risk.READ, untrusted=False)})
    rights = made.rights(NAME, Origin("s", "t", Hints(False, True, True)))
    assert (rights.risk, rights.untrusted) == (Risk.READ, False)
    assert classification(declared={TOOL: Trust()}).rights(NAME, Origin("s", "t", READS)).risk is Risk.READ
    rule = ToolRule(match=NAME, role=Role.USER)
    assert classification((rule,)).rights(NAME, Origin("s", "t", READS)).risk is Risk.ADMIN, "a rule is no trust"
    assert (
        classification((ToolRule(match=NAME, risk=Risk.READ),)).rights(NAME, Origin("s", "t", OPEN)).risk is Risk.READ
    )


@pytest.mark.parametrize(
    ("trust", "hints", "eased"),
    [
        (Trust(), Hints(), False),
        (Trust(), READS, True),
        (Trust(role=Role.USER), Hints(), True),
        (Trust(role=Role.ADMIN, risk=Risk.ADMIN, untrusted=True), READS, False),
        (Trust(untrusted=False), Hints(), True),
        (Trust(untrusted=False), OPEN, False),
    ],
)
def test_what_eases_a_new_tool(trust: Trust, hints: Hints, eased: bool) -> None:
    made = classification(declared={SERVER: trust})
    assert bool(made.eased_by(NAME, Origin("s", "t", hints))) is eased


def test_a_change_counts_for_the_next_call_in_both_layers() -> None:
    one = Tool(
        NAME, "", {"type": "object"}, Risk.ADMIN, answering(run_nothing), untrusted=True, origin=Origin("s", "t")
    )
    made = classification()
    tools = ToolList([made.of(one)])
    gate, admin = (Gate(who, PolicyContext(boxed=True), True, made) for who in (ANN, LOCAL_USER))
    toolbox = Toolbox(tools, gate.decide, ANN.name, gate.offer, made.current)

    def seen() -> tuple[bool, str, str, bool]:
        tool = toolbox.tool(NAME)
        assert tool
        words = [type(decided).__name__ for decided in (toolbox.decide(NAME, {}), admin.decide(tool, {}))]
        return bool(toolbox.offered), words[0], words[1], tool.untrusted

    assert seen() == (False, "Refuse", "Ask", True)
    made.declare({SERVER: Trust(role=Role.USER)}, {})
    assert seen() == (True, "Ask", "Ask", True)
    made.declare({SERVER: Trust(Role.USER, Risk.READ, False)}, {})
    assert seen() == (True, "Allow", "Allow", False)
    offered = toolbox.offered
    made.declare({SERVER: Trust(Role.USER, Risk.READ, False)}, {})
    assert toolbox.offered is offered, "nothing has changed: the same list, for prefix caches"
    made.declare({}, {})
    assert seen() == (False, "Refuse", "Ask", True)


def test_a_call_for_anybody_is_refused_asked_about_or_allowed_as_declared() -> None:
    made = classification(declared={SERVER: Trust(role=Role.USER, risk=Risk.READ)})
    one = Tool(
        NAME, "", {"type": "object"}, Risk.ADMIN, answering(run_nothing), untrusted=True, origin=Origin("s", "t")
    )
    for role, decision in [(Role.GUEST, Refuse), (Role.USER, Allow), (Role.ADMIN, Allow)]:
        assert isinstance(Gate(Principal("x", role), classification=made).decide(one, {}), decision)
    planning = Gate(ANN, PolicyContext(planning=True), classification=made)
    assert planning.decide(one, {}) == Allow(), "it reads"
    tainted = Gate(ANN, PolicyContext(tainted=True), classification=made)
    assert isinstance(tainted.decide(one, {"url": "https://a.test/?q=x"}), Ask)


def test_what_arguments_are_for_comes_from_the_first_source_that_says_it_and_eases() -> None:
    rule, declared = {"to": Column.INSIDE}, {"to": Column.RECIPIENT}
    made = classification((ToolRule(match=NAME, role=Role.ADMIN),), {TOOL: Trust(arguments=declared)})
    rights = made.rights(NAME, Origin("s", "t"))
    assert (rights.arguments, rights.sources["arguments"]) == (declared, Source.DECLARED_TOOL)
    assert made.eased_by(NAME, Origin("s", "t")) == "the trust that is declared for s"
    first = classification((ToolRule(match=NAME, arguments=rule),), {TOOL: Trust(arguments=declared)})
    assert first.rights(NAME, Origin("s", "t")).arguments == rule
    assert first.eased_by(NAME, Origin("s", "t")) == f"the rule {NAME}"
    assert Trust(arguments=declared).words == "to=recipient"
