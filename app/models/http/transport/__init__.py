"""Lean HTTP/1.1 transport for httpx2: dialling, pooled connections, and a sans-IO response parser."""
