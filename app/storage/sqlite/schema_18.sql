-- The list of conversations: pins, the archive, and folders. `lists` counts the changes of a list that is shown.
ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN folder TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_pinned ON sessions (principal, updated, id) WHERE pinned;
CREATE INDEX sessions_archived ON sessions (principal, updated, id) WHERE archived;
CREATE INDEX sessions_in_folders ON sessions (folder, updated, id) WHERE folder <> '';

CREATE TABLE folders (
    id        TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    name      TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL
);
CREATE INDEX folders_of_principal ON folders (principal, name);

CREATE TABLE lists (
    principal TEXT PRIMARY KEY,
    revision  INTEGER NOT NULL
);

-- Links to a conversation as it was when it was shared. `sha256` is of the link's token, `content` is JSON.
CREATE TABLE shares (
    id        TEXT PRIMARY KEY,
    sha256    TEXT NOT NULL UNIQUE,
    session   TEXT NOT NULL,
    principal TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    updated   DOUBLE PRECISION NOT NULL,
    expires   DOUBLE PRECISION,
    title     TEXT NOT NULL,
    options   TEXT NOT NULL,
    content   TEXT NOT NULL
);
CREATE INDEX shares_of_session ON shares (session);
CREATE INDEX shares_of_principal ON shares (principal, created);

-- Browsers that stay signed in. `sha256` is that of the cookie's secret and the page's key together.
CREATE TABLE sign_ins (
    id        TEXT PRIMARY KEY,
    sha256    TEXT NOT NULL,
    token     TEXT NOT NULL,
    principal TEXT NOT NULL,
    device    TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    seen      DOUBLE PRECISION NOT NULL,
    expires   DOUBLE PRECISION NOT NULL
);
CREATE INDEX sign_ins_of ON sign_ins (principal, created);

-- Stored prompts, and the defaults of a person's new conversations.
CREATE TABLE prompts (
    owner   TEXT NOT NULL,
    name    TEXT NOT NULL,
    about   TEXT NOT NULL,
    text    TEXT NOT NULL,
    updated DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (owner, name)
);
CREATE TABLE preferences (
    owner   TEXT PRIMARY KEY,
    options TEXT NOT NULL,
    updated DOUBLE PRECISION NOT NULL
);

-- `disabled_at`: since when a token is switched off. `version` rises with each change of its rights.
ALTER TABLE tokens ADD COLUMN disabled_at DOUBLE PRECISION;
ALTER TABLE tokens ADD COLUMN version INTEGER NOT NULL DEFAULT 0;

-- Branches of a conversation: each is a session with the runs before a cut, which stay with the session that had them.
-- `tree` is the session that all go back to, which may be deleted; it has a row, too. `after`: the last run before the
-- cut, empty for a cut before the first.
CREATE TABLE branches (
    session TEXT PRIMARY KEY,
    tree    TEXT NOT NULL,
    parent  TEXT NOT NULL,
    after   TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL
);
CREATE INDEX branches_of_tree ON branches (tree, created);

-- The runs that a branch has of other sessions: those of `origin` that were created until then, in the order of `place`.
CREATE TABLE branch_parts (
    session TEXT NOT NULL,
    place   INTEGER NOT NULL,
    origin  TEXT NOT NULL,
    until   DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session, place)
);
CREATE INDEX branch_parts_by_origin ON branch_parts (origin);
