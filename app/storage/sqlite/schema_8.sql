-- When something last began or ended in a session: lists are in that order.
ALTER TABLE sessions ADD COLUMN updated DOUBLE PRECISION NOT NULL DEFAULT 0;
UPDATE sessions SET updated = COALESCE(
    (SELECT MAX(COALESCE(runs.ended, runs.created)) FROM runs WHERE runs.session = sessions.id), created
);
DROP INDEX sessions_by_principal;
CREATE INDEX sessions_by_activity ON sessions (principal, updated, id);

CREATE TRIGGER session_busy AFTER INSERT ON runs BEGIN
    UPDATE sessions SET updated = COALESCE(new.ended, new.created) WHERE id = new.session;
END;
CREATE TRIGGER session_idle AFTER UPDATE OF ended ON runs WHEN new.ended IS NOT NULL BEGIN
    UPDATE sessions SET updated = new.ended WHERE id = new.session;
END;
