"""Runs from start to terminal event: the agent, its calls, tasks, queues, recovery, background jobs' turns."""
