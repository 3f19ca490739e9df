"""Process of one served model: llama.cpp's server with a GGUF file, for the context and the slots of its row."""

from __future__ import annotations

from collections.abc import Mapping

from app.core.provider import ProviderFailed
from app.models.embedded.supervisor import ModelProcess, generating_threads, usable_cores
from app.models.serving.catalogue import check_unchanged
from app.models.serving.refusals import UnfitFile
from app.storage.served_models import ServedModelRow

START_LIMIT_S = 600.0  # to read tens of gigabytes from a slow disk


class ServedProcess(ModelProcess):
    """A ModelProcess of a served model, called `model`."""

    start_limit_s = START_LIMIT_S

    def __init__(self, row: ServedModelRow, model: str) -> None:
        super().__init__(f"model {row.name}", "`dragoman model list` has its file; GET /served-models the whole log.")
        self._row = row
        self._model = model

    def _options(self) -> Mapping[str, object]:
        try:
            check_unchanged(self._row)
        except UnfitFile as unfit:
            raise ProviderFailed("model_missing", str(unfit), retryable=False) from None
        return {
            "weights": self._row.path,
            "name": self._model,
            "context": self._row.context,
            "slots": self._row.slots,
            "threads": self._row.threads or generating_threads(),
            "prompt-threads": self._row.threads or usable_cores(),
            "cache-type": self._row.cache_type,
        }
