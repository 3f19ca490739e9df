"""Pictures and PDFs for models that may not see them: sent, told of in words, or refused, as the request says."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from app.core.attachments import CANNOT, Attachment, described
from app.core.messages import Message
from app.core.provider import Ability, ModelRequest, Piece, Provider, ProviderFailed, Told

NO_VISION = "no_vision"  # code of failures and notices
MOST_NAMED = 5  # models that could be asked instead
# What a server refuses that cannot read a part says so with these; others need words that are about files, too.
REFUSALS = frozenset({400, 415, 422})
OTHER_REFUSALS = frozenset({404, 500, 501})
ABOUT_FILES = ("image", "picture", "vision", "multimodal", "multi-modal", "mmproj", "pdf", "file", "content type")
# So a server speaks of a file that is broken or too large: it does not say that the model can see none.
ABOUT_ONE_FILE = re.compile(
    r"(?:could not|cannot|can't|unable to|failed to|error) (?:process|identify|decod|load|pars|be empty)"
    r"|valid (?:image|pdf|base64)|(?:is|was|not) valid|corrupt|truncated|damaged|password|(?:image|picture) format"
    r"|too (?:large|small|big|many)|dimension|exceed|maximum",
    re.IGNORECASE,
)
# And so that it can see none.
CANNOT_SEE = re.compile(
    r"(?:\bnot?|n't|\bonly|without)\W.{0,40}(?:support|vision|multi-?modal|image input)"
    r"|unsupported content|unknown variant|at most 0 |mmproj",
    re.IGNORECASE,
)
SURE = ("setting", "server")
SHOWN = {"images": "pictures", "pdf": "PDFs"}


def sees(provider: Provider, ability: str) -> bool | None:
    """`images` or `pdf`; None while nobody knows. A name alone never says no: it is tried."""
    known = known_of(provider, ability)
    if not isinstance(known.value, bool) or (known.source == "name" and not known.value):
        return None
    return known.value


def may_be_wrong(provider: Provider, ability: str) -> bool:
    """Whether an answer tells more than is known: a name promises too much, a model may be another one by now."""
    return known_of(provider, ability).source not in SURE


def known_of(provider: Provider, ability: str) -> Ability:
    unknown = Ability(ability, None, "unknown")
    return next((one for one in provider.abilities() if one.name == ability), unknown)


Able = Callable[[str], Sequence[str]]
"""Names of the models that are known to have an ability."""


def nobody_knows(ability: str) -> Sequence[str]:
    return ()


@dataclass(slots=True)
class Looking:
    """Asks one model, called `name`, for one answer, and remembers what that shows.

    `told` are the files that this run was told of.
    """

    name: str
    provider: Provider
    able: Able = nobody_knows
    told: set[str] = field(default_factory=set)
    _answered: bool = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """The answer. Raises ProviderFailed, with the code NO_VISION where the model would have to see."""
        attached = {one.ability for message in request.messages for one in message.attachments}
        blind = {one for one in attached if sees(self.provider, one) is False}
        if blind and not request.describe_files:
            raise self._refusal(request, blind)
        tried = {one for one in attached - blind if may_be_wrong(self.provider, one)}
        try:
            async with aclosing(self._asked(request, blind, tried, sees=True)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except ProviderFailed as failure:
            if self._answered or not refuses_files(failure):
                raise
            if broken := bool(ABOUT_ONE_FILE.search(failure.message)):
                tried = set()  # nothing is learned from it
            elif not CANNOT_SEE.search(failure.message):  # whoever was to see has another reason
                tried = {one for one in tried if sees(self.provider, one) is None}
            if not (tried or (broken and request.describe_files)):
                raise
            refusal = failure
        if not request.describe_files:
            if CANNOT_SEE.search(refusal.message):  # else all others would be refused for what nobody knows
                self._learn(tried, sees=False)
            raise self._refusal(request, tried, refusal.message) from refusal
        unseen = attached if broken else blind | tried
        async with aclosing(self._again(request, unseen, tried, refusal)) as pieces:
            async for piece in pieces:
                yield piece

    async def _asked(
        self, request: ModelRequest, blind: Collection[str], tried: Collection[str], *, sees: bool
    ) -> AsyncGenerator[Piece, None]:
        """With the files in words that the model is `blind` to; the person is told of each once in a run.

        An answer shows whether it `sees` what was `tried`.
        """
        for one in files_in(request, blind):
            if one.sha256 not in self.told:
                self.told.add(one.sha256)
                yield Told(NO_VISION, f"{self.name} cannot see {one.file_name}: it is told of it in words.")
        async with aclosing(self.provider.stream(in_words(request, blind))) as pieces:
            async for piece in pieces:
                if not self._answered and not isinstance(piece, Told):
                    self._answered = True
                    self._learn(tried, sees=sees)
                yield piece

    async def _again(
        self, request: ModelRequest, blind: Collection[str], tried: Collection[str], refusal: ProviderFailed
    ) -> AsyncGenerator[Piece, None]:
        """Once more in words. If that is refused, too, the files were not the reason."""
        try:
            async with aclosing(self._asked(request, blind, tried, sees=False)) as pieces:
                async for piece in pieces:
                    yield piece
        except ProviderFailed:
            if self._answered:
                raise
            raise refusal from None

    def _learn(self, abilities: Collection[str], *, sees: bool) -> None:
        for one in abilities:
            self.provider.show(one, sees, "a message with files was answered" if sees else "one was refused")

    def _refusal(self, request: ModelRequest, blind: Collection[str], why: str = "") -> ProviderFailed:
        shown = " and ".join(SHOWN[one] for one in sorted(blind))
        names = ", ".join(dict.fromkeys(one.file_name for one in files_in(request, blind)))
        can = sorted(set.intersection(*(set(self.able(one)) for one in blind)))[:MOST_NAMED]
        ask = f"ask {' or '.join(can)}" if can else "ask a model that can"
        said = f" Its server said: {why}" if why else ""
        words = "or have words in their place (without_vision: describe)"
        message = f"{self.name} cannot see {shown} ({names}): {ask}, {words}.{said}"
        return ProviderFailed(NO_VISION, message, retryable=False)


def refuses_files(failure: ProviderFailed) -> bool:
    """Whether a server has refused a request for the files in it, as far as that can be told."""
    if failure.code == "model_context":
        return False
    said = failure.message.lower()
    return failure.status in REFUSALS or (
        failure.status in OTHER_REFUSALS and any(word in said for word in ABOUT_FILES)
    )


def files_in(request: ModelRequest, abilities: Collection[str]) -> list[Attachment]:
    return [one for message in request.messages for one in message.attachments if one.ability in abilities]


def in_words(request: ModelRequest, abilities: Collection[str]) -> ModelRequest:
    """The request with the files that need these abilities described: the same words in every round."""
    if not abilities:
        return request
    return replace(request, messages=[_in_words(message, abilities) for message in request.messages])


def _in_words(message: Message, abilities: Collection[str]) -> Message:
    unseen = [one for one in message.attachments if one.ability in abilities]
    if not unseen:
        return message
    text = "\n".join(filter(None, [*(described(one, CANNOT) for one in unseen), message.text]))
    seen = tuple(one for one in message.attachments if one.ability not in abilities)
    return replace(message, text=text, attachments=seen)
