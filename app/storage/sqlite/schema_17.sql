-- Memory: rows that are recalled in later conversations.

-- Schedules and triggers: what begins runs without a request.

-- Webhooks, push subscriptions, and what is still to be delivered to them.
CREATE TABLE notification_targets (
    id TEXT PRIMARY KEY, principal TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, url TEXT NOT NULL,
    events TEXT NOT NULL, everyone INTEGER NOT NULL, version INTEGER NOT NULL, keys TEXT NOT NULL, created REAL NOT NULL,
    state TEXT NOT NULL, reason TEXT NOT NULL, failing REAL
);
CREATE TABLE deliveries (
    id TEXT PRIMARY KEY, target TEXT NOT NULL, principal TEXT NOT NULL, kind TEXT NOT NULL, session TEXT NOT NULL,
    subject TEXT NOT NULL, detail TEXT NOT NULL, created REAL NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL, due REAL NOT NULL, status INTEGER, error TEXT NOT NULL, finished REAL
);
CREATE INDEX deliveries_due ON deliveries (target, due) WHERE state = 'pending';
CREATE INDEX deliveries_of ON deliveries (target, created);

-- Sensitivity labels.

-- Profiles and servers of models.
