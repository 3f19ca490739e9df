"""Authorisation of tool calls: the gate, grants, approvals, questions, guards and the canary."""
