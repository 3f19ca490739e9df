"""Runs of several servers on one database: watched, steered and stopped at whichever server is asked."""
