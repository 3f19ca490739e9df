-- The first day: conversations by a key of the caller's.

-- The conversation that a client means by a key of its own, such as telegram:42; one for each principal and key.
CREATE TABLE conversation_keys (
    principal TEXT COLLATE "C" NOT NULL,
    key       TEXT COLLATE "C" NOT NULL,
    session   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX conversation_keys_of_session ON conversation_keys (session);

-- Members: persons for whom the token of a bot speaks. `principal` is TOKEN/MEMBER, `account` the linked one, or empty.
ALTER TABLE tokens ADD COLUMN members BOOLEAN NOT NULL DEFAULT false;
CREATE TABLE members (
    principal TEXT COLLATE "C" PRIMARY KEY,
    token     TEXT COLLATE "C" NOT NULL,
    member    TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    account   TEXT COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX members_of_token ON members (token, created);
CREATE INDEX members_by_account ON members (account) WHERE account <> '';
-- A code by which an account is linked, the newest of each: `sha256` is its hash, `token` the name of the bot's.
CREATE TABLE member_codes (
    account TEXT COLLATE "C" PRIMARY KEY,
    token   TEXT COLLATE "C" NOT NULL,
    sha256  TEXT NOT NULL,
    expires DOUBLE PRECISION NOT NULL
);

-- The names that clients of /v1/responses gave to conversations are keys now.
INSERT INTO conversation_keys (principal, key, session)
SELECT idempotency.principal, substr(idempotency.key, 18), runs.session
FROM idempotency JOIN runs ON runs.id = idempotency.run
WHERE substr(idempotency.key, 1, 17) = 'thread' || chr(10) || 'responses' || chr(10);

-- Modes of conversations: a temporary one is not listed, and deleted when it is over.
ALTER TABLE sessions ADD COLUMN temporary BOOLEAN NOT NULL DEFAULT false;
CREATE INDEX sessions_temporary ON sessions (updated) WHERE temporary;

-- The session of the identity provider that a sign-in belongs to: the provider says when it ends.
ALTER TABLE sign_ins ADD COLUMN session TEXT COLLATE "C" NOT NULL DEFAULT '';
