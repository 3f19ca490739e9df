"""MCP servers: as many as people have, none of which can hang, crash, flood, trick or slow the agent.

`manager.Manager` is the door; `model` has the words that it speaks. The SDK costs 0.8 s to import and is never
imported before the first server is connected.
"""
