"""Endpoints: registry, model names, keys, fair queue, health, retries and failover."""
