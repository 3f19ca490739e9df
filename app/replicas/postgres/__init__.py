"""Replicas on PostgreSQL: leases, locks, notifications and requests among servers that share a database."""
