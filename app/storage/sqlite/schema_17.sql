-- Memory: rows that are recalled in later conversations.
-- `words` is the text as the index has it: with spaces between the characters of scripts that write none.
CREATE TABLE memories (
    number    INTEGER PRIMARY KEY,
    id        TEXT NOT NULL UNIQUE,
    owner     TEXT NOT NULL,
    digest    TEXT NOT NULL,
    kind      TEXT NOT NULL,
    text      TEXT NOT NULL,
    words     TEXT NOT NULL,
    untrusted INTEGER NOT NULL,
    author    TEXT NOT NULL,
    session   TEXT NOT NULL,
    run       TEXT NOT NULL,
    message   INTEGER NOT NULL,
    labels    TEXT NOT NULL DEFAULT '[]',
    created   DOUBLE PRECISION NOT NULL,
    updated   DOUBLE PRECISION NOT NULL,
    UNIQUE (owner, digest)
);
CREATE INDEX memories_by_time ON memories (owner, updated, id);
CREATE INDEX memories_of_session ON memories (session);

CREATE TABLE memory_vectors (
    memory   TEXT PRIMARY KEY,
    owner    TEXT NOT NULL,
    digest   TEXT NOT NULL,
    embedder TEXT NOT NULL,
    vector   BLOB NOT NULL
);
CREATE INDEX memory_vectors_of_owner ON memory_vectors (owner, embedder);

CREATE VIRTUAL TABLE memory_words USING fts5(
    owner, words, content = 'memories', content_rowid = 'number', tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TRIGGER memory_kept AFTER INSERT ON memories BEGIN
    INSERT INTO memory_words (rowid, owner, words) VALUES (new.number, new.owner, new.words);
END;

CREATE TRIGGER memory_edited AFTER UPDATE OF words ON memories WHEN new.words <> old.words BEGIN
    INSERT INTO memory_words (memory_words, rowid, owner, words) VALUES ('delete', old.number, old.owner, old.words);
    INSERT INTO memory_words (rowid, owner, words) VALUES (new.number, new.owner, new.words);
    DELETE FROM memory_vectors WHERE memory = old.id;
END;

CREATE TRIGGER memory_forgotten AFTER DELETE ON memories BEGIN
    INSERT INTO memory_words (memory_words, rowid, owner, words) VALUES ('delete', old.number, old.owner, old.words);
    DELETE FROM memory_vectors WHERE memory = old.id;
END;

-- Runs whose turn is still to be read for memories; `ends` is the position behind its last message.
CREATE TABLE memory_jobs (
    run     TEXT PRIMARY KEY,
    owner   TEXT NOT NULL,
    session TEXT NOT NULL,
    begins  INTEGER NOT NULL,
    ends    INTEGER NOT NULL,
    tries   INTEGER NOT NULL,
    created DOUBLE PRECISION NOT NULL
);

-- Helpers: sessions of runs that a call of another run has begun.
CREATE TABLE helpers (
    session        TEXT PRIMARY KEY,
    run            TEXT NOT NULL,
    parent_session TEXT NOT NULL,
    parent_run     TEXT NOT NULL,
    call           TEXT NOT NULL,
    depth          INTEGER NOT NULL,
    created        DOUBLE PRECISION NOT NULL
);
CREATE INDEX helpers_of_session ON helpers (parent_session, created);
CREATE INDEX helpers_by_run ON helpers (run);
ALTER TABLE inbox ADD COLUMN untrusted INTEGER NOT NULL DEFAULT 0;

-- Schedules and triggers: what begins runs without a request.
CREATE TABLE schedules (
    id         TEXT PRIMARY KEY,
    principal  TEXT NOT NULL,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    expression TEXT NOT NULL,
    zone       TEXT NOT NULL,
    text       TEXT NOT NULL,
    policy     TEXT NOT NULL,
    place      TEXT NOT NULL,
    missed     TEXT NOT NULL,
    jitter_s   DOUBLE PRECISION NOT NULL,
    enabled    INTEGER NOT NULL,
    created    DOUBLE PRECISION NOT NULL,
    next       DOUBLE PRECISION,
    reckoned   DOUBLE PRECISION,
    session    TEXT,
    run        TEXT
);

CREATE TABLE triggers (
    id        TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    name      TEXT NOT NULL,
    scheme    TEXT NOT NULL,
    secret    TEXT NOT NULL,
    text      TEXT NOT NULL,
    template  TEXT NOT NULL,
    policy    TEXT NOT NULL,
    place     TEXT NOT NULL,
    enabled   INTEGER NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    session   TEXT
);
CREATE INDEX triggers_of_principal ON triggers (principal);

CREATE TABLE occurrences (
    origin     TEXT NOT NULL,
    occurrence TEXT NOT NULL,
    at         DOUBLE PRECISION NOT NULL,
    outcome    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    due        DOUBLE PRECISION,
    run        TEXT,
    PRIMARY KEY (origin, occurrence)
);

-- Notifications: webhooks, push subscriptions, and what is still to be delivered to them.
CREATE TABLE notification_targets (
    id        TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    url       TEXT NOT NULL,
    events    TEXT NOT NULL,
    everyone  INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    keys      TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    state     TEXT NOT NULL,
    reason    TEXT NOT NULL,
    failing   DOUBLE PRECISION
);

CREATE TABLE deliveries (
    id        TEXT PRIMARY KEY,
    target    TEXT NOT NULL,
    principal TEXT NOT NULL,
    kind      TEXT NOT NULL,
    session   TEXT NOT NULL,
    subject   TEXT NOT NULL,
    detail    TEXT NOT NULL,
    created   DOUBLE PRECISION NOT NULL,
    state     TEXT NOT NULL,
    attempts  INTEGER NOT NULL,
    due       DOUBLE PRECISION NOT NULL,
    status    INTEGER,
    error     TEXT NOT NULL,
    finished  DOUBLE PRECISION
);
CREATE INDEX deliveries_due ON deliveries (target, due) WHERE state = 'pending';
CREATE INDEX deliveries_of ON deliveries (target, created);

-- Generated titles and summaries.
CREATE TABLE session_digests (
    session   TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    run       TEXT NOT NULL,
    state     TEXT NOT NULL,
    messages  INTEGER NOT NULL,
    title     TEXT NOT NULL,
    summary   TEXT NOT NULL
);

-- Sensitivity labels.
CREATE TABLE session_labels (
    session TEXT NOT NULL,
    label   TEXT NOT NULL,
    source  TEXT NOT NULL,
    detail  TEXT NOT NULL,
    run     TEXT NOT NULL,
    at      DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session, label)
);
-- What was stored before its conversation got a label has it, too, also once the conversation is deleted.
CREATE TRIGGER label_reaches_memories AFTER INSERT ON session_labels BEGIN
    UPDATE memories SET labels = (
        SELECT json_group_array(value) FROM (SELECT value FROM json_each(memories.labels) UNION SELECT new.label)
    ) WHERE session = new.session;
