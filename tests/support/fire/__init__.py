"""Deploys under fire (tests/tasks/fire.py): servers of two versions, their faults, clients of every lane, a table."""
