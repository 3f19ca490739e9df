-- The list of conversations: pins, the archive, and folders. `lists` counts the changes of a list that is shown.
ALTER TABLE sessions ADD COLUMN pinned BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE sessions ADD COLUMN archived BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE sessions ADD COLUMN folder TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX sessions_pinned ON sessions (principal, updated, id) WHERE pinned;
CREATE INDEX sessions_archived ON sessions (principal, updated, id) WHERE archived;
CREATE INDEX sessions_in_folders ON sessions (folder, updated, id) WHERE folder <> '';

CREATE TABLE folders (
    id        TEXT COLLATE "C" PRIMARY KEY,
    principal TEXT COLLATE "C" NOT NULL,
    name      TEXT COLLATE "C" NOT NULL,
    created   DOUBLE PRECISION NOT NULL
);
CREATE INDEX folders_of_principal ON folders (principal, name);

CREATE TABLE lists (
    principal TEXT COLLATE "C" PRIMARY KEY,
    revision  BIGINT NOT NULL
);

-- Links to a conversation as it was when it was shared. `sha256` is of the link's token, `content` is JSON.
CREATE TABLE shares (
    id        TEXT COLLATE "C" PRIMARY KEY,
    sha256    TEXT COLLATE "C" NOT NULL UNIQUE,
    session   TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    updated   DOUBLE PRECISION NOT NULL,
    expires   DOUBLE PRECISION,
    title     TEXT COLLATE "C" NOT NULL,
    options   TEXT COLLATE "C" NOT NULL,
    content   TEXT COLLATE "C" NOT NULL
);
CREATE INDEX shares_of_session ON shares (session);
CREATE INDEX shares_of_principal ON shares (principal, created);

-- Browsers that stay signed in. `sha256` is that of the cookie's secret and the page's key together.
CREATE TABLE sign_ins (
    id        TEXT COLLATE "C" PRIMARY KEY,
    sha256    TEXT COLLATE "C" NOT NULL,
    token     TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    device    TEXT COLLATE "C" NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    seen      DOUBLE PRECISION NOT NULL,
    expires   DOUBLE PRECISION NOT NULL
);
CREATE INDEX sign_ins_of ON sign_ins (principal, created);

-- Stored prompts, and the defaults of a person's new conversations.
CREATE TABLE prompts (
    owner   TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    about   TEXT COLLATE "C" NOT NULL,
    text    TEXT COLLATE "C" NOT NULL,
    updated DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (owner, name)
);
CREATE TABLE preferences (
    owner   TEXT COLLATE "C" PRIMARY KEY,
    options TEXT COLLATE "C" NOT NULL,
    updated DOUBLE PRECISION NOT NULL
);

-- `disabled_at`: since when a token is switched off. `version` rises with each change of its rights.
ALTER TABLE tokens ADD COLUMN disabled_at DOUBLE PRECISION;
ALTER TABLE tokens ADD COLUMN version BIGINT NOT NULL DEFAULT 0;

-- Branches of a conversation: each is a session with the runs before a cut, which stay with the session that had them.
-- `tree` is the session that all go back to, which may be deleted; it has a row, too. `after`: the last run before the
-- cut, empty for a cut before the first.
CREATE TABLE branches (
    session TEXT COLLATE "C" PRIMARY KEY,
    tree    TEXT COLLATE "C" NOT NULL,
    parent  TEXT COLLATE "C" NOT NULL,
    after   TEXT COLLATE "C" NOT NULL,
    created DOUBLE PRECISION NOT NULL
);
CREATE INDEX branches_of_tree ON branches (tree, created);

-- The runs that a branch has of other sessions: those of `origin` that were created until then, in the order of `place`.
CREATE TABLE branch_parts (
    session TEXT COLLATE "C" NOT NULL,
    place   BIGINT NOT NULL,
    origin  TEXT COLLATE "C" NOT NULL,
    until   DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session, place)
);
CREATE INDEX branch_parts_by_origin ON branch_parts (origin);