END;
CREATE TRIGGER memory_takes_labels AFTER INSERT ON memories
WHEN EXISTS (SELECT 1 FROM session_labels WHERE session = new.session) BEGIN
    UPDATE memories SET labels = (
        SELECT json_group_array(value) FROM (
            SELECT value FROM json_each(new.labels)
            UNION SELECT label FROM session_labels WHERE session = new.session
        )
    ) WHERE id = new.id;
END;
-- With a `call` it holds only while that call may write.
CREATE TABLE file_labels (
    workspace TEXT NOT NULL,
    path      TEXT NOT NULL,
    label     TEXT NOT NULL,
    call      TEXT NOT NULL,
    PRIMARY KEY (workspace, path, label, call)
);
CREATE INDEX file_labels_of_calls ON file_labels (call) WHERE call <> '';

-- Profiles.
CREATE TABLE profiles (
    owner TEXT NOT NULL,
    name  TEXT NOT NULL,
    spec  TEXT NOT NULL,
    by    TEXT NOT NULL,
    at    DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (owner, name)
);
ALTER TABLE tokens ADD COLUMN profile TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN options TEXT NOT NULL DEFAULT '{}';
CREATE INDEX sessions_with_options ON sessions (id) WHERE options <> '{}';

-- Served models. `header` is the JSON of app.models.serving.gguf.Header. A model
-- is served while an endpoint has the URL served:NAME.
CREATE TABLE served_models (
    name       TEXT PRIMARY KEY,
    path       TEXT NOT NULL,
    size       INTEGER NOT NULL,
    modified   INTEGER NOT NULL,
    header     TEXT NOT NULL,
    context    INTEGER NOT NULL,
    slots      INTEGER NOT NULL,
    cache_type TEXT NOT NULL,
    threads    INTEGER NOT NULL,
    at_start   INTEGER NOT NULL,
    forced     INTEGER NOT NULL,
    by         TEXT NOT NULL,
    at         DOUBLE PRECISION NOT NULL
);
