"""The pool of a server, made and imported with the first endpoint of a served model: without one it costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.config.serving_settings import ServingSettings
from app.core.clock import Clock
from app.core.endpoint_spec import EndpointSpec
from app.storage.kill_switch import KillSwitch
from app.storage.served_models import ServedModelStore

if TYPE_CHECKING:
    from app.models.http.client import TransportKind
    from app.models.serving.connection import ServedConnection
    from app.models.serving.pool import ModelPool


class Serving:
    """Makes connections to served models. `pool` is None until the first one."""

    def __init__(self, settings: ServingSettings, store: ServedModelStore, switch: KillSwitch) -> None:
        self.pool: ModelPool | None = None
        self._settings = settings
        self._store = store
        self._switch = switch

    def connect(self, spec: EndpointSpec, clock: Clock | None, transport: TransportKind) -> ServedConnection:
        from app.models.serving.connection import ServedConnection
        from app.models.serving.pool import ModelPool

        if self.pool is None:
            memory_mb, idle_s = self._settings.model_memory_mb, self._settings.model_idle_s
            self.pool = ModelPool(self._store, memory_mb, idle_s, unpaused=self._switch.unpaused)
        return ServedConnection(self.pool, spec, clock, transport)
