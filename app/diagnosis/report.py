"""The report of an examination: what the server and the model do wrong, what runs repair, and what would help."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from app.core.endpoint_spec import EndpointSpec
from app.core.provider import CallForm
from app.diagnosis.defects import DEFECTS, Sighting, found_in, is_object, repeats, tools_ignored
from app.diagnosis.probes import AT_A_TIME, AT_ONCE, FENCED, NATIVE, TAGGED, TOO_LONG
from app.diagnosis.trial import EVIDENCE, Trial, sorted_calls
from app.models.http.failures import excerpt
from app.models.http.prompt_too_long import limit_in
from app.models.wire.grammars.tool_grammar import NAME as TOOL_GRAMMAR
from app.models.wire.grammars.tool_grammar import STRICT
from tools.base.patterns import lazy_pattern

BACKQUOTES = lazy_pattern(r"`+")
MOST_EVIDENCE = 3
MOST_SEEN = 400  # characters of each
WEAK, CLEARLY = 0.5, 0.25  # a share of right calls that is too small, and a difference that counts
ENOUGH = 4  # prompts to judge a model by
LEAST_WINDOW = 512


class Subject(Struct):
    """All that a report is made of, the abilities that were known first.

    `pairs` are the answers that differ for certain, `again` the trials for that.
    """

    model: str
    window: int | None
    call_form: CallForm  # that is taught
    offers_tools: bool  # runs offer them natively
    images: Any
    quick: bool
    server: str = ""
    seconds: float = 0.0
    native_out: str = ""  # why it has no native calls
    trials: list[Trial] = field(default_factory=list)
    again: list[Trial] = field(default_factory=list)
    pairs: list[tuple[Trial, Trial]] = field(default_factory=list)


class FormScore(Struct, frozen=True):
    """Calls in one form: prompts that ask for some, answers right as they came, and as runs read them."""

    form: str
    asked: int
    right_as_sent: int
    right: int
    tokens: int
    seconds: float


class Found(Struct, frozen=True):
    """A defect of the server. In `repaired` of the `seen` answers a run gets the right calls all the same."""

    code: str
    about: str
    advice: str
    seen: int
    repaired: int
    evidence: list[str]


class Report(Struct, frozen=True):
    """`defects` are those of the server, `weaknesses` those of the model; `settings` are fields of its endpoint."""

    model: str
    server: str
    quick: bool
    prompts: int
    seconds: float
    prompt_tokens: int
    tokens: int
    forms: list[FormScore]
    defects: list[Found]
    weaknesses: list[str]
    notes: list[str]
    settings: dict[str, Any]

    @property
    def is_clean(self) -> bool:
        return not (self.defects or self.weaknesses)


def report_of(subject: Subject) -> Report:
    trials = subject.trials
    scores = [score for form in (NATIVE, TAGGED, FENCED) if (score := score_of(form, trials)).asked]
    sightings = found_in(trials, subject.pairs)
    if not subject.offers_tools:
        sightings.pop("tools_ignored", None)
    return Report(
        model=subject.model,
        server=subject.server,
        quick=subject.quick,
        prompts=len(trials),
        seconds=round(subject.seconds, 1),
        prompt_tokens=sum(trial.wire.prompt_tokens or 0 for trial in trials),
        tokens=sum(trial.wire.tokens or 0 for trial in trials),
        forms=scores,
        defects=[_found(code, sightings[code]) for code in (row.code for row in DEFECTS) if code in sightings],
        weaknesses=list(weaknesses(scores, trials, sightings)),
        notes=list(notes(subject)),
        settings=settings_for(subject, scores, sightings),
    )


def score_of(form: CallForm, trials: Sequence[Trial]) -> FormScore:
    asked = [trial for trial in trials if trial.probe.form is form and trial.probe.is_scored and not trial.probe.is_cut]
    asked = [trial for trial in asked if "tools" not in trial.dropped and not tools_ignored(trial)]
    return FormScore(
        form=form.value,
        asked=len(asked),
        right_as_sent=sum(is_right_as_sent(trial) for trial in asked),
        right=sum(trial.is_right for trial in asked),
        tokens=sum(trial.wire.tokens or 0 for trial in asked),
        seconds=round(sum(trial.seconds for trial in asked), 1),
    )


def is_right_as_sent(trial: Trial) -> bool:
    """Return whether a client that repairs nothing gets the right calls."""
    wire = trial.wire
    if (trial.streamed and (None in wire.indexes or repeats(wire.indexes))) or not wire.calls:
        return False
    if not all(is_object(call.raw) and call.is_text for call in wire.calls):
        return False
    return sorted_calls((call.name, json.loads(call.raw or "{}")) for call in wire.calls) == sorted_calls(
        trial.expected
    )


def _found(code: str, sightings: Sequence[Sighting]) -> Found:
    row = next(row for row in DEFECTS if row.code == code)
    repaired = sum(bool(one.trial.probe.asks) and one.trial.is_right for one in sightings)
    evidence = [
        f"{one.trial.probe.name}, {'streamed' if one.trial.streamed else 'whole'}: {excerpt(one.seen, MOST_SEEN)}"
        for one in sightings[:MOST_EVIDENCE]
    ]
    return Found(code, row.about, row.advice, seen=len(sightings), repaired=repaired, evidence=evidence)


def weaknesses(
    scores: Sequence[FormScore], trials: Sequence[Trial], sightings: Mapping[str, Sequence[Sighting]]
) -> Iterator[str]:
    """Yield what the model itself does wrong, or what cannot be told from that."""
    if scores and all(share(score) < WEAK for score in scores):
        yield "It makes fewer than half of the calls that it is asked for, in every form: use a larger model for tools."
    seen_in = {id(one.trial) for found in sightings.values() for one in found}
    native = [trial for trial in trials if trial.is_native and trial.is_whole and id(trial) not in seen_in]
    asked = [trial for trial in native if trial.probe.is_scored]
    if len(asked) >= ENOUGH and (right := sum(trial.is_right for trial in asked)) < WEAK * len(asked):
        yield f"It makes {right} of {len(asked)} calls that it is asked for natively."
    unreadable = [one for one in native if any(not is_object(call.raw) for call in one.wire.calls)]
    if len({one.streamed for one in unreadable}) == 2:  # in one way only it is not the model's
        seen = next(call.raw for call in unreadable[0].wire.calls if not is_object(call.raw))
        raw = code(excerpt(seen, EVIDENCE))
        yield f"{len(unreadable)} of its native calls have arguments that are not a JSON object: {raw}"
    if unknown := [one for one in native if one.probe.name == "tool not offered" and one.wire.calls]:
        name = code(excerpt(unknown[0].wire.calls[0].name, EVIDENCE))
        yield f"It calls tools that are not offered ({name}): runs refuse them."


def share(score: FormScore) -> float:
    return score.right / score.asked


def notes(subject: Subject) -> Iterator[str]:
    """Yield what is no fault."""
    if subject.native_out:
        yield f"{subject.native_out}: calls are taught in the prompt."
    if any(trial.thought and not trial.wire.reasoning for trial in subject.trials):
        yield "Thoughts come in the text: runs tell them from the answer."
    if any(trial.probe.picture and trial.status not in (0, 200) for trial in subject.trials):
        yield "It takes no pictures."
    if not any(trial.probe is TOO_LONG for trial in subject.trials):
        yield "The end of its window was not tried: it is too far away, or not known."
    if failed := [trial for trial in subject.trials if trial.status in (0, 429)]:
        yield f"{len(failed)} requests were not answered: {code(failed[0].error)}"


def settings_for(subject: Subject, scores: Sequence[FormScore], sightings: dict[str, list[Sighting]]) -> dict[str, Any]:
    """Return the settings that would help, as fields of the endpoint."""
    settings: dict[str, Any] = {}
    for row in DEFECTS:
        if row.code in sightings:
            settings |= row.helps
    if form := form_for(subject, scores, sightings):
        settings["tool_calls"] = form
        settings.pop(TOOL_GRAMMAR, None)  # which native calls would need
    native = next((score for score in scores if score.form == NATIVE), None)
    if native and not form and share(native) < WEAK:
        settings[TOOL_GRAMMAR] = "on"
    if subject.server not in STRICT:
        settings.pop(TOOL_GRAMMAR, None)
    if "busy" in sightings:
        at_once = [trial for trial in subject.trials if trial.probe is AT_ONCE]
        settings["max_requests"] = max(1, sum(trial.status == 200 for trial in at_once) * AT_A_TIME // len(at_once))
    if subject.images is True and any(trial.probe.picture and trial.status >= 400 for trial in subject.trials):
        settings["images"] = False
    window = next((limit_in(trial.error) for trial in subject.trials if trial.probe is TOO_LONG), None)
    if cut := sightings.get("prompt_cut"):
        window = cut[0].trial.wire.prompt_tokens
    if window and window >= LEAST_WINDOW and window != subject.window:
        settings["window"] = window
    return settings


def form_for(subject: Subject, scores: Sequence[FormScore], sightings: dict[str, list[Sighting]]) -> str:
    """Return the form of calls that serves better than the one of now; empty for none."""
    by_form = {score.form: share(score) for score in scores}
    taught = TAGGED if subject.call_form is NATIVE else subject.call_form
    used = NATIVE if subject.offers_tools and not subject.native_out else taught
    now = by_form.get(used, 0.0)
    harmful = any(
        row.form and not all(one.trial.is_right for one in sightings[row.code])
        for row in DEFECTS
        if row.code in sightings
    )
    best = max(by_form, key=lambda form: by_form[form], default="")
    if not best or best == used:
        return ""
    if by_form[best] >= now + CLEARLY or (harmful and best != NATIVE and by_form[best] >= max(now, WEAK)):
        return best
    return ""


def with_settings(spec: EndpointSpec, settings: Mapping[str, Any]) -> tuple[EndpointSpec, list[str]]:
    """Return the endpoint with the settings that are fields of it, and the names of the others."""
    own = {name: value for name, value in settings.items() if name in EndpointSpec.model_fields}
    changed = EndpointSpec.model_validate({**spec.model_dump(exclude_defaults=True), **own})
    return changed, [name for name in settings if name not in own]


def markdown(report: Report) -> str:
    """Return the report as a page of Markdown, without the server's address."""
    forms = [
        f"| {one.form} | {one.asked} | {one.right_as_sent if one.form == NATIVE else '-'} | {one.right} "
        f"| {one.tokens} | {one.seconds:g} s |"
        for one in report.forms
    ]
    lines = [
        f"# {code(report.model)} on {report.server}",
        f"{report.prompts} prompts{' (quick)' if report.quick else ''}, {report.seconds:g} s, "
        f"{report.prompt_tokens} tokens read, {report.tokens} written.",
        "## Calls",
        "\n".join(
            [
                "| form | asked for | right as sent | right as read | tokens | time |",
                "|---|---|---|---|---|---|",
                *forms,
            ]
        ),
        "## The server",
    ]
    lines += [
        f"- **{one.about}** (`{one.code}`, {one.seen} answers, {one.repaired} of them read right). {one.advice}\n"
        + "\n".join(f"  - {code(line)}" for line in one.evidence)
        for one in report.defects
    ] or ["No defect was seen."]
    lines += ["## The model", *(f"- {line}" for line in report.weaknesses or ["Nothing to find fault with."])]
    lines += [f"- {line}" for line in report.notes]
    lines += ["## Settings", *(f"- `{name} = {json.dumps(value)}`" for name, value in report.settings.items())]
    return "\n\n".join(lines if report.settings else [*lines, "None would help."]) + "\n"


def code(text: str) -> str:
    """Return the text as inline code, whatever backquotes it holds."""
    fence = "`" * (1 + max(map(len, BACKQUOTES.findall(text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"
