"""HTTP client of model servers: requests, the lean transport, SSE reading, retry hints, failures with advice."""
