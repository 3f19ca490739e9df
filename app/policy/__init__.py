"""What may run: the gate, grants, approvals, questions, guards, the canary."""
