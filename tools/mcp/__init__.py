"""MCP servers: their processes and connections, calls, results and trust. No server can hang or crash the agent.

`manager.Manager` is the entry point; `model` has its types. The SDK costs 0.8 s to import and is never
imported before the first server is connected.
"""
