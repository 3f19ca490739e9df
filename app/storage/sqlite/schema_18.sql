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
