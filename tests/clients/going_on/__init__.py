"""Conversations that go on: behind a lost connection, a kill of the server, a compaction."""
