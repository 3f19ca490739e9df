-- upto: how many messages of the session the text stands for.
CREATE TABLE summaries (
    session TEXT NOT NULL,
    upto    INTEGER NOT NULL,
    run     TEXT NOT NULL,
    text    TEXT NOT NULL,
    before  INTEGER NOT NULL,
    after   INTEGER NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session, upto)
);

CREATE TABLE results (
    session TEXT NOT NULL,
    run     TEXT NOT NULL,
    call    TEXT NOT NULL,
    name    TEXT NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (session, call)
);
