"""Which line about the sandbox helps a small model: requests that need a tool, and some for code that is not to be run.

The models, the requests and the rules of `call_forms`, with calls in fences. Each line stands alone behind the sentence
about the workspace, then all together. `announced` counts short replies without any call to requests that need one. A
line belongs into the prompt only if it raises what a model does right, on both models, and lowers nothing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from app.context.run_rules import LEAST_WINDOW, RunFacts, run_rules
from app.core.messages import Message
from app.core.provider import CallForm
from app.models.capabilities.abilities import AbilityOverrides
from app.models.http.client import model_client
from app.models.wire.hosted_provider import RequestDefaults
from app.models.wire.openai.provider import BareChat, OpenAIChat
from benchmarks.call_forms import FOR_CODE, MODELS, MOST_TOKENS, TASKS, answer, opening_of
from tests.support.models.real_models import LlamaServer, Served
from tools.catalogue import TOOLS

LINES = {
    "no network": "Commands have no network, except for the hosts that a call names.",
    "waits": "A call may wait until a person approves it.",
    "act": "Act at once: call the tool instead of announcing it.",
}
RULES = run_rules(RunFacts(channel="page"), TOOLS, LEAST_WINDOW, native=False)
HINTS = {"none": "", **LINES, "all": " ".join(LINES.values()), "rules": RULES}  # the last: as in the product
BEHIND = "The tools work in the folder"
SHORT = 600  # characters


def hinted(hint: str, *, call_form: CallForm) -> Sequence[Message]:
    """Return the opening of a run with the hint in the paragraph about the workspace."""
    system, *examples = opening_of(call_form=call_form)
    pieces = [f"{one} {hint}".rstrip() if one.startswith(BEHIND) else one for one in system.text.split("\n\n")]
    return replace(system, text="\n\n".join(pieces)), *examples


async def measured(served: Served, name: str) -> str:
    """One row of the table."""
    started, opening = time.monotonic(), partial(hinted, HINTS[name])
    defaults, form = RequestDefaults(MOST_TOKENS, 0.0), CallForm.FENCED
    chat = OpenAIChat if served.weights else BareChat
    with LlamaServer(served) as server:
        async with model_client(url := server.base_url) as client:
            taught = AbilityOverrides("fenced")
            model = chat(client, url, served.name, overrides=taught, defaults=defaults)
            used = [await answer(model, form, task.request, opening) for task in TASKS]
            for_code = [await answer(model, form, request, opening) for request in FOR_CODE]
    right = sum(task.is_served_by(one) for task, reply in zip(TASKS, used, strict=True) for one in reply.calls[:1])
    announced = sum(not reply.calls and len(reply.content) < SHORT for reply in used)
    shown = sum(not reply.calls and not reply.rejected for reply in for_code)
    counts = f"{right:3} of {len(TASKS)} {announced:9} of {len(TASKS)} {shown:8} of {len(FOR_CODE)}"
    return f"{served.name:24} {name:10} {counts} {time.monotonic() - started:6.0f} s"


def main() -> None:
    """Measure all models, or those whose names begin with the given one."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print("model                    hint       tool used    announced     code only shown")
    for served in (one for one in MODELS if one.name.casefold().startswith(wanted)):
        for name in HINTS:
            print(asyncio.run(measured(served, name)), flush=True)


if __name__ == "__main__":
    main()
