"""The sensitivity labels of a run, where the settings define any."""

from __future__ import annotations

from app.context.project_files import ProjectContext
from app.labels.run_labels import LabelServices, RunLabels
from app.models.endpoints.failover import ModelRoute
from app.policy.gate import Gate
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.sandbox import NoSandbox, Sandbox

NO_PROJECT = ProjectContext()


def labels_of_run(
    services: LabelServices | None,
    route: ModelRoute,
    gate: Gate,
    sandbox: Sandbox | NoSandbox,
    project: ProjectContext = NO_PROJECT,
) -> RunLabels | None:
    """Return the labels of a run on this route. Outside of bubblewrap its commands may reach all workspaces."""
    if services is None:
        return None
    boxed = isinstance(sandbox, Bubblewrap)
    return RunLabels(services, route, gate, gate.policy.workspace, boxed=boxed, project=project)
