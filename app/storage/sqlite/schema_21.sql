-- The first day: conversations by a key of the caller's.

-- The conversation that a client means by a key of its own, such as telegram:42; one for each principal and key.
CREATE TABLE conversation_keys (
    principal TEXT NOT NULL,
    key       TEXT NOT NULL,
    session   TEXT NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX conversation_keys_of_session ON conversation_keys (session);

-- Members: persons for whom the token of a bot speaks. `principal` is TOKEN/MEMBER, `account` the linked one, or empty.
ALTER TABLE tokens ADD COLUMN members INTEGER NOT NULL DEFAULT 0;
CREATE TABLE members (
    principal TEXT PRIMARY KEY,
    token     TEXT NOT NULL,
    member    TEXT NOT NULL,
    created   REAL NOT NULL,
    account   TEXT NOT NULL DEFAULT ''
);
CREATE INDEX members_of_token ON members (token, created);
CREATE INDEX members_by_account ON members (account) WHERE account <> '';
-- A code by which an account is linked, the newest of each: `sha256` is its hash, `token` the name of the bot's.
CREATE TABLE member_codes (
    account TEXT PRIMARY KEY,
    token   TEXT NOT NULL,
    sha256  TEXT NOT NULL,
    expires REAL NOT NULL
);

-- The names that clients of /v1/responses gave to conversations are keys now.
INSERT INTO conversation_keys (principal, key, session)
SELECT idempotency.principal, substr(idempotency.key, 18), runs.session
FROM idempotency JOIN runs ON runs.id = idempotency.run
WHERE substr(idempotency.key, 1, 17) = 'thread' || char(10) || 'responses' || char(10);

-- Modes of conversations: a temporary one is not listed, and deleted when it is over.
ALTER TABLE sessions ADD COLUMN temporary INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_temporary ON sessions (updated) WHERE temporary;

-- The session of the identity provider that a sign-in belongs to: the provider says when it ends.
ALTER TABLE sign_ins ADD COLUMN session TEXT NOT NULL DEFAULT '';
