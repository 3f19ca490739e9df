"""What keeps a run to its task: limits, nudges, the end of loops, a last check."""
