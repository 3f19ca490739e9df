-- Changes in the order in which they came, as JSON, until they are in their tables: see pending_changes.py.
ALTER TABLE event_batches ADD COLUMN changes TEXT;

-- Runs of a session may begin and end in another order in their table than they did.
DROP TRIGGER session_busy;
CREATE TRIGGER session_busy AFTER INSERT ON runs BEGIN
    UPDATE sessions SET updated = MAX(updated, COALESCE(new.ended, new.created)) WHERE id = new.session;
END;
DROP TRIGGER session_idle;
CREATE TRIGGER session_idle AFTER UPDATE OF ended ON runs WHEN new.ended IS NOT NULL BEGIN
    UPDATE sessions SET updated = MAX(updated, new.ended) WHERE id = new.session;
END;
