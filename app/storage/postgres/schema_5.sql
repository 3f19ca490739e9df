-- The first day: conversations by a key of the caller's.

-- The conversation that a client means by a key of its own, such as telegram:42; one for each principal and key.
CREATE TABLE conversation_keys (
    principal TEXT COLLATE "C" NOT NULL,
    key       TEXT COLLATE "C" NOT NULL,
    session   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX conversation_keys_of_session ON conversation_keys (session);

-- Modes of conversations: a temporary one is not listed, and deleted when it is over.
ALTER TABLE sessions ADD COLUMN temporary BOOLEAN NOT NULL DEFAULT false;
CREATE INDEX sessions_temporary ON sessions (updated) WHERE temporary;
