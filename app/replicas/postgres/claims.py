"""Runs without an owner: claimed by a replica that may have them, given back by one that stops."""

from __future__ import annotations

from typing import Any

MOST = 16  # runs claimed at a time: others leave some for this replica, too
# A run whose session has an earlier one that has not ended waits; a run with a home waits for a replica of that node.
CLAIM = """
    UPDATE runs SET owner = $1, epoch = epoch + 1 WHERE id IN (
      SELECT id FROM runs r WHERE owner IS NULL AND ended IS NULL AND home IN ('*', $2)
      AND NOT EXISTS (SELECT 1 FROM runs b WHERE b.session = r.session AND b.ended IS NULL AND b.number < r.number)
      AND (SELECT state FROM replicas WHERE id = $1) = 'up'
      ORDER BY number LIMIT $3 FOR UPDATE SKIP LOCKED)
    RETURNING id
"""
# Runs that were claimed, and have not ended.
MINE = "SELECT id FROM runs WHERE owner = $1 AND epoch > 0 AND ended IS NULL"
RELEASE = "UPDATE runs SET owner = NULL WHERE id = $1 AND owner = $2 AND ended IS NULL"
OTHERS = "SELECT id FROM replicas WHERE state <> 'gone' AND id <> $1"
COUNT = "SELECT COUNT(*) FROM replicas WHERE state <> 'gone'"
OWNER = "SELECT owner, ended IS NOT NULL AS ended FROM runs WHERE id = $1"


async def claim(connection: Any, replica: str, node: str) -> list[str]:
    """Claim runs; return their ids, oldest first."""
    return sorted(row["id"] for row in await connection.fetch(CLAIM, replica, node, MOST))
