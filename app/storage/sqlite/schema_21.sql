-- The first day: conversations by a key of the caller's.

-- The conversation that a client means by a key of its own, such as telegram:42; one for each principal and key.
CREATE TABLE conversation_keys (
    principal TEXT NOT NULL,
    key       TEXT NOT NULL,
    session   TEXT NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX conversation_keys_of_session ON conversation_keys (session);

-- Modes of conversations: a temporary one is not listed, and deleted when it is over.
ALTER TABLE sessions ADD COLUMN temporary INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_temporary ON sessions (updated) WHERE temporary;
