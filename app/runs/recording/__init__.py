"""Recordings: what a run was made of beside its log, so that it can be played again."""
