"""AgentDojo against the gate: how many injected goals reach a tool, and what asking costs."""
