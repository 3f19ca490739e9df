"""The built-in tools: shell, Python, files, web, jobs, history."""
