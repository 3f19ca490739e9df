"""Pictures and PDFs for models that may not read them: sent, described in text, or refused, as the request says."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing

from msgspec import Struct, field
from msgspec.structs import replace

from app.core.attachments import PICTURES_ONLY, Attachment, substitute
from app.core.messages import Message
from app.core.provider import ModelRequest, Piece, Provider, ProviderFailed, ProviderNotice
from tools.base.patterns import lazy_pattern

NO_VISION = "no_vision"  # code of failures and notices
MOST_NAMED = 5  # alternatives that an error message lists
# Statuses with which servers refuse files they cannot read; with the others, the message must mention files.
REFUSALS = frozenset({400, 415, 422})
OTHER_REFUSALS = frozenset({404, 500, 501})
ABOUT_FILES = ("image", "picture", "vision", "multimodal", "multi-modal", "mmproj", "pdf", "file", "content type")
# Messages about a broken or too large file: they say nothing about the model.
ABOUT_ONE_FILE = lazy_pattern(
    r"(?:could not|cannot|can't|unable to|failed to|error) (?:process|identify|decod|load|pars|be empty)"
    r"|valid (?:image|pdf|base64)|(?:is|was|not) valid|corrupt|truncated|damaged|password|(?:image|picture) format"
    r"|too (?:large|small|big|many)|dimension|exceed|maximum",
    re.IGNORECASE,
)
# Messages that say that the model reads no files.
CANNOT_SEE = lazy_pattern(
    r"(?:\bnot?|n't|\bonly|without)\W.{0,40}(?:support|vision|multi-?modal|image input)"
    r"|unsupported content|unknown variant|at most 0 |mmproj",
    re.IGNORECASE,
)
SURE = ("setting", "server")
SHOWN = {"images": "pictures", "pdf": "PDFs"}


def can_see(provider: Provider, ability: str) -> bool | None:
    """Return whether the model reads `images` or `pdf`; None while unknown. A name hint alone is never a no."""
    known = provider.ability(ability)
    if not isinstance(known.value, bool) or (known.source == "name" and not known.value):
        return None
    return known.value


def is_uncertain(provider: Provider, ability: str) -> bool:
    """Return whether an answer can teach more: a name hint may be wrong, and a server may have changed its model."""
    return provider.ability(ability).source not in SURE


ModelsWith = Callable[[str], Sequence[str]]
"""Return the names of the models with an ability."""


class VisionFallback(Struct):
    """Get one answer from the model called `name`, and record what the answer shows about its abilities.

    `described` collects the files that a notice of this run has named.
    """

    name: str
    provider: Provider
    models_with: ModelsWith = lambda ability: ()
    described: set[str] = field(default_factory=set)
    _answered: bool = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """Stream the answer. Raises ProviderFailed, with the code NO_VISION if the model cannot read the files."""
        attached = {one.ability for message in request.messages for one in message.attachments}
        blind = {one for one in attached if can_see(self.provider, one) is False}
        if self._must_see(request, blind):
            raise self._refusal(request, blind)
        tried = {one for one in attached - blind if is_uncertain(self.provider, one)}
        try:
            async with aclosing(self._stream_described(request, blind, tried, can_see=True)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except ProviderFailed as failure:
            if self._answered or not refuses_files(failure):
                raise
            if broken := bool(ABOUT_ONE_FILE.search(failure.message)):
                tried = set()  # this says nothing about the model
            elif not CANNOT_SEE.search(failure.message):  # a model that can see was refused for another reason
                tried = {one for one in tried if can_see(self.provider, one) is None}
            if not (tried or (broken and not self._must_see(request, attached))):
                raise
            refusal = failure
        if self._must_see(request, tried):
            if CANNOT_SEE.search(refusal.message):  # else an unknown reason would block all later files
                self._learn(tried, can_see=False)
            raise self._refusal(request, tried, refusal.message) from refusal
        unseen = attached if broken else blind | tried
        try:
            async with aclosing(self._stream_described(request, unseen, tried, can_see=False)) as pieces:
                async for piece in pieces:
                    yield piece
        except ProviderFailed:
            if self._answered:
                raise
            raise refusal from None  # refused with descriptions as well: the files were not the reason

    async def _stream_described(
        self, request: ModelRequest, blind: Collection[str], tried: Collection[str], *, can_see: bool
    ) -> AsyncGenerator[Piece, None]:
        """Stream with the files that the model is `blind` to described in text; notify once per file and run.

        An answer shows whether the model `can_see` what was `tried`.
        """
        for one in files_in(request, blind):
            if one.sha256 not in self.described:
                self.described.add(one.sha256)
                sent = "its text" if one.text else "a description"
                yield ProviderNotice(NO_VISION, f"{self.name} cannot see {one.file_name}: {sent} is sent instead.")
        async with aclosing(self.provider.stream(describe_files(request, blind))) as pieces:
            async for piece in pieces:
                if not self._answered and not isinstance(piece, ProviderNotice):
                    self._answered = True
                    self._learn(tried, can_see=can_see)
                yield piece

    def _must_see(self, request: ModelRequest, blind: Collection[str]) -> bool:
        """Return whether there are files of these abilities that no text may stand in for."""
        unread = [one for one in files_in(request, blind) if not one.text]
        if can_see(self.provider, "images"):  # and so the pages of a PDF, which are read one by one
            unread = [one for one in unread if one.about != PICTURES_ONLY]
        return bool(unread) and not request.describe_files

    def _learn(self, abilities: Collection[str], *, can_see: bool) -> None:
        for one in abilities:
            self.provider.show(one, can_see, "a message with files was answered" if can_see else "one was refused")

    def _refusal(self, request: ModelRequest, blind: Collection[str], why: str = "") -> ProviderFailed:
        shown = " and ".join(SHOWN[one] for one in sorted(blind))
        unread = [one for one in files_in(request, blind) if not one.text]
        names = ", ".join(dict.fromkeys(f"{one.file_name}{one.about and f': {one.about}'}" for one in unread))
        can = sorted(set.intersection(*(set(self.models_with(one)) for one in blind)))[:MOST_NAMED]
        ask = f"ask {' or '.join(can)}" if can else "ask a model that can"
        reason = f" Its server said: {why}" if why else ""
        advice = "or send descriptions instead (without_vision: describe)"
        message = f"{self.name} cannot see {shown} ({names}): {ask}, {advice}.{reason}"
        return ProviderFailed(NO_VISION, message, retryable=False)


def refuses_files(failure: ProviderFailed) -> bool:
    """Return whether a server seems to have refused a request because of its files."""
    if failure.code == "model_context":
        return False
    message = failure.message.lower()
    return failure.status in REFUSALS or (
        failure.status in OTHER_REFUSALS and any(word in message for word in ABOUT_FILES)
    )


def files_in(request: ModelRequest, abilities: Collection[str]) -> list[Attachment]:
    return [one for message in request.messages for one in message.attachments if one.ability in abilities]


def describe_files(request: ModelRequest, abilities: Collection[str]) -> ModelRequest:
    """Return the request with the files that need these abilities described, with the same text in every round."""
    if not abilities:
        return request
    return replace(request, messages=[_described(message, abilities) for message in request.messages])


def _described(message: Message, abilities: Collection[str]) -> Message:
    unseen = [one for one in message.attachments if one.ability in abilities]
    if not unseen:
        return message
    text = "\n".join(filter(None, [*map(substitute, unseen), message.text]))
    seen = tuple(one for one in message.attachments if one.ability not in abilities)
    return replace(message, text=text, attachments=seen)
