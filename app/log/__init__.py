"""The event log: one writer, streams of a run, compaction."""
