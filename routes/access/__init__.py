"""Authentication: tokens, the local admin, hosts and origins, rate and connection limits."""
