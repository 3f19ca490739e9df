-- Changes in the order in which they came, as JSON, until they are in their tables: see pending_changes.py.
ALTER TABLE event_batches ADD COLUMN changes TEXT;
