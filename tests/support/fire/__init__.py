"""Deploys under fire (tests/tasks/fire.py): servers of two versions, what befalls them, clients of every lane, a table."""
