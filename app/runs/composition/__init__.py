"""The parts of which `app.runs.run_factory` composes a run."""
