"""Checkpoints: the changes of a run in its workspace, as one diff, and undone."""
