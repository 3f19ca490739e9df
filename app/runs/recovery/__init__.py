"""Runs that outlive their server: what one has left is read from its log and history, and another server goes on."""
