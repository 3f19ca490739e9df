"""Access to the metrics without being an admin: by a token that opens nothing else, or for all if a setting says so."""

from __future__ import annotations

from msgspec import Struct

from app.config.monitoring_settings import MonitoringSettings
from routes.access.token_text import fingerprint, is_known

METRICS = "/metrics"


class MetricsAccess(Struct, frozen=True):
    """Decides which requests may read the metrics. None may by default."""

    public: bool = False
    token_sha256: str = ""  # no token is let in by an empty one

    def lets_in(self, method: str, path: str, token: str | None) -> bool:
        """Return True if a request needs no principal, because it reads the metrics and may."""
        if path != METRICS or method not in ("GET", "HEAD"):
            return False
        return self.public or is_known(token, self.token_sha256)


def metrics_access(settings: MonitoringSettings) -> MetricsAccess:
    token = settings.metrics_token
    return MetricsAccess(settings.metrics_public, fingerprint(token.get_secret_value()) if token else "")
